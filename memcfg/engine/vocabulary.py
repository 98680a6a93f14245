"""Token ids that the model has no embedding for, found before they reach it: a GPU would only say that an assertion failed.

Ids that the run's own tokenizer made need no look where the model has as many embeddings as the tokenizer has tokens.
Those that rows brought along do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from memcfg import ragged
from memcfg.batch import Documents
from memcfg.errors import DataError, Problem

if TYPE_CHECKING:
    import torch

    from memcfg.engine.loader import Collator

COLUMNS = ("input_ids", "labels")
FIX = "use the tokenizer that belongs to the model, or resize the model's embeddings"


def trusted(columns: Iterable[str], tokenizer: Any, vocabulary: int) -> bool:
    """Whether raw rows of these columns can only become ids that the model knows."""
    return "input_ids" not in columns and tokenizer is not None and len(tokenizer) <= vocabulary


def embedding(model: torch.nn.Module) -> Any:
    """The layer that knows the ids, without the adapter that it may lie in."""
    layer: Any = model.get_input_embeddings()  # type: ignore[operator]
    for inside in ("original_module", "base_layer"):
        layer = getattr(layer, inside, layer)
    return layer


def size(model: torch.nn.Module) -> int:
    """How many ids the model knows. The parameter itself may be a shard."""
    return int(embedding(model).num_embeddings)


def check(rows: Any, split: str, vocabulary: int) -> None:
    """Raise `DataError` for the first prepared row with an id or a label outside of the vocabulary."""
    for name, column in ragged.of(rows, [n for n in COLUMNS if n in rows.column_names]).items():
        if all(_most(values) < vocabulary for _, values in column.parts()):
            continue
        lengths = column.lengths
        for row in range(len(lengths)):
            most = _most(column.gather(np.array([row]), np.zeros(1, np.int64), lengths[row : row + 1]))
            if most >= vocabulary:
                raise _outside(f"row {row + 1} of the prepared {split} rows", name, most, vocabulary)


def checked(collator: Collator, vocabulary: int) -> Collator:
    """The collator of a stream, whose rows are looked at as they come. Its `DataError` counts within the micro-batch."""

    def collate(rows: list[dict[str, Any]]) -> Documents:
        documents = collator(rows)
        for name in COLUMNS:
            for index, values in enumerate(getattr(documents, name)):
                if len(values) and int(values.max()) >= vocabulary:
                    raise _outside(f"document {index + 1} of a micro-batch", name, int(values.max()), vocabulary)
        return documents

    return collate


def _most(values: Any) -> int:
    found = pc.max(values).as_py()
    return -1 if found is None else int(found)


def _outside(where: str, column: str, found: int, vocabulary: int) -> DataError:
    text = f"{where} holds {found:,} in `{column}`, and the model's vocabulary ends at {vocabulary - 1:,}"
    return DataError(Problem(text, fix=FIX))
