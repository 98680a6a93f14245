"""Micro-batches of the size that a plan asks for, without any data.

Rows are as long as the plan allows, which is what a run has to survive. They go through the trainer's own collator and
layout. A trainer whose rows have other columns makes them itself, as the stand-in `rows` of `memcfg_simulation`: a function
of a list of lengths (the documents of each row of the micro-batch) that returns rows. Where each of its rows becomes several
documents, the stand-in `documents` says how many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import Problem, RequestError

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks

Lengths = Sequence[Sequence[int]]
"""For each row the lengths of its documents."""

DOCUMENTS: Final = 8
"""Documents in a packed row of which nothing else is known."""

ROWS: Final = "rows"
EACH: Final = "documents"


def full_rows(plan: Plan, each: int = 1) -> Lengths:
    """A micro-batch of rows as long as they may be, or as full as its budget of tokens allows; `each` prepared row becomes
    so many. Raises `RequestError` where the plan knows no longest row."""
    length = plan.get("truncation.max_length")
    if length is None:
        text = "without a longest row there is no largest micro-batch to predict"
        raise RequestError(Problem(text, key="truncation.max_length", fix="truncation.max_length=4096"))
    if plan.get("batching.mode") == "tokens":
        count = each * -(-plan["batching.tokens"] // (each * length))
        return [[plan["batching.tokens"] // count]] * count
    packed = plan.get("packing.strategy", "none") != "none"
    row = parts(length, DOCUMENTS) if packed else [length]
    return [row] * (each * plan["run.batch_size"])


def parts(length: int, count: int) -> list[int]:
    """Uneven lengths that add up to `length`, the same ones each time."""
    weights = [1 + (7 * i) % 5 for i in range(min(count, length))]
    sizes = [max(1, length * weight // sum(weights)) for weight in weights]
    sizes[-1] += length - sum(sizes)
    return sizes if sizes[-1] > 0 else [length]


def micro_batches(
    plan: Plan, hooks: Hooks, tokenizer: Any, layout: Any, stand_ins: Mapping[str, Any],
    lengths: Lengths | None = None,
) -> list[Batch]:  # fmt: skip
    """One step's micro-batches on the CPU, all alike: of rows with documents of these lengths, or as long as they may be."""
    from memcfg.engine.layout import laid

    make: Callable[[Lengths], list[dict[str, Any]]] = stand_ins.get(ROWS, plain_rows)
    collator = hooks.collator(plan=plan, tokenizer=tokenizer)
    lengths = full_rows(plan, stand_ins.get(EACH, 1)) if lengths is None else lengths
    return [laid(layout, collator(make(lengths))) for _ in range(plan["run.accumulation"])]


def plain_rows(lengths: Lengths) -> list[dict[str, Any]]:
    """Rows of one token id, all of them targets."""
    import torch

    rows = []
    for documents in lengths:
        ids = torch.ones(sum(documents), dtype=torch.long)
        row: dict[str, Any] = {"input_ids": ids, "labels": ids}
        rows.append(row | ({"seq_lengths": list(documents)} if len(documents) > 1 else {}))
    return rows


class Tokenizer:
    """Stands in for a tokenizer of which only the padding is asked; anything else is asked of the real one."""

    pad_token_id = eos_token_id = 0

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._load(), name)

    def batch_decode(self, ids: Sequence[Any], **_: Any) -> list[str]:
        """Nobody reads what a simulation samples."""
        return [""] * len(ids)
