"""The finite set of symbols that stands for an option while solving.

A bool or an enum has its menu. An integer has the values that rules name, and one `Interval` for each stretch between
the cuts that rules make: no rule can tell two numbers of one stretch apart, so one symbol serves for all of them and
the number itself is kept beside the solver. `None` is a symbol where the option is nullable, `UNSET` where an option
may end up without a value, `OTHER` where a fact may have a value that no rule names.

Sets of symbols are integers used as bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memcfg.solver.expr import UNSET, Option, show


@dataclass(frozen=True)
class Interval:
    """The integers `low <= n <= high`; an open end is `None`."""

    low: int | None
    high: int | None

    def __contains__(self, number: int) -> bool:
        return (self.low is None or self.low <= number) and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return "any number" if self.high is None else f"at most {self.high}"
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"

    def nearest(self, number: int | None) -> int:
        """The member that is closest to `number`; without one, an end."""
        if number is not None and number in self:
            return number
        if self.low is not None and (self.high is None or number is None or number < self.low):
            return self.low
        return self.high if self.high is not None else 0


@dataclass(frozen=True)
class Other:
    """Any value that no rule names."""

    def __str__(self) -> str:
        return "something else"


OTHER: Final = Other()


class Domain:
    """The symbols of one option, each with its bit."""

    def __init__(self, key: str, symbols: Iterable[Any]) -> None:
        self.key = key
        self.symbols = tuple(symbols)
        self.full = (1 << len(self.symbols)) - 1
        self._bits = {_identity(s): 1 << i for i, s in enumerate(self.symbols)}
        self._intervals = [(s, 1 << i) for i, s in enumerate(self.symbols) if isinstance(s, Interval)]
        self._numbers = [(s, 1 << i) for i, s in enumerate(self.symbols) if type(s) is int]

    def bit(self, value: Any) -> int:
        """The bit of a concrete value; 0 if it is not in the domain."""
        found = self._bits.get(_identity(value))
        if found is not None:
            return found
        if type(value) is int:
            return next((bit for interval, bit in self._intervals if value in interval), 0)
        return self._bits.get(_identity(OTHER), 0) if type(value) is str else 0

    def mask(self, values: Iterable[Any]) -> int:
        bits = 0
        for value in values:
            bits |= self.bit(value)
        return bits

    def between(self, low: int | None, high: int | None) -> int:
        """The numbers from `low` to `high`, which are cuts of this domain (or open)."""
        stretch = Interval(low, high)
        bits = sum(bit for number, bit in self._numbers if number in stretch)
        for interval, bit in self._intervals:
            inner = interval.low if interval.low is not None else interval.high
            if _inside(interval, stretch) and (inner is None or inner in stretch):
                bits |= bit
        return bits

    def symbols_of(self, mask: int) -> list[Any]:
        return [s for i, s in enumerate(self.symbols) if mask >> i & 1]

    def symbol(self, mask: int) -> Any:
        """The symbol of a mask with one bit."""
        return self.symbols[mask.bit_length() - 1]

    def describe(self, mask: int) -> str:
        """The set in words: "`a`", "`a` or `b`"."""
        names = [str(s) if isinstance(s, (Interval, Other)) else f"`{show(s)}`" for s in self.symbols_of(mask)]
        return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def _inside(inner: Interval, outer: Interval) -> bool:
    below = outer.low is None or (inner.low is not None and inner.low >= outer.low)
    return below and (outer.high is None or (inner.high is not None and inner.high <= outer.high))


def _identity(value: Any) -> tuple[type, Any]:
    """A dictionary key that keeps `True` and `1` apart."""
    return type(value), value


def domain_of(option: Option, *, named: Sequence[Any] = (), cuts: Iterable[int] = (), unset: bool) -> Domain:
    """The domain of an option: `named` are the values that rules name, `cuts` where their comparisons begin and end."""
    symbols: list[Any] = [UNSET] if unset else []
    if option.nullable:
        symbols.append(None)
    if option.kind == "int":
        numbers = {v for v in named if type(v) is int}
        symbols += _stretches(option, numbers | {n + 1 for n in numbers} | set(cuts))
    else:
        symbols += option.values
        if option.role == "fact" and option.open:
            symbols += sorted({v for v in named if type(v) is str} - set(option.values))
            symbols.append(OTHER)
    return Domain(option.key, symbols)


def _stretches(option: Option, cuts: set[int]) -> list[Any]:
    """The integers of the option's range, cut at the start of each stretch."""
    low = None if option.minimum is None else int(option.minimum)
    top = None if option.maximum is None else int(option.maximum)
    starts = sorted(c for c in cuts if (low is None or c > low) and (top is None or c <= top))
    ends = [c - 1 for c in starts]
    stretches = zip([low, *starts], [*ends, top], strict=True)
    return [a if a is not None and a == b else Interval(a, b) for a, b in stretches]
