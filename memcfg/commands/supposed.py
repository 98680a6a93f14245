"""The card that is planned for where the host has none: a budget says how much memory is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from memcfg.core.cards import CARDS
from memcfg.errors import ConflictError
from memcfg.report.words import wrapped

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

BUDGETS: Final = ("budget", "budget.bytes")
ALIKE: Final = 0.98
"""A card has a budget if its memory is that share of it: 24 GB cards report a little less than 24 GiB."""
OLDEST: Final = 80
"""Capability of the oldest cards that are supposed: they compute in bfloat16."""

NO_GPU: Final = (
    "note: this host has no GPU; `assume.device=h100` plans for one that you name, a budget for one that has it"
)


def composed(
    words: list[str], config_dir: str | None, registry: Registry, say: Callable[..., object]
) -> tuple[Request, Plan]:
    """The request and its plan: for a card where a budget is given on a host without one (`words` gain that card), and with
    the model's configuration fetched where only the network has it."""
    from memcfg.compose import compose

    def again(*more: str) -> tuple[Request, Plan]:
        request = compose([*words, *more], registry=registry, config_dir=config_dir)
        return request, registry.plan(request)

    try:
        request, plan = again()
        card = supposed_card(words, plan)
    except ConflictError:
        with_gpu = plan_with_gpu(words, lambda *more: again(*more)[1])
        if with_gpu is None:
            raise
        budget = with_gpu.get("budget.bytes")
        if budget is None:
            say(*wrapped(NO_GPU, "  ", first=""))
            raise
        card = card_of(words, budget)
    if card is not None:
        say(*wrapped(supposition(card), "  ", first=""))
        words.append(f"assume.device={card}")
        request, plan = again()
    if plan.pending:
        from memcfg.planner.config import fetch

        if fetch(plan):
            return again()
    return request, plan


def plan_with_gpu(words: Sequence[str], plan: Callable[..., Plan]) -> Plan | None:
    """The plan of a request that is a conflict only because this host has no GPU, as offloading is; else None."""
    from memcfg.core.facts import device_type

    if device_type({}) != "cpu" or any(word.lstrip("+").startswith("assume.device=") for word in words):
        return None
    try:
        return plan("assume.device=h100")
    except ConflictError:
        return None


def supposed_card(words: Sequence[str], plan: Plan) -> str | None:
    """The card to plan for: that of the budget, where this host has no GPU and none was assumed; else None."""
    budget = plan.get("budget.bytes")
    if plan.device != "cpu" or "device.type" in plan.assumed or budget is None:
        return None
    return card_of(words, budget)


def card_of(words: Sequence[str], budget: int) -> str:
    """The card that the budget names, or the smallest that has so much memory."""
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
