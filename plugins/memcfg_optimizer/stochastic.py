"""AdamW whose states are bfloat16, and which rounds up or down at random, in proportion to what is cut off.

Rounded to nearest, an update of less than half of a bfloat16 weight's last bit is lost, every time; rounded at random it
counts on average (Zamirai et al. 2020, "Revisiting BFloat16 Training", arXiv 2010.06192).

It computes in float32 without a float32 copy of anything large: in one Triton kernel on a GPU, otherwise a piece of a tensor
at a time. What is random follows from a seed, the step, the tensor's number and the element's: every process that holds the
same weights rounds them alike, and a run that is resumed goes on as it would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, Final

import torch

Tensor = torch.Tensor
MOMENTS: Final = ("exp_avg", "exp_avg_sq")
PIECE: Final = 1 << 22
"""Elements that are worked on at a time without the kernel: about 16 MiB for each of some ten temporary tensors."""
GOLDEN: Final = 0x9E3779B9
MASK: Final = (1 << 32) - 1


@dataclass(frozen=True)
class Numbers:
    """What a step multiplies with: see `adamw_kernel`."""

    kept: float
    rate: float
    first: float
    second: float
    unbias: float
    eps: float

    @classmethod
    def of(cls, group: dict[str, Any], step: int) -> Numbers:
        (first, second), rate = group["betas"], float(group["lr"])
        kept, unbias = 1 - rate * group["weight_decay"], 1 / (1 - second**step)
        return cls(kept, rate / (1 - first**step), 1 - first, 1 - second, unbias, group["eps"])


class StochasticAdamW(torch.optim.Optimizer):
    """As `torch.optim.AdamW`, computed in float32, with both moments kept in bfloat16. bfloat16 parameters are rounded at
    random, too; float32 ones are kept as they are. With `kernel` Triton moves what does not lie on the host, and `kernels` counts
    how many times."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, seed: int = 0, kernel: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.seed, self.kernel, self.kernels = seed, kernel, 0
        self._number = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The moments stay in bfloat16, where the base class would give them the parameters' type."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state.update({name: state[name].to(torch.bfloat16) for name in MOMENTS})

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        number = self._number.setdefault(parameter, len(self._number))  # a strategy may put its own in the groups
        key, other = keys(self.seed, int(state["step"]), number)
        numbers = Numbers.of(group, int(state["step"]))
        tensors = [parameter, gradient, *(state[name] for name in MOMENTS)]
        whole = all(t.is_contiguous() for t in tensors)
        if whole and self.kernel and parameter.device.type != "cpu":
            from memcfg_optimizer.kernel import stochastic_adamw_

            self.kernels += 1
            stochastic_adamw_(*tensors, key, other, *astuple(numbers))
            return
        for start, piece in _pieces(tensors, whole):
            move_(*piece, start, key, other, numbers)


def move_(
    weights: Tensor,
    gradients: Tensor,
    means: Tensor,
    squares: Tensor,
    start: int,
    key: int,
    other: int,
    numbers: Numbers,
) -> None:
    """What the kernel does, in torch: one step of the elements from number `start` on."""
    gradient = gradients.float()
    mean = means.float().lerp_(gradient, numbers.first)
    square = squares.float().mul_(1 - numbers.second).addcmul_(gradient, gradient, value=numbers.second)
    one, two = noise(weights, start, key, other)
    store_(means, mean.clone(), one & 0xFFFF)
    store_(squares, square.clone(), (one >> 16) & 0xFFFF)
    root = square.mul_(numbers.unbias).sqrt_().add_(numbers.eps)
    values = weights.float() if weights.dtype != torch.float32 else weights
    values.mul_(numbers.kept).addcdiv_(mean, root, value=-numbers.rate)
    if values is not weights:
        store_(weights, values, two & 0xFFFF)


def store_(target: Tensor, values: Tensor, noise: Tensor) -> None:
    """Put float32 `values` into `target`: stochastically rounded if that is bfloat16. `values` is used up.

    The lower half of a float32 is what bfloat16 cuts off: a random number of 16 bits, int32, added to it carries into the
    upper half as often as it is large."""
    if target.dtype != torch.bfloat16:
        target.copy_(values)
        return
    finite = values.isfinite()
    rounded = values.view(torch.int32).add(noise).bitwise_and_(-(1 << 16)).view(torch.float32)
    target.copy_(torch.where(finite, rounded, values))


def noise(like: Tensor, start: int, key: int, other: int) -> tuple[Tensor, Tensor]:
    """Random bits for each element, two int32 of `like`'s shape, from its number."""
    at = torch.arange(start, start + like.numel(), dtype=torch.int64, device=like.device).to(torch.int32)
    one = _mixed_(_mixed_(at.view(like.shape).bitwise_xor_(_signed(key))).add_(_signed(other)))
    return one, _mixed_(one.add(_signed(GOLDEN)))


def keys(seed: int, step: int, number: int) -> tuple[int, int]:
    """Two numbers of 31 bits for a tensor's step, which no other step of it or of another tensor has."""
    mixed = _mixed_int(_mixed_int(_mixed_int(seed & MASK) + step & MASK) + number & MASK)
    return mixed >> 1, _mixed_int(mixed + GOLDEN & MASK) >> 1


def _pieces(tensors: list[Tensor], whole: bool) -> Iterator[tuple[int, list[Tensor]]]:
    """The same elements of all tensors, few at a time, and the number of the first of them."""
    if not whole:  # laid out in different orders
        yield 0, tensors
        return
    flat = [tensor.view(-1) for tensor in tensors]
    for start in range(0, len(flat[0]), PIECE):
        yield start, [tensor[start : start + PIECE] for tensor in flat]


def _mixed_(x: Tensor) -> Tensor:
    """The finalizer of MurmurHash3 over int32, whose products wrap around. In place."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_signed(0x85EBCA6B))
    x.bitwise_xor_((x >> 13).bitwise_and_(0x7FFFF)).mul_(_signed(0xC2B2AE35))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _mixed_int(x: int) -> int:
    x = (x ^ (x >> 16)) * 0x85EBCA6B & MASK
    x = (x ^ (x >> 13)) * 0xC2B2AE35 & MASK
    return x ^ (x >> 16)


def _signed(x: int) -> int:
    return x - (1 << 32) if x >= 1 << 31 else x
