"""Runs in a process of its own, because Triton decides at import whether it interprets. Prints one JSON object: what each
function found, or `{"error": text}`.

    python interpreted.py [--every] NAME ...

where NAME is a function below, most of which compare a head on interpreted kernels with whole logits in float64. A case takes
a third of a second, so that options are combined as `pairs` says; `--every` takes all combinations."""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.tokens import DFT, NLL

from memcfg.batch import IGNORE
from memcfg.head import HeadTransform

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
WIDTH, VOCABULARY = 16, 50
EVERY = "--every" in sys.argv
TRANSFORMS = {
    "plain": HeadTransform(), "scaled": HeadTransform(scale=0.25), "capped": HeadTransform(softcap=5.0),
    "both": HeadTransform(scale=3.0, softcap=2.0),
}  # fmt: skip


class Focal:
    """A loss that the kernels do not know."""

    def value(self, logp: torch.Tensor) -> torch.Tensor:
        return -((1 - logp.exp()) ** 2) * logp

    def derivative(self, logp: torch.Tensor) -> torch.Tensor:
        p = logp.exp()
        return 2 * p * (1 - p) * logp - (1 - p) ** 2


class Model(torch.nn.Module):
    def __init__(self, dtype: torch.dtype, bias: bool) -> None:
        super().__init__()
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias).to(dtype)
        with torch.no_grad():
            self.lm_head.weight.normal_()

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head


def expected(model: Model, hidden: torch.Tensor, labels: torch.Tensor, transform: HeadTransform) -> Any:
    hidden = hidden.detach().double().requires_grad_()
    weight = model.lm_head.weight.detach().double().requires_grad_()
    bias = None if model.lm_head.bias is None else model.lm_head.bias.detach().double().requires_grad_()
    logits = torch.nn.functional.linear(hidden, weight, bias) * transform.scale
    if transform.softcap:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    scores = (logits / transform.temperature).log_softmax(-1)[:, :-1]
    kept = labels[:, 1:] != IGNORE
    return scores.gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1) * kept, (hidden, weight, bias), kept


