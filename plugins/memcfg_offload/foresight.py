"""What the longest rows of a run will take of the host, told from what the first micro-batch took."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import pyarrow.compute as compute

from memcfg import ragged, rows
from memcfg_offload.host import CHUNK

if TYPE_CHECKING:
    from memcfg import Plan
    from memcfg_offload.context import Offload


def longest(run: Any) -> int | None:
    """Tokens of the longest prepared row or, where each document has a row of the micro-batch to itself, of the longest
    document. None where rows are a stream, or grow by what is sampled."""
    columns = getattr(run.train, "column_names", None) or ()
    if (
        run.generation is not None
        or "input_ids" not in columns
        or not hasattr(run.train, "__len__")
        or not len(run.train)
    ):
        return None
    if run.first and run.first[0].layout == "padded" and "seq_lengths" in columns:
        documents = _longest_document(run.train)
        if documents >= max(run.first[0].lengths):  # else rows of several documents are laid out as one
            return documents
    return int(rows.lengths(run.train).max())


def _longest_document(train: Any) -> int:
    parts = (values for _, values in ragged.of(train, ["seq_lengths"])["seq_lengths"].parts() if len(values))
    return max((compute.max(values).as_py() for values in parts), default=0)


def foreseen(plan: Plan, run: Any, context: Offload) -> int | None:
    """Bytes that the largest micro-batch will keep outside the device at once, at least; None where nobody can tell.

    What is kept grows with the positions of a micro-batch, and the largest has as many rows as the first, each as long as the
    longest."""
    most = longest(run)
    if most is None or not run.first or not context.mover.stack.peak:
        return None
    count, width = context.largest
    if run.grouping is not None:
        grown = max(plan["batching.tokens"], most) / (count * width)
    elif run.first[0].layout == "flat":
        grown = plan["run.batch_size"] * most / (count * width)
    else:
        grown = most / width
    return math.ceil(context.mover.stack.peak * max(1.0, grown))


def refuse_too_little(size: int, context: Offload) -> None:
    """Raise `RunError` where the host, or the disk, cannot hold `size` bytes for each process on it."""
    stack = context.mover.stack
    more = math.ceil(size / CHUNK) * CHUNK - stack.capacity
    if more > 0:
        stack.refuse(more * int(os.environ.get("LOCAL_WORLD_SIZE", "1")), "activations for the longest rows")
