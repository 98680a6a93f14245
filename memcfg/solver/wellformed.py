"""What can be refused when a rule base is loaded, rule by rule: names, keys, values, renames.

Every error is a `RuleError` that names the rule and the author's file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memcfg.errors import RuleError
from memcfg.solver.domain import domain_of
from memcfg.solver.expr import ALWAYS, UNSET, And, Between, Expr, In, Not, Option, Or, mentions, same, show
from memcfg.solver.rules import (
    Advise,
    Check,
    Default,
    Fallback,
    Force,
    Ignored,
    RemovedKey,
    RenameKey,
    RenameValue,
    Require,
    Rule,
)  # fmt: skip
from memcfg.solver.values import Refused, accept, closest

_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_-]+)+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
"""An option named in the text of an `Advise`."""


def collect_options(options: Iterable[Option]) -> dict[str, Option]:
    """The options by key, in alphabetical order. Two with one key are an error, as is a menu without entries."""
    found: dict[str, Option] = {}
    for option in sorted(options, key=lambda o: (o.key, str(o.source))):
        other = found.setdefault(option.key, option)
        if other is not option:
            raise RuleError(f"option `{option.key}` is declared twice, also at {other.source}", (), option.source)
        if not _KEY.fullmatch(option.key):
            raise RuleError(f"`{option.key}` is not a dotted key", (), option.source)
        if option.kind == "enum" and not option.values and not option.open:
            raise RuleError(f"the menu of `{option.key}` is empty", (), option.source)
        _refuse_bad_default(option)
    return found


def _refuse_bad_default(option: Option) -> None:
    if option.default is UNSET:
        return
    try:
        accept(option, option.default)
    except Refused as refused:
        raise RuleError(f"the default of `{option.key}`: {refused.problem.text}", (), option.source) from None


def collect_rules(rules: Iterable[Rule]) -> dict[str, Rule]:
    """The rules by id, in alphabetical order."""
    found: dict[str, Rule] = {}
    for rule in sorted(rules, key=lambda r: (r.id, str(r.source))):
        if not _ID.fullmatch(rule.id):
            raise _error(rule, f"`{rule.id}` is not a namespaced id: write `<plugin>.<topic>.<name>` in lower case")
        if not rule.because.strip():
            raise _error(rule, f"rule `{rule.id}` gives no reason: fill in `because`")
        other = found.setdefault(rule.id, rule)
        if other is not rule:
            raise _error(rule, f"rule id `{rule.id}` is used twice, also at {other.source}")
    return found


def _error(rule: Rule, text: str, *others: Rule) -> RuleError:
    return RuleError(text, (rule.id, *(o.id for o in others)), rule.source)


def check_rules(options: Mapping[str, Option], rules: Mapping[str, Rule]) -> None:
    """Refuse the first rule, by id, that cannot be meant."""
    for rule in rules.values():
        for key in targets(rule):
            _known(rule, key, options)
        if isinstance(rule, (Default, Force, Fallback)):
            _check_proposals(rule, options)
        if isinstance(rule, Ignored) and options[rule.key].role in ("fact", "derived"):
            raise _error(rule, f"rule `{rule.id}`: a user cannot set `{rule.key}`, so it cannot be ignored")
        for expr in conditions(rule):
            _check_expr(rule, expr, options, settings=isinstance(rule, (Advise, Check)))
        if isinstance(rule, Advise):
            for key in PLACEHOLDER.findall(rule.text):
                _known(rule, key, options)
        if isinstance(rule, (Require, Check)):
            _check_suggestions(rule, options)
        if isinstance(rule, Default):
            _check_superseded(rule, rules)
    check_renames(options, rules)


def targets(rule: Rule) -> tuple[str, ...]:
    """The options that the rule speaks about, its conditions apart."""
    if isinstance(rule, (Default, Force, Fallback, Ignored, RenameValue)):
        return (rule.key,)
    return rule.reads if isinstance(rule, Check) else ()


def conditions(rule: Rule) -> tuple[Expr, ...]:
    """The expressions that the rule reads."""
    when = getattr(rule, "when", ALWAYS)
    return (when, rule.cond) if isinstance(rule, Require) else (when,)


def reads(rule: Rule) -> frozenset[str]:
    """The keys that decide whether the rule speaks."""
    keys = frozenset().union(*(mentions(e) for e in conditions(rule)))
    return keys | frozenset(rule.reads) if isinstance(rule, Check) else keys


def _known(rule: Rule, key: str, options: Mapping[str, Option]) -> Option:
    if key in options:
        return options[key]
    near = closest(key, options)
    hint = f": did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    raise _error(rule, f"rule `{rule.id}` names an unknown option `{key}`{hint}")


def _check_proposals(rule: Default | Force | Fallback, options: Mapping[str, Option]) -> None:
    option = options[rule.key]
    if option.role == "fact":
        raise _error(rule, f"rule `{rule.id}` sets `{rule.key}`, which is a fact: facts are probed")
    if option.role == "setting" and not isinstance(rule, Default):
        raise _error(rule, f"rule `{rule.id}` sets `{rule.key}`, a setting: a setting only takes a `Default`")
    values = rule.values if isinstance(rule, Default) else (rule.value,)
    if not values:
        raise _error(rule, f"rule `{rule.id}` proposes nothing for `{rule.key}`")
    for value in (*values, rule.to) if isinstance(rule, Fallback) else values:
        try:
            accept(option, value)
        except Refused as refused:
            raise _error(rule, f"rule `{rule.id}`: `{rule.key}`: {refused.problem.text}") from None


def _check_expr(rule: Rule, expr: Expr, options: Mapping[str, Option], *, settings: bool) -> None:
    for atom in atoms(expr):
        option = _known(rule, atom.key, options)
        if option.kind == "setting" and not settings:
            text = f"rule `{rule.id}` reads `{option.key}`, a setting: declare it as Bool, Enum or Int, or use a Check"
            raise _error(rule, text)
        if isinstance(atom, Between):
            if option.kind not in ("int", "setting"):
                raise _error(rule, f"rule `{rule.id}` compares `{option.key}`, which is not an integer")
        elif option.kind != "setting":
            _check_members(rule, atom, option)


def _check_members(rule: Rule, atom: In, option: Option) -> None:
    for value in atom.values:
        if value is UNSET:
            if option.role == "fact":
                raise _error(rule, f"rule `{rule.id}`: the fact `{option.key}` is never unset")
            continue
        try:
            accepted = accept(option, value)
        except Refused as refused:
            raise _error(rule, f"rule `{rule.id}`: `{option.key}`: {refused.problem.text}") from None
        if not same(accepted, value):
            raise _error(rule, f"rule `{rule.id}`: `{option.key}` is never `{show(value)}`")


def atoms(expr: Expr) -> Iterator[In | Between]:
    """The comparisons inside an expression."""
    if isinstance(expr, (In, Between)):
        yield expr
    elif isinstance(expr, Not):
        yield from atoms(expr.part)
    elif isinstance(expr, (And, Or)):
        for part in expr.parts:
            yield from atoms(part)
    else:
        raise TypeError(f"not an expression: {expr!r}")


def suggestion(text: str, options: Mapping[str, Option]) -> tuple[str, Any] | None:
    """A suggested override `key=value` (or `~key`: the value is `UNSET`) as a key and a value; None if it is neither."""
    if text.startswith("~"):
        return (text[1:], UNSET) if text[1:] in options else None
    key, equals, word = text.partition("=")
    option = options.get(key)
    if not equals or option is None:
        return None
    return next(((key, v) for v in _readings(option, word) if _fits(option, v)), None)


def _readings(option: Option, word: str) -> Iterator[Any]:
    if word == "null":
        yield None
    if (option.kind == "bool" or option.type is bool) and word in ("true", "false"):
        yield word == "true"
    if option.kind in ("int", "setting") and re.fullmatch(r"-?\d+", word):
        yield int(word)
    if option.type is float and re.fullmatch(r"-?\d+\.\d+", word):
        yield float(word)
    if option.type is list and (inside := re.fullmatch(r"\[([\w.:,-]+)\]", word)):
        yield inside[1].split(",")
    yield word


def _fits(option: Option, value: Any) -> bool:
    try:
        accept(option, value)
    except Refused:
        return False
    return True


def _check_suggestions(rule: Require | Check, options: Mapping[str, Option]) -> None:
    for text in rule.suggest:
        found = suggestion(text, options)
        if found is None or options[found[0]].role in ("fact", "derived"):
            raise _error(rule, f"rule `{rule.id}` suggests `{text}`, which is not an override `key=value` of an option")


def _check_superseded(rule: Default, rules: Mapping[str, Rule]) -> None:
    for other in rule.supersedes:
        found = rules.get(other)
        if not isinstance(found, Default) or found.key != rule.key or found is rule:
            raise _error(rule, f"rule `{rule.id}` supersedes `{other}`, which is no other default of `{rule.key}`")


def check_renames(options: Mapping[str, Option], rules: Mapping[str, Rule]) -> None:
    """Old names must be free, renames must end at an option or a value, and never lead in a circle."""
    olds: dict[tuple[str, Any], Rule] = {}
    for rule in rules.values():
        if not isinstance(rule, (RenameKey, RenameValue, RemovedKey)):
            continue
        old: tuple[str, Any] = {
            RenameKey: lambda r: (r.old, UNSET), RemovedKey: lambda r: (r.key, UNSET), RenameValue: lambda r: (r.key, r.old)
        }[type(rule)](rule)  # fmt: skip
        if old in olds:
            raise _error(rule, f"rules `{olds[old].id}` and `{rule.id}` both speak of `{_spelled(old)}`", olds[old])
        olds[old] = rule
        if old[0] in options and (old[1] is UNSET or _offered(options[old[0]], old[1])):
            verb = "removes" if isinstance(rule, RemovedKey) else "renames"
            raise _error(rule, f"rule `{rule.id}` {verb} `{_spelled(old)}`, which is still in use")
    for rule in olds.values():
        _follow(rule, olds, options)


def _spelled(name: tuple[str, Any]) -> str:
    return name[0] if name[1] is UNSET else f"{name[0]}={show(name[1])}"


def _offered(option: Option, value: Any) -> bool:
    """Whether the value is one of a menu, or a number in range. Of free text any value may be given a new name."""
    if option.kind == "setting" and not option.values:
        return False
    return any(same(value, v) for v in option.values) if option.values else _fits(option, value)


def _follow(rule: Rule, olds: Mapping[tuple[str, Any], Rule], options: Mapping[str, Option]) -> None:
    """Follow a chain of renames to its end."""
    trail = [rule]
    while True:
        last = trail[-1]
        if isinstance(last, RenameKey):
            new: tuple[str, Any] = (last.new, UNSET)
        elif isinstance(last, RenameValue):
            new = (last.key, last.new)
        else:
            return
        if new not in olds:
            break
        if olds[new] in trail:
            names = " -> ".join(f"`{r.id}`" for r in (*trail, olds[new]))
            raise _error(rule, f"renames lead in a circle: {names}", *trail[1:])
        trail.append(olds[new])
    option = _known(last, new[0], options)
    if new[1] is not UNSET and not _fits(option, new[1]):
        raise _error(last, f"rule `{last.id}` renames to `{_spelled(new)}`, which is not a value of `{option.key}`")


def domains(options: Mapping[str, Option], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The domain of every option that enters the solver: one that some rule reads or sets, and that is no setting."""
    named: dict[str, list[Any]] = {}
    cuts: dict[str, set[int]] = {}
    always: set[str] = set()
    for rule in rules.values():
        if isinstance(rule, (RenameKey, RenameValue, RemovedKey)):
            continue
        for key, values in _proposed(rule):
            named.setdefault(key, []).extend(values)
        if isinstance(rule, Default) and rule.when == ALWAYS:
            always.add(rule.key)
        for atom in (a for e in conditions(rule) for a in atoms(e)):
            named.setdefault(atom.key, [])
            if isinstance(atom, In):
                named[atom.key].extend(atom.values)
            else:
                ends = (atom.low, None if atom.high is None else atom.high + 1)
                cuts.setdefault(atom.key, set()).update(e for e in ends if e is not None)
    return {
        key: domain_of(
            options[key], named=named[key], cuts=cuts.get(key, ()),
            unset=options[key].role != "fact" and key not in always,
        )
        for key in sorted(named)
        if options[key].kind != "setting"
    }  # fmt: skip


def _proposed(rule: Rule) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if isinstance(rule, Default):
        yield rule.key, rule.values
    elif isinstance(rule, Force):
        yield rule.key, (rule.value,)
    elif isinstance(rule, Fallback):
        yield rule.key, (rule.value, rule.to)
