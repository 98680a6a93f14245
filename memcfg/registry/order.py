"""The order of a chain: which plugin's implementation of a hook runs after which.

For each name, pure producers come before those that change it (consume and produce it), and those before its pure
consumers. Where nothing orders two implementations, (distribution, plugin) does, which is harmless as long as neither
sees the other's work; two that change the same thing do, so they must be ordered by some name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise

from memcfg.errors import PluginError


@dataclass(frozen=True)
class Link:
    """One implementation in a chain: whose it is, and what it declared."""

    plugin: str
    consumes: frozenset[str] = frozenset()
    produces: frozenset[str] = frozenset()

    @property
    def changes(self) -> frozenset[str]:
        return self.consumes & self.produces

    def after(self, other: Link) -> frozenset[str]:
        """The names that put this implementation after the other."""
        made = (other.produces | {other.plugin}) & self.consumes
        return frozenset(n for n in made if not (n in self.changes and n in other.changes))


def ordered(hook: str, links: Sequence[Link]) -> tuple[Link, ...]:
    """The links in the order in which they run; ties keep the order given. Raises `PluginError`."""
    before = {a: [b for b in links if b is not a and a.after(b)] for a in links}
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        raise _cycle(hook, error.args[1]) from None
    for a, b in combinations(links, 2):
        if a.changes & b.changes and not (_reaches(before, a, b) or _reaches(before, b, a)):
            raise _tie(hook, a, b)
    return _stable(sorter, links)


def _stable(sorter: TopologicalSorter[Link], links: Sequence[Link]) -> tuple[Link, ...]:
    """Of the links that may run, always the first of the given order."""
    result: list[Link] = []
    ready: set[Link] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        link = next(x for x in links if x in ready)
        ready.remove(link)
        sorter.done(link)
        result.append(link)
    return tuple(result)


def _reaches(before: dict[Link, list[Link]], start: Link, goal: Link) -> bool:
    return any(link is goal or _reaches(before, link, goal) for link in before[start])


def _cycle(hook: str, members: Sequence[Link]) -> PluginError:
    """graphlib lists each member before the one that waits for it, the first one again at the end."""
    waits = [f"`{b.plugin}` runs after `{a.plugin}` (`{min(b.after(a))}`)" for a, b in pairwise(members)]
    return PluginError(f"`{hook}` cannot be ordered: " + ", ".join(waits), plugin=members[0].plugin)


def _tie(hook: str, a: Link, b: Link) -> PluginError:
    shared = min(a.changes & b.changes)
    return PluginError(
        f"in `{hook}`, plugins `{a.plugin}` and `{b.plugin}` both change `{shared}` and nothing says which comes first: "
        f'declare `@hookimpl(consumes=("{shared}", "{a.plugin}"), ...)` in the one that comes second',
        plugin=b.plugin,
    )
