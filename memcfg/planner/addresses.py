"""Where CUDA lays the segments that the caching allocator asks it for.

Of cached blocks of equal size the allocator takes the one at the lowest address, and what it takes decides which
neighbours can merge later: reserved memory depends on the order of addresses, by up to a tenth. Read from the allocator's
history on one H200: the driver reserves address space downwards, in multiples of 32 MiB, and fills what a segment leaves of
its reservation with later segments that fit there.
"""

from __future__ import annotations

from bisect import bisect
from typing import Final

RESERVATION: Final = 32 << 20
TOP: Final = 1 << 46


class Addresses:
    """Free room of the reservations, as (address, bytes) in order. Sizes are in bytes, multiples of 2 MiB."""

    def __init__(self) -> None:
        self._bottom = TOP
        self._rests: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """An address with room for `size` bytes: the lowest rest of a reservation that has it, or a new reservation."""
        for index, (address, room) in enumerate(self._rests):
            if room >= size:
                self._rests[index : index + 1] = [(address + size, room - size)] if room > size else []
                return address
        reserved = -(-size // RESERVATION) * RESERVATION
        self._bottom -= reserved
        if reserved > size:
            self._rests.insert(0, (self._bottom + size, reserved - size))
        return self._bottom

    def give_back(self, address: int, size: int) -> None:
        """The room of a segment that CUDA was given back serves later ones."""
        index = bisect(self._rests, (address, size))
        if index < len(self._rests) and self._rests[index][0] == address + size:
            size += self._rests.pop(index)[1]
        if index and sum(self._rests[index - 1]) == address:
            before, room = self._rests.pop(index - 1)
            address, size, index = before, size + room, index - 1
        self._rests.insert(index, (address, size))