def case(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, labels = torch.randn(2, 5, WIDTH).to(dtype), torch.randint(0, VOCABULARY, (2, 5))
    labels[0, :2] = labels[1, 3] = IGNORE
    return hidden.requires_grad_(), labels


def distance(found: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    if found is None or wanted is None:
        return 0.0 if found is wanted else float("inf")
    return float((found.double() - wanted).norm() / wanted.norm())


def head(transform: HeadTransform, rows: int | None, dtype: torch.dtype) -> ChunkedHead:
    """The buffer's rows are padded to 64 elements."""
    budget = None if rows is None else rows * 64 * dtype.itemsize
    return ChunkedHead(transform, budget, kernel="triton")


ROWS = (1, 4, 64, None)
"""Rows of a chunk, of 6."""


def pairs(dtype: torch.dtype, kinds: int) -> Iterator[tuple[HeadTransform, int | None, bool, bool, int]]:
    """Transform, rows of a chunk, whether there is a bias, whether the head is trained, number of the loss: each two values
    of any two of them meet (an orthogonal array: the sum without carry of two bits of others is free of either)."""
    for t, r, bias, trained, kind in itertools.product(range(4), range(4), (0, 1), (0, 1), range(kinds)):
        if dtype != torch.float32 and ROWS[r] != 4:
            continue  # what rounding does has nothing to do with the chunk
        high, low = divmod(t, 2)
        first, second = divmod(r, 2)
        if dtype != torch.float32:
            wanted = (bias, low ^ bias, high ^ bias)
        else:
            wanted = (low ^ second, high ^ first, low ^ first)
        if EVERY or (bias, trained, kind) == (*wanted[:2], wanted[2] % kinds):
            yield list(TRANSFORMS.values())[t], ROWS[r], bool(bias), bool(trained), kind


def worst(ask: Any, dtypes: tuple[torch.dtype, ...], kinds: tuple[Any, ...] = (None,)) -> dict[str, float]:
    """The largest relative error of value and gradients for each type, over transforms, chunks, bias, trained or not."""
    found: dict[str, float] = {}
    for dtype, (transform, rows, bias, trained, kind) in ((d, case) for d in dtypes for case in pairs(d, len(kinds))):
        torch.manual_seed(0)
        model, (hidden, labels) = Model(dtype, bias).requires_grad_(trained), case(dtype)
        value, wanted, leaves = ask(model, hidden, labels, transform, head(transform, rows, dtype), kinds[kind])
        value.backward()
        wanted.backward()
        errors = [distance(value, wanted.detach()), distance(hidden.grad, leaves[0].grad)]
        grads = (model.lm_head.weight.grad, None if model.lm_head.bias is None else model.lm_head.bias.grad)
        errors += [
            distance(*pair)
            for pair in zip(grads, (x.grad if trained and x is not None else None for x in leaves[1:]), strict=True)
        ]
        found[str(dtype)] = max(found.get(str(dtype), 0.0), *errors)
    return found


def losses() -> dict[str, float]:
    formulas = {NLL: lambda x: -x, Focal: lambda x: -((1 - x.exp()) ** 2) * x}

    def ask(model: Any, hidden: Any, labels: Any, transform: Any, head: Any, kind: Any) -> Any:
        scores, leaves, kept = expected(model, hidden, labels, transform)
        wanted = (formulas[kind](scores) * kept).sum()
        value = head.loss_sum(model, hidden, labels, kind())
        with torch.no_grad():
            assert torch.allclose(head.loss_sum(model, hidden, labels, kind()), value, rtol=1e-5)
        return value / 6, wanted / 6, leaves

    return worst(ask, (torch.float32, torch.bfloat16, torch.float16), (NLL, Focal))


def dft() -> dict[str, float]:
    def ask(model: Any, hidden: Any, labels: Any, transform: Any, head: Any, _: Any) -> Any:
        scores, leaves, kept = expected(model, hidden, labels, transform)
        return head.loss_sum(model, hidden, labels, DFT()), -(scores.detach().exp() * scores * kept).sum(), leaves

    return worst(ask, (torch.bfloat16,)) | worst(ask, (torch.float32,))


def logprobs() -> dict[str, float]:
    factors = torch.linspace(-1, 2, 10).view(2, 5)

    def ask(model: Any, hidden: Any, labels: Any, transform: Any, head: Any, _: Any) -> Any:
        scores, leaves, _ = expected(model, hidden, labels, transform.tempered(0.7))
        value = head.logprobs(model, hidden, labels, temperature=0.7)
        assert value.shape == (2, 5)
        assert (value[labels == IGNORE] == 0).all()
        assert (value[:, 0] == 0).all()
        return (value * factors).sum(), (scores * factors[:, 1:]).sum(), leaves

    return worst(ask, (torch.float32, torch.bfloat16))


def entropies() -> dict[str, float]:
    """Log-probabilities and entropies together, each with factors of its own."""
    factors = torch.linspace(-1, 2, 20).view(2, 2, 5)

    def ask(model: Any, hidden: Any, labels: Any, transform: Any, head: Any, _: Any) -> Any:
        _, leaves, kept = expected(model, hidden, labels, transform)
        logits = torch.nn.functional.linear(*leaves) * transform.scale
        if transform.softcap:
            logits = transform.softcap * torch.tanh(logits / transform.softcap)
        scores = (logits / 0.7).log_softmax(-1)[:, :-1]
        logp = scores.gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1) * kept
        entropy = -(scores.exp() * scores).sum(-1) * kept
        value = torch.stack(head.distributions(model, hidden, labels, temperature=0.7))
        return (value * factors).sum(), (torch.stack([logp, entropy]) * factors[..., 1:]).sum(), leaves

    return worst(ask, (torch.float32, torch.bfloat16))


def kernels_agree() -> dict[str, float]:
    """Triton's and torch's work on the same rows, odd vocabularies and rows with padding included."""
    from memcfg_loss.fused import ops, plain

    found = 0.0
    shaped = [(False, smoothing, z_loss) for smoothing in (0.0, 0.1) for z_loss in (0.0, 0.01)]
    for columns, softcap, (dft, smoothing, z_loss) in itertools.product(
        (1, 5, 64, 1000, 20_011), (0.0, 3.0), ((True, 0.0, 0.0), *shaped)
    ):
        if not EVERY and not dft and bool(softcap) ^ bool(smoothing) ^ bool(z_loss):
            continue  # each two values of any two of them meet nevertheless
        torch.manual_seed(columns)
        raw, targets = torch.randn(3, columns) * 3, torch.randint(0, columns, (3,))
        targets[0], targets[1] = 0, columns - 1
        room = torch.full((3, ops.padded(columns)), 7.0)
        padded, own = room[:, :columns], raw.clone()
        padded.copy_(raw)
        values = torch.empty(2, 3)
        options = (1.3, softcap, 0.7, dft, smoothing, z_loss)
        ops.loss_to_gradient_(padded, targets, values[0], *options)
        plain.loss_to_gradient_(own, targets, values[1], *options)
        found = max(found, distance(values[0], values[1].double()) if columns > 1 else 0.0)
        found = max(found, float((padded - own).abs().max()))
        if not dft:
            continue  # the others know no shape
        statistics = torch.empty(2, 4, 3)
        for index, module in enumerate((ops, plain)):
            rows = raw.clone()
            module.row_statistics_(rows, targets, *statistics[index], 1.3, softcap, 0.7)
        found = max(found, float((statistics[0] - statistics[1]).abs().max()))
        coefficient, pull = torch.randn(2, 3)
        for more in ((None, None), (statistics[0, 2], pull)):
            rows = [raw.clone(), raw.clone()]
            ops.logp_to_gradient_(rows[0], targets, statistics[0, 1], coefficient, *more, 1.3, softcap, 0.7)
            plain.logp_to_gradient_(rows[1], targets, statistics[0, 1], coefficient, *more, 1.3, softcap, 0.7)
            found = max(found, float((rows[0] - rows[1]).abs().max()))
    return {"worst": found}


def ties() -> dict[str, Any]:
    """The first of equal maxima is the model's choice."""
    from memcfg_loss.fused import ops

    raw = torch.tensor([[1.0, 3.0, 3.0, 0.0]] * 4)
    hit, rest = torch.empty(4), torch.empty(3, 4)
    ops.row_statistics_(raw, torch.arange(4), rest[0], rest[1], rest[2], hit, 1.0, 0.0, 1.0)
    return {"hit": hit.tolist()}


def weight_sum() -> dict[str, float]:
    """A contribution of 1024 and then 60 of 1, one to a chunk."""
    model = Model(torch.bfloat16, bias=False)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    hidden, labels = torch.ones(1, 62, WIDTH, dtype=torch.bfloat16), torch.zeros(1, 62, dtype=torch.long)
    hidden[:, 0] = 1024
    head(HeadTransform(), 1, torch.bfloat16).loss_sum(model, hidden, labels, NLL()).backward()
    return {"first": model.lm_head.weight.grad[0, 0].item()}


def shapes_only() -> dict[str, Any]:
    """On storage-less tensors the kernels' fake implementations take their place."""
    from memcfg_loss.fused.autograd import distributions, logprobs, loss_sum
    from memcfg_loss.fused.score import Score

    make = {"device": "meta", "dtype": torch.bfloat16}
    hidden, weight = torch.empty(300, 64, **make).requires_grad_(), torch.empty(5000, 64, **make).requires_grad_()
    ids = torch.empty(300, dtype=torch.long, device="meta")
    score = Score(HeadTransform(), "triton", "cuda", NLL(), 1 << 20)
    loss = loss_sum(hidden, weight, ids, score)
    loss.backward()
    logp = logprobs(hidden, weight, ids, score)
    logp.sum().backward()
    sum(value.sum() for value in distributions(hidden, weight, ids, score)).backward()
    return {
        "loss": [str(loss.dtype), list(loss.shape)], "logp": [str(logp.dtype), list(logp.shape)],
        "grads": [list(hidden.grad.shape), str(weight.grad.dtype)],
    }  # fmt: skip


def outcome(name: str) -> dict[str, Any]:
    try:
        return dict(globals()[name]())
    except Exception:
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    print(json.dumps({name: outcome(name) for name in sys.argv[1:] if name != "--every"}))
