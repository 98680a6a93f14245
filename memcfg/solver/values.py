"""Whether a value fits an option: type, menu, range. Says what to write instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from memcfg.errors import Problem
from memcfg.solver.expr import Option, same, show

_NULL_TEXTS = ("None", "null", "Null", "NULL", "~")
_TRUE_TEXTS = ("true", "on", "yes", "1")
_FALSE_TEXTS = ("false", "off", "no", "0")
_TYPE_NAMES = {
    bool: "`true` or `false`",
    int: "an integer",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a map",
}


class Refused(Exception):
    """The value does not fit. `problem` says why and what to write."""

    def __init__(self, option: Option, text: str, *, nearest: Iterable[str] = (), fix: str | None = None) -> None:
        self.problem = Problem(text, key=option.key, nearest=tuple(nearest), fix=fix)
        super().__init__(str(self.problem))


def closest(word: str, words: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The words that `word` may have been meant to be, best first: near ones, and those whose last part agrees."""
    from difflib import SequenceMatcher  # 3 ms that only a wrong request has to pay

    known, tail = sorted(words), word.rpartition(".")[2]
    tails = {w: w.rpartition(".")[2] for w in known}
    ratios = {w: SequenceMatcher(None, word, w).ratio() for w in known}
    best = max(ratios.values(), default=0.0)
    near = [w for w in known if ratios[w] >= max(0.6, best - 0.1)]
    near += [w for w in known if SequenceMatcher(None, tail, tails[w]).ratio() >= 0.85]
    return tuple(sorted(dict.fromkeys(near), key=lambda w: (-ratios[w], w))[:limit])


def accept(option: Option, value: Any) -> Any:
    """The value as the option holds it (an integer where a float is wanted becomes one). Raises `Refused`."""
    if value is None:
        return _null(option)
    if isinstance(value, str) and option.nullable and value in _NULL_TEXTS and value not in option.values:
        raise Refused(option, f"the text `{value}` is not null", fix=f"write `{option.key}=null`")
    if option.kind == "setting":
        value = _typed(option, value)
        _ranged(option, value)
        _finite(option, value, "")
        return _listed(option, value) if option.values else value
    if option.kind == "int":
        value = _integer(option, value)
        _ranged(option, value)
        return value
    return _boolean(option, value) if option.kind == "bool" else _listed(option, value)


def _null(option: Option) -> None:
    if option.nullable:
        return
    fix = f"write `{option.key}=none`" if "none" in option.values else f"leave it out: `~{option.key}`"
    raise Refused(option, "cannot be `null`", fix=fix)


def _shown(option: Option, value: Any) -> str:
    return "***" if option.secret else show(value)


def _boolean(option: Option, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = show(value).lower()
    truth = "true" if word in _TRUE_TEXTS else "false" if word in _FALSE_TEXTS else None
    fix = f"write `{option.key}={truth}`" if truth else None
    raise Refused(option, f"`{_shown(option, value)}` is neither `true` nor `false`", fix=fix)


def _listed(option: Option, value: Any) -> Any:
    if type(value) is str and (value in option.values or (option.open and option.role == "fact")):
        return value  # nearly every value of a rule or a request, and far faster
    if any(same(value, v) for v in option.values):
        return value
    menu = [show(v) for v in option.values]
    text = f"`{_shown(option, value)}` is not one of {', '.join(f'`{m}`' for m in menu)}"
    raise Refused(option, text, nearest=closest(show(value), menu))


def _integer(option: Option, value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str):
        text = f"is the text `{_shown(option, value)}`, not an integer"
        raise Refused(option, text, fix=None if option.secret else _number_fix(option, value.strip()))
    text = f"`{_shown(option, value)}` is not an integer"
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    raise Refused(option, text, fix=f"write `{option.key}={int(value)}`" if whole else None)


def _number_fix(option: Option, text: str) -> str | None:
    digits = text.replace("_", "").removeprefix("-")
    return f"write the number without quotes: `{option.key}={text.replace('_', '')}`" if digits.isdigit() else None


LARGEST = 2**63 - 1
"""The largest integer that tables and tensors hold."""


def _ranged(option: Option, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    unit = f" ({option.unit})" if option.unit else ""
    if not math.isfinite(value):
        raise Refused(option, f"`{_shown(option, value)}` is not a finite number")
    if isinstance(value, int) and option.maximum is None and value > LARGEST:
        raise Refused(option, f"`{_shown(option, value)}` is too large: at most {LARGEST}{unit}")
    if option.minimum is not None and not value >= option.minimum:
        raise Refused(option, f"`{_shown(option, value)}` is too small: at least {show(option.minimum)}{unit}")
    if option.maximum is not None and not value <= option.maximum:
        raise Refused(option, f"`{_shown(option, value)}` is too large: at most {show(option.maximum)}{unit}")


def _finite(option: Option, value: Any, where: str) -> None:
    """Refuse what is no finite number somewhere in a list or a map."""
    if isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            _finite(option, part, f"{where}[{place}]")
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _finite(option, part, f"{where}.{name}" if where else str(name))
    elif isinstance(value, float) and not math.isfinite(value):
        raise Refused(option, f"its `{where}` is `{_shown(option, value)}`, not a finite number")


def _typed(option: Option, value: Any) -> Any:
    """A setting's value, of one of its types."""
    types = option.type if isinstance(option.type, tuple) else (option.type,)
    if Any in types or object in types or type(value) in types:
        return value
    if float in types and type(value) is int:
        return float(value)
    if any(t not in _TYPE_NAMES and isinstance(t, type) and isinstance(value, t) for t in types):
        return value
    if option.values:
        return _listed(option, value)  # no other type helps: the values can be told
    wanted = " or ".join(_TYPE_NAMES.get(t, getattr(t, "__name__", str(t))) for t in types)
    raise Refused(option, f"`{_shown(option, value)}` is not {wanted}", fix=_typed_fix(option, types, value))


def _typed_fix(option: Option, types: tuple[Any, ...], value: Any) -> str | None:
    if option.secret:
        return None
    if isinstance(value, str) and (int in types or float in types):
        try:
            float(value)
        except ValueError:
            return None
        return f"write the number without quotes: `{option.key}={value.strip()}`"
    if isinstance(value, str) and bool in types:
        word = value.lower()
        truth = "true" if word in _TRUE_TEXTS else "false" if word in _FALSE_TEXTS else None
        return f"write `{option.key}={truth}`" if truth else None
    if isinstance(value, float) and int in types and value.is_integer():
        return f"write `{option.key}={int(value)}`"
    if str in types and not isinstance(value, (list, dict)):
        return f"quote it: `{option.key}=\"'{show(value)}'\"`"
    return None
