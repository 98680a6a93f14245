"""The account of tokens and rows: what was read, kept, cut, dropped, padded and supervised, and why.

Plugins that prepare data write into it; `tokens_in == tokens_kept + tokens_truncated + tokens_dropped` always holds once
preparation is over (`balance` gives the difference)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from memcfg.errors import DataError, Problem


@dataclass
class Ledger:
    """Counts over one pass of one split, and what its micro-batches added.

    `tokens_in`: read, after tokenising. `tokens_kept`: left after cutting, dropping and packing. `tokens_truncated`:
    cut off a row that stays. `tokens_dropped`: in rows that were dropped. `tokens_supervised`: kept tokens that are
    targets. `rows_in`, `rows_dropped`: documents. `reasons`: dropped rows by reason. `bins`: packed rows. `fill`: share
    of positions that hold a token, set by the packer or else measured on the training batches from `tokens_seen`
    (tokens in them) and `tokens_padded` (padding in them). `notes`: sentences that a reader of the counts should know."""

    tokens_in: int = 0
    tokens_kept: int = 0
    tokens_truncated: int = 0
    tokens_dropped: int = 0
    tokens_supervised: int = 0
    rows_in: int = 0
    rows_dropped: int = 0
    bins: int = 0
    tokens_seen: int = 0
    tokens_padded: int = 0
    fill: float | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        """Add to counters by name. A name that is no counter is a programming error."""
        for name, count in counts.items():
            if name not in COUNTERS:
                raise TypeError(f"`{name}` is no counter of the ledger; there are {', '.join(COUNTERS)}")
            setattr(self, name, getattr(self, name) + int(count))

    def drop(self, reason: str, rows: int, tokens: int) -> None:
        """Count rows that were dropped, with all their tokens. `reason` is a short clause: "no target left"."""
        if rows:
            self.add(rows_dropped=rows, tokens_dropped=tokens)
            self.reasons[reason] += int(rows)

    def told(self) -> str:
        """Why rows were dropped, in words; nothing where none was."""
        return ", ".join(f"{count} rows: {reason}" for reason, count in self.reasons.items())

    @property
    def balance(self) -> int:
        """Tokens that were read but are accounted for nowhere: zero, or the preparation has a fault."""
        return self.tokens_in - self.tokens_kept - self.tokens_truncated - self.tokens_dropped

    def check(self, split: str) -> None:
        """Raises `DataError` where the account does not balance."""
        if self.balance:
            text = f"the preparation lost account of {self.balance} of {self.tokens_in} tokens of the {split} rows"
            raise DataError(Problem(text, key="ledger", fix="report this: a plugin that prepares data counts wrongly"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `ledger.json`; `fill` is null where nothing was packed or laid out yet. `padding_share`: how much of
        the training batches was padding."""
        positions = self.tokens_seen + self.tokens_padded
        padding = self.tokens_padded / positions if positions else None
        measured = None if padding is None else 1 - padding
        return {name: getattr(self, name) for name in COUNTERS} | {
            "padding_share": padding,
            "fill": measured if self.fill is None else self.fill,
            "reasons": dict(self.reasons),
            "notes": list(self.notes),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything in it, as plain data."""
        return {name: getattr(self, name) for name in (*COUNTERS, "fill")} | {
            "reasons": dict(self.reasons),
            "notes": list(self.notes),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be as it was when the state was taken."""
        for name, value in state.items():
            setattr(self, name, Counter(value) if name == "reasons" else list(value) if name == "notes" else value)


COUNTERS = tuple(f.name for f in fields(Ledger) if f.name not in ("fill", "reasons", "notes"))
"""The names that `Ledger.add` takes."""
