"""Sizes as people write them: `24gib`, `80gb`, `512 MiB`, `25769803776`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

UNITS: Final = {
    "b": 1, "bytes": 1, "byte": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip

_SIZE = re.compile(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*$", re.IGNORECASE)

SMALLEST_BUDGET: Final = 2**20
"""A budget below this without a unit is taken for a forgotten unit: nobody gives a run less than a MiB."""


def size(value: Any, bare_from: int = 0) -> int:
    """Bytes. A number without a unit must be at least `bare_from`.

    Raises `ValueError` with a message that says what to write instead."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"`{value}` is no size; write it as `24gib`")
    match = _SIZE.match(str(value)) if not isinstance(value, float) else None
    if match is None:
        raise ValueError(f"`{value}` is no size; write it as `24gib`")
    return _bytes(str(value).strip(), match[1], match[2].lower(), bare_from)


def _bytes(said: str, number: str, unit: str, bare_from: int) -> int:
    if unit and unit not in UNITS:
        raise ValueError(_unknown_unit(said, number, unit))
    amount = int(Decimal(number.replace("_", "")) * UNITS[unit or "b"])
    if not amount and bare_from:
        raise ValueError(f"nothing fits into `{said}`; write it as `24gib`")
    if not unit and amount < bare_from:
        raise ValueError(f"`{said}` has no unit, and {said} bytes cannot be meant; write `{number}gib`")
    return amount


def _unknown_unit(said: str, number: str, unit: str) -> str:
    binary, decimal = f"{unit[0]}ib", f"{unit[0]}b"
    if binary in UNITS and unit in (unit[0], f"{unit[0]}i"):
        power = {"k": 1, "m": 2, "g": 3, "t": 4}[unit[0]]
        return (
            f"`{said}` is ambiguous; write `{number}{binary}` (2^{10 * power} bytes each)"
            f" or `{number}{decimal}` (10^{3 * power} bytes each)"
        )
    return (
        f"`{unit}` is no unit of size; units are bytes, mib, gib, tib (powers of 1024) and mb, gb, tb (powers of 1000)"
    )
