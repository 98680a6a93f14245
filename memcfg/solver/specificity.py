"""Which of two defaults speaks first, and in which order options are decided.

Both depend on the conditions alone: a default beats another if its condition implies the other's over the domains (no
other rule is consulted), or if it `supersedes` it by name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations

from memcfg.errors import RuleError
from memcfg.solver.expr import ALWAYS, mentions, same
from memcfg.solver.lower import Every, Lit, Lowering, Node, Some, Variables
from memcfg.solver.propagate import contradiction
from memcfg.solver.rules import Default, Fallback, Force, Rule


def implies(a: Node, b: Node, variables: Variables) -> bool:
    """Whether every assignment that meets `a` meets `b`."""
    box, target = _box(a), _box(b)
    if box is not None and target is not None:
        full = variables.full
        return not all(box.values()) or all(not box.get(v, full[v]) & ~m for v, m in target.items())
    return not _possible(Every((a, variables.negate(b))), variables)


def overlap(a: Node, b: Node, variables: Variables) -> bool:
    """Whether some assignment meets both."""
    both = _box(Every((a, b)))
    return all(both.values()) if both is not None else _possible(Every((a, b)), variables)


def _possible(node: Node, variables: Variables) -> bool:
    lowering = Lowering(variables.full)
    clauses = lowering.clauses(node)
    tagged = [(clause, frozenset[Hashable]()) for clause in (*clauses, *lowering.definitions)]
    return contradiction(tagged, lowering.full) is None


def _box(node: Node) -> dict[int, int] | None:
    """A conjunction of literals as variable -> mask; None for anything else."""
    box: dict[int, int] = {}
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, Some):
            return None
        if isinstance(part, Lit):
            box[part.var] = box.get(part.var, part.mask) & part.mask
        else:
            todo += part.parts
    return box


Beats = Mapping[str, frozenset[str]]


def more_specific(defaults: Sequence[Default], nodes: Mapping[str, Node], variables: Variables) -> Beats:
    """For the defaults of one option: rule id -> ids of those that speak before it. Ambiguity is a `RuleError`."""
    beaten: dict[str, set[str]] = {d.id: set() for d in defaults}
    for a, b in combinations(defaults, 2):
        winner = _winner(a, b, nodes, variables)
        if winner is not None:
            beaten[(b if winner is a else a).id].add(winner.id)
    _refuse_circle(defaults, beaten)
    return {rule: frozenset(by) for rule, by in beaten.items()}


def _winner(a: Default, b: Default, nodes: Mapping[str, Node], variables: Variables) -> Default | None:
    if b.id in a.supersedes or a.id in b.supersedes:
        if b.id in a.supersedes and a.id in b.supersedes:
            raise RuleError(f"defaults `{a.id}` and `{b.id}` supersede each other", (a.id, b.id), a.source)
        return a if b.id in a.supersedes else b
    forward = b.when == ALWAYS or implies(nodes[a.id], nodes[b.id], variables)
    backward = a.when == ALWAYS or implies(nodes[b.id], nodes[a.id], variables)
    if forward is not backward:
        return a if forward else b
    if not _differ(a, b) or not overlap(nodes[a.id], nodes[b.id], variables):
        return None
    raise RuleError(
        f"defaults `{a.id}` and `{b.id}` of `{a.key}` may both apply and differ, and neither condition implies the"
        f" other (`{a.id}`: {a.when}; `{b.id}`: {b.when}, at {b.source}): add `supersedes=[...]` to one of them",
        (a.id, b.id),
        a.source,
    )


def _differ(a: Default, b: Default) -> bool:
    return len(a.values) != len(b.values) or not all(same(x, y) for x, y in zip(a.values, b.values, strict=True))


def _refuse_circle(defaults: Sequence[Default], beaten: Mapping[str, set[str]]) -> None:
    left = {d.id: d for d in defaults}
    while left:
        first = [rule for rule in left if not beaten[rule] & left.keys()]
        if not first:
            ids = sorted(left)
            raise RuleError(
                f"defaults {', '.join(f'`{i}`' for i in ids)} supersede each other in a circle",
                ids,
                left[ids[0]].source,
            )
        for rule in first:
            del left[rule]


def decision_order(rules: Iterable[Rule], keys: Iterable[str]) -> list[str]:
    """Options in strata: after those that the conditions of their rules read, ties by name. A cycle is a `RuleError`."""
    setting: dict[str, list[Default | Force | Fallback]] = {key: [] for key in keys}
    for rule in rules:
        if isinstance(rule, (Default, Force, Fallback)) and rule.key in setting:
            setting[rule.key].append(rule)
    needs = {key: frozenset().union(*(mentions(r.when) for r in by)) for key, by in setting.items()}
    order: list[str] = []
    left = dict(needs)
    while left:
        ready = sorted(key for key, before in left.items() if not before & left.keys())
        if not ready:
            raise _circle(left, setting)
        order += ready
        for key in ready:
            del left[key]
    return order


def _circle(left: Mapping[str, frozenset[str]], setting: Mapping[str, list[Default | Force | Fallback]]) -> RuleError:
    path = [min(left)]
    while True:
        following = min(left[path[-1]] & left.keys())
        if following in path:
            path = path[path.index(following) :]
            break
        path.append(following)
    start = path.index(min(path))
    path = path[start:] + path[:start]
    ids = []
    for key, reads in zip(path, [*path[1:], path[0]], strict=True):
        ids.append(next(r for r in sorted(setting[key], key=lambda r: r.id) if reads in mentions(r.when)))
    names = " -> ".join(f"`{key}`" for key in [*path, path[0]])
    rules = ", ".join(f"`{r.id}`" for r in ids)
    return RuleError(
        f"options decide each other in a circle: {names} (rules {rules})", [r.id for r in ids], ids[0].source
    )
