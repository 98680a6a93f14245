"""`assume.device=h100`: the facts of an accelerator that is not there, by its name."""

from __future__ import annotations

from typing import Any

from memcfg.compose.spelling import nearest
from memcfg.compose.vocabulary import ASSUME
from memcfg.errors import Problem, RequestError

HOST = "cpu"


def card_facts(name: Any, said: str) -> dict[str, Any]:
    """What the name stands for, by key. Raises `RequestError` for a card that is not known."""
    from memcfg.core.cards import CARDS

    if name == HOST:
        return {f"{ASSUME}device.type": "cpu", f"{ASSUME}device.capability": 0, "device.name": HOST}
    card = CARDS.get(name.lower()) if isinstance(name, str) else None
    if card is None:
        known = (HOST, *sorted(CARDS))
        close = tuple(f"assume.device={other}" for other in nearest(str(name), known))
        text = f"no card of this name is known; known are {', '.join(known)}"
        fix = "for another, state its facts: `assume.device.type=cuda assume.device.capability=90`"
        raise RequestError(Problem(text, key=said, nearest=close, fix=fix))
    return {
        f"{ASSUME}device.type": "cuda", f"{ASSUME}device.capability": card.capability, "device.name": name.lower(),
    }  # fmt: skip
