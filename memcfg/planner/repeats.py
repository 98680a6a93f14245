"""What a technique does over and over: run until two rounds in a row did the same, and told again from the last of them.

Nothing is left out of a trace: the births, deaths and kernels of a round that is not run are those of the round before it, one
for one, so that a device sees what it would see of every round. Only the computing is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from memcfg.planner.clock import Advance
    from memcfg.planner.tracker import Tracker

Item = TypeVar("Item")


@dataclass
class Round:
    """`told` is what happened, in order: the number of a birth, that of a death below zero, and how the clock went on. `base` births
    came before it, and the host held `host` bytes. `odd`: something happened that cannot be told again."""

    base: int
    host: int
    told: list[int | Advance] = field(default_factory=list)
    odd: bool = False
    form: list[Any] = field(default_factory=list)
    """The same by what it was and by numbers that begin with the round."""

    @property
    def dead(self) -> set[int]:
        return {-thing for thing in self.told if isinstance(thing, int) and thing < 0}

    @property
    def born(self) -> list[int]:
        return [thing for thing in self.told if isinstance(thing, int) and thing > 0]

    def like(self, before: Round) -> bool:
        """Whether the round did what the one before it did and will do again: it ended what that one had left, and nothing older."""
        if self.odd or before.odd or self.form != before.form:
            return False
        dead = self.dead
        return dead.issuperset(set(before.born) - before.dead) and min(dead, default=self.base) > before.base


def rounds(tracker: Tracker, items: Iterable[Item], alike: Callable[[Item], Any]) -> Iterator[Item]:
    """Those of `items` that have to be run; what `alike` says the same of may do the same."""
    left, before = list(items), None
    while left:
        item = left.pop(0)
        done = Round(len(tracker.trace.births), tracker.host.bytes)
        tracker.clock.heard = done
        try:
            yield item
        finally:
            tracker.clock.heard = None
        _formed(tracker, done)
        if before is not None and done.like(before):
            count = next((n for n, other in enumerate(left) if alike(other) != alike(item)), len(left))
            if count and tracker.aged(done, count):
                _again(tracker, done, count)
                del left[:count]
        before = done


def _formed(tracker: Tracker, done: Round) -> None:
    births = tracker.trace.births
    for thing in done.told:
        if not isinstance(thing, int):
            done.form.append(thing)
        elif thing > 0:
            birth = births[thing - 1]
            done.form.append((birth.size, birth.kind, birth.phase, birth.op))
        else:
            done.form.append(thing + done.base)
    done.odd |= tracker.host.bytes != done.host or len(done.born) != len(births) - done.base


def _again(tracker: Tracker, done: Round, count: int) -> None:
    """Tell the round `count` times more. What it ended of the round before it, it ends of itself."""
    births, clock, each = tracker.trace.births, tracker.clock, len(done.born)
    for later in range(1, count + 1):
        shift = later * each
        for thing in done.told:
            if not isinstance(thing, int):
                clock.go_on(thing)
            elif thing > 0:
                birth = births[thing - 1]
                tracker.trace.born(birth.size, birth.kind, birth.phase, birth.op, clock.ms)
            else:
                tracker.trace.died(-thing + shift, clock.ms)
