"""The card that is planned for where the host has none: a budget says how much memory is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memcfg.core.cards import CARDS

if TYPE_CHECKING:
    from memcfg.plan import Plan

BUDGETS: Final = ("budget", "budget.bytes")
ALIKE: Final = 0.98
"""A card has a budget if its memory is that share of it: 24 GB cards report a little less than 24 GiB."""
OLDEST: Final = 80
"""Capability of the oldest cards that are supposed: they compute in bfloat16."""


def supposed_card(words: Sequence[str], plan: Plan) -> str | None:
    """The card to plan for: that of the budget, where this host has no GPU and none was assumed; else None."""
    budget = plan.get("budget.bytes")
    if plan.device != "cpu" or "device.type" in plan.assumed or budget is None:
        return None
    said = [word.partition("=")[2].lower() for word in words if word.lstrip("+").partition("=")[0] in BUDGETS]
    return said[-1] if said and said[-1] in CARDS else nearest_card(budget)


def nearest_card(budget: int) -> str:
    """The smallest card that has so much memory; the largest of all where none has."""
    cards = sorted((known.memory, name) for name, known in CARDS.items() if known.capability >= OLDEST)
    return next((name for memory, name in cards if memory >= ALIKE * budget), cards[-1][1])


def supposition(card: str) -> str:
    """What is said of it."""
    memory = CARDS[card].memory / 2**30
    return (
        f"note: this host has no GPU; supposing `assume.device={card}` ({memory:.2f} GiB). "
        "`assume.device=cpu` means this host"
    )
