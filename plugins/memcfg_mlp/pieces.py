"""A function of each position by itself, over pieces of a sequence: forward without keeping anything but its input, and
backward one piece after the other.

The input is saved before the function runs, by an operation of its own. Where the layer around it is checkpointed and
nothing comes after it that needs to be kept, computing the layer again then stops before this function: it runs twice in
a step, as often as without pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from memcfg import simulated

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]


def in_pieces(module: torch.nn.Module, function: Function, hidden: Tensor, pieces: int) -> Tensor:
    """`function(hidden)` [.., L, H] over `pieces` pieces of L. `function` may use the parameters of `module`."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not torch.is_grad_enabled() or not (hidden.requires_grad or parameters):
        return _run(function, hidden, pieces)
    anchor = torch.empty(0, device=hidden.device, requires_grad=True)
    saved = [_Save.apply(anchor, hidden)]  # in a list: an argument that is a tensor would become part of the graph
    return _Pieces.apply(hidden, saved, function, pieces, _Randomness.of(module, hidden), *parameters)  # type: ignore[no-any-return]


class _Save(torch.autograd.Function):
    """Saves a tensor and computes nothing; the node of its result gives the tensor back, as long as the result is kept."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, hidden: Tensor) -> Tensor:
        ctx.save_for_backward(hidden)
        return torch.empty(0, device=hidden.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        raise AssertionError("nothing depends on what this returned")


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, saved: Any, function: Function, pieces: int, random: _Randomness, *parameters: Tensor
    ) -> Tensor:
        ctx.saved, ctx.function, ctx.pieces, ctx.random, ctx.parameters = saved, function, pieces, random, parameters
        ctx.autocast = _autocast(hidden)
        return _run(function, hidden, pieces)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        kept = ctx.saved.pop()  # named: in torch 2.11 a node gives up what it saved with the last tensor that it made
        (hidden,) = kept.grad_fn.saved_tensors
        del kept
        inputs_wanted, sums = ctx.needs_input_grad[0], _Sums(ctx.parameters, many=ctx.pieces > 1)
        over_hidden = torch.empty_like(hidden) if inputs_wanted else None
        with ctx.random.again(), ctx.autocast():
            for span in simulated.repeated(_spans(hidden.shape[-2], ctx.pieces), _size):
                piece = hidden[..., span, :].detach().contiguous().requires_grad_(inputs_wanted)
                with torch.enable_grad():
                    out = ctx.function(piece)
                wanted = [*([piece] if inputs_wanted else []), *ctx.parameters]
                found = list(torch.autograd.grad(out, wanted, gradient[..., span, :], allow_unused=True))
                if over_hidden is not None:
                    over_hidden[..., span, :] = found.pop(0)
                sums.add(found)
        return (over_hidden, None, None, None, None, *sums.cast())


class _Sums:
    """Gradients of parameters added up over pieces, in float32: rounding after each piece would bias them."""

    def __init__(self, parameters: Sequence[Tensor], *, many: bool) -> None:
        self._parameters, self._many = parameters, many
        self._sums: list[Tensor | None] = [None] * len(parameters)

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            before = self._sums[index]
            if before is None:
                self._sums[index] = gradient.float() if self._many and gradient.dtype.itemsize < 4 else gradient
            else:
                before.add_(gradient)

    def cast(self) -> list[Tensor | None]:
        return [None if s is None else s.to(p.dtype) for s, p in zip(self._sums, self._parameters, strict=True)]


class _Randomness:
    """The state of the random streams where a module draws from them, so that dropout falls the same a second time."""

    def __init__(self, host: Tensor | None = None, device: Tensor | None = None, index: int | None = None) -> None:
        self._host, self._device, self._index = host, device, index

    @classmethod
    def of(cls, module: torch.nn.Module, hidden: Tensor) -> _Randomness:
        draws = any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.training and m.p for m in module.modules())
        if not draws or hidden.is_meta:
            return cls()
        if hidden.device.type == "cuda":
            return cls(torch.get_rng_state(), torch.cuda.get_rng_state(hidden.device), hidden.device.index)
        return cls(torch.get_rng_state())

    @contextmanager
    def again(self) -> Iterator[None]:
        if self._host is None:
            yield
            return
        with torch.random.fork_rng(devices=[] if self._device is None else [self._index or 0]):
            torch.set_rng_state(self._host)
            if self._device is not None:
                torch.cuda.set_rng_state(self._device, self._index or 0)
            yield


def _autocast(hidden: Tensor) -> Callable[[], Any]:
    kind = hidden.device.type
    if kind == "meta":
        from contextlib import nullcontext

        return nullcontext
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    return lambda: torch.autocast(kind, dtype=dtype, enabled=enabled)


@torch.no_grad()
def _run(function: Function, hidden: Tensor, pieces: int) -> Tensor:
    out: Tensor | None = None
    for span in simulated.repeated(_spans(hidden.shape[-2], pieces), _size):
        part = function(hidden[..., span, :].contiguous())
        if out is None:
            out = part.new_empty((*hidden.shape[:-1], part.shape[-1]))
        out[..., span, :] = part
    assert out is not None
    return out


def _spans(length: int, pieces: int) -> Iterator[slice]:
    """Pieces of equal length; the last may be shorter."""
    size = -(-length // pieces)
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _size(span: slice) -> int:
    return int(span.stop - span.start)
