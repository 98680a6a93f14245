"""The allocator model against cases worked out by hand from the rules of CUDA's caching allocator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcfg.planner.addresses import Addresses
from memcfg.planner.allocator import MIB, Block, CachingAllocator, Exceeded

pytestmark = pytest.mark.torch


def test_sizes_are_rounded_up_to_512_bytes() -> None:
    allocator = CachingAllocator()
    allocator.malloc(1)
    allocator.malloc(513)
    assert allocator.allocated == 512 + 1024


@pytest.mark.parametrize(
    ("request_bytes", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments_by_request(request_bytes: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(request_bytes)
    assert allocator.reserved == segment


def test_the_rest_of_a_large_segment_serves_the_next_request() -> None:
    allocator = CachingAllocator()
    allocator.malloc(4 * MIB)
    allocator.malloc(15 * MIB)
    assert allocator.reserved == 20 * MIB


def test_a_rest_of_at_most_a_mebibyte_is_not_split_off() -> None:
    allocator = CachingAllocator()
    first = allocator.malloc(12 * MIB)
    allocator.free(first)
    allocator.malloc(11 * MIB)
    assert allocator.allocated == 12 * MIB


def test_best_fit_takes_the_smallest_block_that_is_large_enough() -> None:
    allocator = CachingAllocator()
    large, small = allocator.malloc(40 * MIB), allocator.malloc(20 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.malloc(20 * MIB)
    allocator.malloc(40 * MIB)
    assert allocator.reserved == 60 * MIB


def test_free_neighbours_merge() -> None:
    allocator = CachingAllocator()
    whole = allocator.malloc(40 * MIB)
    allocator.free(whole)
    parts = [allocator.malloc(10 * MIB) for _ in range(4)]
    assert allocator.reserved == 40 * MIB
    for part in (parts[0], parts[2], parts[1], parts[3]):
        allocator.free(part)
    allocator.malloc(40 * MIB)
    assert allocator.reserved == 40 * MIB


def test_small_and_large_pools_do_not_share() -> None:
    allocator = CachingAllocator()
    allocator.malloc(4 * MIB)
    allocator.malloc(512)
    assert allocator.reserved == 22 * MIB


def test_a_full_limit_gives_cached_segments_back_before_it_fails() -> None:
    allocator = CachingAllocator(limit=50 * MIB)
    allocator.free(allocator.malloc(40 * MIB))
    held = allocator.malloc(42 * MIB)
    assert allocator.reserved == 42 * MIB
    assert allocator.retries == 1
    with pytest.raises(Exceeded):
        allocator.malloc(20 * MIB)
    allocator.free(held)


def test_a_segment_in_use_is_not_given_back() -> None:
    allocator = CachingAllocator()
    allocator.malloc(4 * MIB)
    allocator.empty_cache()
    assert allocator.reserved == 20 * MIB


def test_cuda_lays_segments_downwards_and_fills_the_rests_of_its_reservations() -> None:
    addresses = Addresses()
    first, second = addresses.take(20 * MIB), addresses.take(20 * MIB)
    assert first - second == 32 * MIB
    assert addresses.take(2 * MIB) == second + 20 * MIB, "the lowest rest that has room"
    assert addresses.take(12 * MIB) == first + 20 * MIB
    assert addresses.take(40 * MIB) == second - 64 * MIB


def test_room_that_was_given_back_is_whole_again() -> None:
    addresses = Addresses()
    parts = [addresses.take(16 * MIB) for _ in range(2)]
    for part in parts:
        addresses.give_back(part, 16 * MIB)
    assert addresses.take(32 * MIB) == parts[0]


def test_of_equally_large_blocks_the_one_at_the_lowest_address_is_taken() -> None:
    """The segment that came later lies lower, so it is used first."""
    allocator = CachingAllocator()
    earlier, later = allocator.malloc(40 * MIB), allocator.malloc(40 * MIB)
    allocator.free(earlier)
    allocator.free(later)
    assert allocator.malloc(40 * MIB).address == later.address


def test_expandable_segments_grow_at_their_end() -> None:
    allocator = CachingAllocator(expandable=True)
    first = allocator.malloc(30 * MIB)
    allocator.free(first)
    allocator.malloc(50 * MIB)
    assert allocator.reserved == 60 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 64 * MIB)), max_size=60), st.booleans())
def test_what_is_allocated_never_exceeds_what_is_reserved(steps: list[tuple[bool, int]], expandable: bool) -> None:
    allocator, held = CachingAllocator(expandable=expandable), list[Block]()
    for frees, size in steps:
        if frees and held:
            allocator.free(held.pop(size % len(held)))
        else:
            held.append(allocator.malloc(size))
        assert sum(block.size for block in held) == allocator.allocated <= allocator.reserved
    for block in held:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.allocated == allocator.reserved == 0
