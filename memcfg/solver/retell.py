"""A minimal contradiction, told as a chain: what was chosen, what follows from it, and the rule that forbids it.

Plain text, one cause a line, lower case, literals in backticks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

from memcfg.errors import Conflict
from memcfg.solver.asked import SUPPOSED, Asked
from memcfg.solver.expr import ALWAYS, NEVER, show
from memcfg.solver.problem import Problem
from memcfg.solver.rules import Default, Fallback, Force, Ignored, Require, Rule
from memcfg.solver.theory import Tag, Tagged


def retell(problem: Problem, tags: Collection[Tag], asked: Asked) -> Conflict:
    """The conflict that the clauses with these tags make."""
    chain = _chain(problem, tags)
    rules = [t.name for t, _ in chain if t.kind in ("rule", "default")]
    lines = list(_lines(problem, chain, asked))
    return Conflict(
        tuple(dict.fromkeys(_key(problem, t) for t, _ in chain if _key(problem, t))), tuple(rules), "\n".join(lines)
    )


def _lines(problem: Problem, chain: Sequence[tuple[Tag, Tagged]], asked: Asked) -> Iterator[str]:
    """A line for each tag; one for all neighbours that nothing sets."""
    for unset, group in groupby(chain, key=lambda link: link[0].kind == "unset"):
        if unset:
            yield f"nothing sets {one_of([f'`{tag.name}`' for tag, _ in group])}"
        else:
            yield from (_line(problem, tag, told, asked) for tag, told in group)


def one_of(names: Sequence[str]) -> str:
    """`a`, `b` or `c`."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _key(problem: Problem, tag: Tag) -> str:
    """The option that a tag is about; a hard rule that sets none gives "" """
    if tag.kind not in ("rule", "default"):
        return problem.stated[tag.name][0] if tag.kind == "fact" and tag.name in problem.stated else tag.name
    return str(getattr(problem.program.theory.rules[tag.name], "key", ""))


def _chain(problem: Problem, tags: Collection[Tag]) -> list[tuple[Tag, Tagged]]:
    """The tags in the order in which propagation meets them, each with its clause. What needs a case split comes last."""
    kept = frozenset(tags)
    left = [t for t in problem.clauses if t[1] <= kept]
    left.sort(key=lambda t: max((_rank(problem, tag) for tag in t[1]), default=0))
    dom = list(problem.full)
    chain: dict[Tag, Tagged] = {tag: ((), kept) for tag in sorted(kept) if tag.kind == "you"}
    while step := next((t for t in left if _forces(t, dom)), None):
        left.remove(step)
        for tag in sorted(step[1], key=lambda tag: _rank(problem, tag)):
            chain.setdefault(tag, step)
        live = [(var, mask) for var, mask in step[0] if dom[var] & mask]
        if not live:
            break
        dom[live[0][0]] &= live[0][1]
    for tagged in left:
        for tag in tagged[1]:
            chain.setdefault(tag, tagged)
    return list(chain.items())


def _forces(tagged: Tagged, dom: list[int]) -> bool:
    """Whether the clause narrows something, or is violated."""
    live = [(var, mask) for var, mask in tagged[0] if dom[var] & mask]
    return not live or (len(live) == 1 and bool(dom[live[0][0]] & ~live[0][1]))


def _rank(problem: Problem, tag: Tag) -> int:
    """Choices first, then facts, forces, defaults; what only forbids comes last."""
    if tag.kind == "rule":
        rule = problem.program.theory.rules[tag.name]
        return 2 if isinstance(rule, Force) else 6 if isinstance(rule, Ignored) else 5
    return {"you": 0, "fact": 1, "decided": 1, "default": 3, "unset": 4}[tag.kind]


def _line(problem: Problem, tag: Tag, tagged: Tagged, asked: Asked) -> str:
    if tag.kind == "you":
        return chosen(tag.name, asked)
    if tag.kind == "fact":
        return fact(tag.name, asked)
    if tag.kind == "decided":
        return f"`{tag.name}={show(problem.decided[tag.name])}` was decided before everything was known"
    rule = problem.program.theory.rules[tag.name]
    if isinstance(rule, Default):
        return f"`{rule.key}` defaults to {_proposed(problem, rule, tagged)} (`{rule.id}`), because {rule.because}"
    return f"`{rule.id}` {says(rule)}, because {rule.because}"


def chosen(key: str, asked: Asked) -> str:
    choice = asked.choices[key]
    value = "***" if key in asked.secrets else show(choice.value)
    if choice.origin == SUPPOSED:
        return f"suppose `{key}={value}`"
    typed = f", written `{asked.renamed[key].written}`" if key in asked.renamed else ""
    return f"you chose `{key}={value}` ({choice.origin}{typed})"


def fact(key: str, asked: Asked) -> str:
    value = show(asked.facts[key])
    if key in asked.stated:
        return f"{chosen(asked.stated[key][0], asked)}, which makes `{key}` `{value}`"
    return f"you assumed `{key}={value}`" if key in asked.assumed else f"`{key}` is `{value}` on this host"


def _proposed(problem: Problem, rule: Default, tagged: Tagged) -> str:
    variables = problem.program.variables
    var = variables.index[rule.key]
    return variables.domains[var].describe(dict(tagged[0])[var])


def says(rule: Rule) -> str:
    """A hard rule's content in words."""
    when = "" if getattr(rule, "when", ALWAYS) == ALWAYS else f" when `{rule.when}`"  # type: ignore[attr-defined]
    if isinstance(rule, Force):
        return f"sets `{rule.key}={show(rule.value)}`{when}"
    if isinstance(rule, Fallback):
        return f"answers `{rule.key}={show(rule.value)}` with `{show(rule.to)}`{when}"
    if isinstance(rule, Ignored):
        return f"says that nothing reads `{rule.key}`{when}"
    if isinstance(rule, Require):
        return f"forbids `{rule.when}`" if rule.cond == NEVER else f"requires `{rule.cond}`{when}"
    raise TypeError(f"not a hard rule: {rule!r}")


def given(key: str, value: Any, asked: Asked) -> str:
    """Where a final value comes from, in a few words."""
    if key in asked.choices:
        return chosen(key, asked)
    return fact(key, asked) if key in asked.facts else f"`{key}` is `{show(value)}`"
