"""Implementations of the padding plugin's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.batch import Batch, Documents, Layout
from memcfg.engine.evidence import Effective
from memcfg.engine.layout import Paper, joined, lay

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg import Plan


@dataclass(frozen=True)
class PaddedLayout:
    """One row of the data to a row of the batch, padded on the right to the longest. Documents that share a row of the
    data (`wrapped` packing) see each other: they are one sequence."""

    paper: Paper

    def __call__(self, documents: Documents) -> Batch:
        whole = joined(documents)
        return lay(whole, whole.rows, "padded", self.paper)


@hookimpl
def memcfg_layout(plan: Plan, tokenizer: PreTrainedTokenizerBase) -> Layout:
    return PaddedLayout(Paper.of(plan, tokenizer))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The multiple that every width of the first step is divisible by."""
    widths = [batch.input_ids.shape[1] for batch in run.first]
    wanted = plan.get("padding.multiple_of")
    if widths:
        rounded = wanted if wanted is None or all(w % wanted == 0 for w in widths) else None
        found.append(Effective("padding.multiple_of", rounded, f"micro-batches {sorted(set(widths))} tokens wide"))
    return found
