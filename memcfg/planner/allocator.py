"""A model of CUDA's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`), one stream.

Requests are rounded up to 512 bytes. Those of at most 1 MiB come from segments of 2 MiB, those below 10 MiB from segments
of 20 MiB, larger ones from segments of their own size rounded up to 2 MiB. The best fit among cached blocks is taken, and
split where enough remains; of equally large ones that at the lowest address. Freed blocks merge with free neighbours of their segment and stay cached. Where a new segment
would exceed the limit, whole cached segments are given back first. With expandable segments each pool is one segment
that grows in pages at its end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from memcfg.planner.addresses import Addresses

MIB: Final = 1 << 20
ROUND: Final = 512
SMALL: Final = MIB
SMALL_SEGMENT: Final = 2 * MIB
LARGE_SEGMENT: Final = 20 * MIB
LARGE_FROM: Final = 10 * MIB


class Exceeded(Exception):
    """An allocation that does not fit under the limit even after cached segments were given back."""


class Block:
    """A piece of a segment. `before` and `after` are its neighbours there."""

    __slots__ = ("address", "after", "before", "free", "large", "size")

    def __init__(self, address: int, size: int, large: bool) -> None:
        self.address, self.size, self.large = address, size, large
        self.free = True
        self.before: Block | None = None
        self.after: Block | None = None


class CachingAllocator:
    """`allocated` and `reserved` are what CUDA would report now, in bytes; `peak_*` the largest so far."""

    def __init__(self, limit: int | None = None, *, expandable: bool = False) -> None:
        self.limit, self.expandable = limit, expandable
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.retries = 0
        self._cached: tuple[list[tuple[int, int, Block]], ...] = ([], [])
        self._addresses = Addresses()
        self._tails: list[Block | None] = [None, None]

    def malloc(self, request: int) -> Block:
        """A block for `request` > 0 bytes. Raises `Exceeded`."""
        size = -(-request // ROUND) * ROUND or ROUND
        large = size > SMALL
        cached = self._cached[large]
        at = bisect_left(cached, (size, -1))
        block = cached.pop(at)[2] if at < len(cached) else self._segment(size, large)
        if block.size != size:
            self._split(block, size)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def free(self, block: Block) -> None:
        """Give a block back to the cache."""
        self.allocated -= block.size
        block.free = True
        before, after = block.before, block.after
        if before is not None and before.free:
            self._swallow(before, block)
        if after is not None and after.free:
            self._swallow_next(block)
        insort(self._cached[block.large], (block.size, block.address, block))

    def empty_cache(self) -> None:
        """Give whole cached segments back to the device, as `torch.cuda.empty_cache` does."""
        for cached in self._cached:
            whole = [entry for entry in cached if entry[2].before is None and entry[2].after is None]
            for entry in whole:
                cached.remove(entry)
                self.reserved -= entry[0]
                if not self.expandable:
                    self._addresses.give_back(entry[1], entry[0])
                if self._tails[entry[2].large] is entry[2]:
                    self._tails[entry[2].large] = None
            if self.expandable:
                self._trim(cached)

    # ------------------------------------------------------------------------------------------------- segments

    def _segment(self, size: int, large: bool) -> Block:
        """A free block of at least `size` bytes that was not there before."""
        grow = self._growth(size, large)
        if self.limit is not None and self.reserved + grow > self.limit:
            self.empty_cache()
            self.retries += 1
            grow = self._growth(size, large)
            if self.reserved + grow > self.limit:
                raise Exceeded(f"{self.reserved} bytes reserved, {grow} more asked for, the limit is {self.limit}")
        self.reserved += grow
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return self._grown(grow, large) if self.expandable else self._fresh(grow, large)

    def _growth(self, size: int, large: bool) -> int:
        """By how much the device memory grows for a block of `size`."""
        if not self.expandable:
            if not large:
                return SMALL_SEGMENT
            return LARGE_SEGMENT if size < LARGE_FROM else -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        page = LARGE_SEGMENT if large else SMALL_SEGMENT
        tail = self._tails[large]
        missing = size - (tail.size if tail is not None and tail.free else 0)
        return -(-missing // page) * page

    def _fresh(self, size: int, large: bool) -> Block:
        return Block(self._addresses.take(size), size, large)

    def _grown(self, size: int, large: bool) -> Block:
        """The free end of the pool's one segment, longer by `size`."""
        tail = self._tails[large]
        if tail is not None and tail.free:
            self._uncache(tail)
            tail.size += size
            return tail
        block = Block((large << 60) if tail is None else tail.address + tail.size, size, large)
        block.before = tail
        if tail is not None:
            tail.after = block
        self._tails[large] = block
        return block

    def _trim(self, cached: list[tuple[int, int, Block]]) -> None:
        """Unmap the free end of a pool that goes on to be used elsewhere."""
        for entry in [e for e in cached if self._tails[e[2].large] is e[2]]:
            cached.remove(entry)
            block = entry[2]
            self.reserved -= block.size
            self._tails[block.large] = block.before
            if block.before is not None:
                block.before.after = None

    # --------------------------------------------------------------------------------------------------- blocks

    def _split(self, block: Block, size: int) -> None:
        """Cut `block` down to `size` where what remains is worth keeping apart."""
        rest = block.size - size
        if rest <= SMALL if block.large and not self.expandable else rest < ROUND:
            return
        other = Block(block.address + size, rest, block.large)
        other.before, other.after = block, block.after
        if block.after is not None:
            block.after.before = other
        block.after, block.size = other, size
        if self._tails[block.large] is block:
            self._tails[block.large] = other
        self._cache(other)

    def _swallow(self, before: Block, block: Block) -> None:
        """Merge the free neighbour before `block` into it."""
        self._uncache(before)
        block.address, block.before = before.address, before.before
        if before.before is not None:
            before.before.after = block
        block.size += before.size

    def _swallow_next(self, block: Block) -> None:
        after = block.after
        assert after is not None
        self._uncache(after)
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        block.size += after.size
        if self._tails[block.large] is after:
            self._tails[block.large] = block

    def _cache(self, block: Block) -> None:
        insort(self._cached[block.large], (block.size, block.address, block))

    def _uncache(self, block: Block) -> None:
        cached = self._cached[block.large]
        cached.pop(bisect_left(cached, (block.size, block.address)))
