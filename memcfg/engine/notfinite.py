"""A loss that is not finite, told by the rows that made it.

`not_finite.json` in the run folder shows the micro-batches at fault as the model saw them: the numbers of their prepared
rows, and each document's text, tokens and how many of them are targets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.batch import IGNORE
from memcfg.errors import Problem, RunError
from memcfg.files import write_atomic

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.engine.update import StepResult

FILE: Final = "not_finite.json"
NAMED: Final = 8
"""Rows that the message names."""
ADVICE: Final = "a lower `run.learning_rate`, a longer `run.warmup_steps` or another `model.dtype` may help"


def error(step: int, result: StepResult, batches: Sequence[Batch], folder: Path, tokenizer: Any) -> RunError:
    """What to raise for this step; the rows at fault are written down."""
    losses = [float(part) for part in result.parts]
    known = len(losses) == len(batches)
    wrong = [(loss, b) for loss, b in zip(losses, batches, strict=True) if not math.isfinite(loss)] if known else []
    text = f"the loss of step {step} is {float(result.loss)}"
    if not wrong:
        return RunError(Problem(text, key="run.learning_rate", fix=ADVICE))
    numbers = [number for _, batch in wrong for number in (batch.source.numbers if batch.source else ())]
    said = {"step": step, "micro_batches": [{"loss": str(loss)} | shown(batch, tokenizer) for loss, batch in wrong]}
    file = write_atomic(folder / FILE, json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    if len(wrong) < len(batches):
        text += f", through {len(wrong)} of its {len(batches)} micro-batches"
    return RunError(Problem(f"{text}: {_rows(numbers)}", key="run.learning_rate", fix=f"`{file}` shows them; {ADVICE}"))


def shown(batch: Batch, tokenizer: Any) -> dict[str, Any]:
    """A micro-batch's rows and documents, as plain data."""
    documents = []
    for index in range(int(batch.document_ids.max()) + 1):
        own = batch.document_ids == index
        ids = batch.input_ids[own].tolist()
        text = tokenizer.decode(ids) if tokenizer is not None else None
        documents.append({"text": text, "tokens": ids, "targets": int((batch.labels[own] != IGNORE).sum())})
    return {"rows": list(batch.source.numbers) if batch.source else [], "documents": documents}


def _rows(numbers: Sequence[int]) -> str:
    named = ", ".join(str(number) for number in numbers[:NAMED])
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return f"prepared {'row' if len(numbers) == 1 else 'rows'} {named}{more}"
