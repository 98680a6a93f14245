"""One optimizer step of a tiny model through the engine itself, and the comparison of two."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

    from memcfg.engine.build import Run
    from memcfg.registry.registry import Registry

TEXTS: Final = (
    "Return the sum of two numbers.", "x = 1", "def add(a, b):\n    return a + b", "A short line of text.",
    "Open the file, read every line, close the file again and return the lines that were read.", "import os",
)  # fmt: skip
"""Rows of very different lengths."""

TINY: Final = (
    "model.dtype=float32", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=3", "run.batch_size=3",
)  # fmt: skip


@dataclass(frozen=True)
class Update:
    """What one step did: its mean loss, the gradient and then the value of each parameter by name, and the gradient norm."""

    loss: float
    gradients: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]
    norm: float


def first_update(
    overrides: Sequence[str] = (), *, texts: Sequence[str] = TEXTS * 2, registry: Registry | None = None
) -> Update:  # fmt: skip
    """The first step of the run that these overrides describe, on a tiny model and on `texts`, in float32.

    It is what training does: the engine's `build`, its loader, `gradients` and `step`. Parameters that start at zero (an
    adapter's second matrix) are given small values first, so that what they multiply has a gradient too."""
    from memcfg.compose.request import resolve
    from memcfg.engine.build import build
    from memcfg.registry.registry import load

    registry = registry or load()
    with tempfile.TemporaryDirectory(prefix="memcfg-testing-") as folder:
        rows = Path(folder, "rows.jsonl")
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        data = ["data=jsonl", f"data.path={rows}"]
        plan = resolve([*data, *TINY, *overrides], registry=registry)
        return update_of(build(plan, registry.hooks(plan)))


def update_of(run: Run) -> Update:
    """The first step of a built run."""
    from memcfg.engine.loader import MicroBatches, StepLoader
    from memcfg.engine.update import gradients, step

    plan = run.plan
    _fill_zeros(run.model)
    assert run.collator is not None
    batches = MicroBatches(run.train, run.collator, run.layout, plan["run.batch_size"], grouping=run.grouping)
    loader = StepLoader(batches, accumulation=plan["run.accumulation"], seed=plan["run.seed"])
    placed = [batch.to(run.device) for batch in loader.at(0, 0)]
    result = gradients(run.model, placed, run.objective, contexts=run.contexts)
    named = dict(run.model.named_parameters())
    found = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
    norm = step(run.model, run.optimizer, max_grad_norm=plan.get("run.max_grad_norm"))
    return Update(float(result.loss), found, {name: p.detach().clone() for name, p in named.items()}, float(norm))


def _fill_zeros(model: torch.nn.Module) -> None:
    import torch

    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.is_floating_point() and not parameter.any():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.data.copy_(values)


Step = Update | Sequence[str]


def assert_same_training(
    update: Step, reference: Step = (), *, tolerance: float = 2e-6, weights: bool = False, **options: Any
) -> None:  # fmt: skip
    """Fail unless a technique trains as its reference does: the same loss and the same gradients of the same parameters,
    and with `weights` the same parameters after the step.

    Each is the overrides of a run (see `first_update`, which takes `options`) or what `first_update` gave. `tolerance` is
    absolute, for float32. Most gradients must be other than zero: a comparison of nothing is no comparison."""
    ours, plain = (s if isinstance(s, Update) else first_update(s, **options) for s in (update, reference))
    if abs(ours.loss - plain.loss) > tolerance:
        raise AssertionError(f"the loss is {ours.loss}, and that of the reference {plain.loss}")
    _same_names(ours.gradients, plain.gradients)
    moved = sum(bool(gradient.any()) for gradient in plain.gradients.values())
    if moved <= 0.9 * len(plain.gradients):
        raise AssertionError(f"only {moved} of {len(plain.gradients)} gradients of the reference are not zero")
    _close("gradient", ours.gradients, plain.gradients, tolerance)
    if weights:
        _same_names(ours.weights, plain.weights)
        _close("value after the step", ours.weights, plain.weights, tolerance)


def _same_names(ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> None:
    if odd := sorted(ours.keys() ^ plain.keys()):
        raise AssertionError(f"only one of the two has {odd}")


def _close(what: str, ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, tensor in plain.items():
        off = float((ours[name].float() - tensor.float()).abs().max()) if tensor.numel() else 0.0
        if not off <= tolerance:
            raise AssertionError(f"the {what} of `{name}` differs by {off:.3g} (at most {tolerance:.3g} is allowed)")
