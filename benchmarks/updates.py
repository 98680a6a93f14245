"""A plan's own update on full rows, timed and weighed: what the benchmarks of single steps share.

`build`, `gradients` and `step` are the engine's own. Without a GPU there are times and losses, and peaks are 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

GIB = 1 << 30


def ready(words: Sequence[str]) -> tuple[Any, Any]:
    """The plan for these choices and its hooks, with everything loaded that its step needs and the GPU untouched."""
    import datasets  # noqa: F401
    import torch  # noqa: F401
    import transformers.models  # noqa: F401

    import memcfg
    from memcfg.engine import build, update  # noqa: F401
    from memcfg.registry import load

    registry = load()
    plan = memcfg.resolve(words, registry=registry)
    if plan["peft.method"] != "none":
        import peft  # noqa: F401
    return plan, registry.hooks(plan)


@dataclass(frozen=True)
class Once:
    """One update: milliseconds, the loss before it (None where it was not asked for), and the most bytes that it had allocated
    and reserved."""

    ms: float
    loss: float | None
    allocated: int
    reserved: int


@dataclass(frozen=True)
class Subject:
    """A built run and the micro-batches of its step."""

    run: Any
    batches: list[Any]
    count: Any

    @classmethod
    def built(cls, plan: Any, hooks: Any, rows: Any = None) -> Subject:
        """`rows(lengths, words)` makes rows for documents of these lengths out of so many words; else they are what the
        simulator takes."""
        from memcfg.engine.build import build
        from memcfg.engine.update import counted
        from memcfg.planner.batches import full_rows, micro_batches

        run = build(plan, hooks, data=False)
        words = run.model.config.get_text_config().vocab_size
        made = {"rows": lambda lengths: rows(lengths, words)} if rows else hooks.simulation(plan=plan, stands_in={})
        batches = micro_batches(plan, hooks, run.tokenizer, run.layout, made, full_rows(plan))
        return cls(run, batches, counted(run.objective, batches))

    def once(self, losses: bool = False) -> Once:
        """One update, from the moment that its batches leave the host. What is kept for `losses` would count in the peak."""
        from memcfg.engine.update import gradients, step

        run = self.run
        forget_peak()
        began = now()
        placed = [batch.to(run.plan.device) for batch in self.batches]
        result = gradients(run.model, placed, run.objective, contexts=run.contexts, denominator=self.count)
        loss = result.loss if losses else None
        del result
        step(run.model, run.optimizer, max_grad_norm=run.plan.get("run.max_grad_norm"))
        ms = 1e3 * (now() - began)
        return Once(ms, None if loss is None else float(loss), *peak())


def now() -> float:
    """Seconds on a clock, once the GPU has done what it was given."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def forget_peak() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak() -> tuple[int, int]:
    """The most bytes that were allocated and reserved since the peak was forgotten."""
    import torch

    if not torch.cuda.is_available():
        return 0, 0
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def in_use() -> tuple[int, int]:
    """Bytes of the card that are in use now, by whomever, and all that it has; zeros without one."""
    import torch

    if not torch.cuda.is_available():
        return 0, 0
    free, total = torch.cuda.mem_get_info()
    return total - free, total


def versions() -> dict[str, Any]:
    """What a result was measured with."""
    import torch

    return {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
