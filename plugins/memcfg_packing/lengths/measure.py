"""From a request to the lengths of its documents: the same hooks as training, with nothing cut and nothing packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memcfg import rows

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry

Ints = npt.NDArray[np.int64]

UNCUT = ("packing=none", "truncation=none", "batching=rows", "data.streaming=false")
"""Appended to the request: what measuring must not do, or must."""
SAMPLE = 10_000
"""Rows whose text is tokenised a second time, without template and special tokens."""


@dataclass(frozen=True)
class Measured:
    """`lengths`: tokens in each document as training would see it, int64 [N]. `bare` and `dressed`: the same of a sample
    of rows without and with template and special tokens (empty where rows are token ids already). `longest`: the longest
    document that the tokenizer says its model takes, where it says so."""

    lengths: Ints
    bare: Ints
    dressed: Ints
    longest: int | None


def measure(overrides: Sequence[str], registry: Registry, config_dir: str | None = None) -> tuple[Measured, Plan]:
    """The lengths for a request, and the plan as requested. Raises what resolving, loading and tokenising raise."""
    from memcfg.compose import resolve
    from memcfg.engine.ledger import Ledger

    plan = resolve(overrides, registry=registry, config_dir=config_dir)
    uncut = resolve([*overrides, *UNCUT], registry=registry, config_dir=config_dir)
    registry.preflight(uncut)
    hooks = registry.hooks(uncut)
    tokenizer = hooks.load_tokenizer(plan=uncut)
    raw = hooks.load_dataset(plan=uncut, split="train", ledger=Ledger())
    prepared = hooks.prepare_dataset(plan=uncut, dataset=raw, tokenizer=tokenizer, ledger=Ledger(), split="train")
    bare, dressed = _undressed(hooks, uncut, raw, tokenizer)
    limit = getattr(tokenizer, "model_max_length", None)
    return Measured(documents(prepared), bare, dressed, limit if limit and limit < 10**7 else None), plan


def documents(prepared: Any) -> Ints:
    """Tokens in each document of prepared rows."""
    from memcfg import ragged

    if "seq_lengths" not in prepared.column_names:
        return rows.lengths(prepared)
    column = ragged.of(prepared, ["seq_lengths"])["seq_lengths"]
    counts = column.lengths
    sizes = column.gather(np.arange(len(counts)), np.zeros_like(counts), counts)
    return np.asarray(sizes.to_numpy(), np.int64)


def _undressed(hooks: Any, plan: Plan, raw: Any, tokenizer: Any) -> tuple[Ints, Ints]:
    """Lengths of a sample of rows without and with everything that is no text of theirs."""
    from memcfg.engine.ledger import Ledger

    nothing = np.zeros(0, np.int64)
    if "input_ids" in raw.column_names:
        return nothing, nothing
    sample = raw.select(np.unique(np.linspace(0, len(raw) - 1, min(SAMPLE, len(raw)), dtype=np.int64)))
    given = [texts(row) for row in sample]
    flat = [text for texts_ in given for text in texts_]
    if not flat:
        return nothing, nothing
    ids = tokenizer(flat, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    sizes = np.array([len(found) for found in ids])
    owners = np.repeat(np.arange(len(given)), [len(texts_) for texts_ in given])
    bare = np.bincount(owners, weights=sizes, minlength=len(given)).astype(np.int64)
    dressed = hooks.prepare_dataset(plan=plan, dataset=sample, tokenizer=tokenizer, ledger=Ledger(), split="train")
    return bare, documents(dressed)


def texts(value: Any, key: str = "") -> list[str]:
    """What was written in a row: its strings and the contents of its messages."""
    if isinstance(value, str):
        return [value] if key not in ("role", "name") else []
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    if isinstance(value, dict):
        named = ("content",) if "role" in value else tuple(name for name in value if name != "tools")
        return [text for name in named for text in texts(value.get(name), name)]
    return []
