"""The part of a page that follows from the rules: options, defaults, what is forced and refused.

A page asks for it with a pair of comments, anywhere in its text:

    <!-- rules of: offload -->
    <!-- end of rules -->

Several plugins may be named (`rules of: loss, liger`). What lies between is written by `tools/generate_docs.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memcfg import (
    UNSET,
    Advise,
    Check,
    Default,
    Fallback,
    Force,
    Ignored,
    Option,
    Plugin,
    RemovedKey,
    RenameKey,
    RenameValue,
    Require,
    Rule,
)
from memcfg.registry import Registry
from memcfg.report.words import of
from memcfg.solver.expr import ALWAYS, NEVER, And, Expr, Not, Or, mentions, show

ASKED = re.compile(r"(<!-- rules of: ([\w, ]+) -->\n).*?(<!-- end of rules -->)", re.S)
HEADINGS = {
    "default": "**Taken when nothing is chosen**",
    "forced": "**Follows from other choices**",
    "refused": "**Refused**",
    "noted": "**Noted or renamed**",
    "missing": "**Not written yet** (such a plan resolves with a warning, and a run of it is refused)",
}


def asked_for(text: str) -> list[str]:
    """The plugins whose rules a page shows."""
    return [name.strip() for match in ASKED.finditer(text) for name in match[2].split(",")]


def filled(text: str, registry: Registry) -> str:
    """The page with its sections written anew."""

    def section(match: re.Match[str]) -> str:
        plugins = [_plugin(registry, name.strip()) for name in match[2].split(",")]
        return f"{match[1]}\n" + "\n".join(_section(plugins, registry)) + f"\n\n{match[3]}"

    return ASKED.sub(section, text)


def first_party(registry: Registry) -> dict[str, Plugin]:
    """memcfg's own plugins: what else is installed is no business of these pages."""
    return {p.plugin.name: p.plugin for p in registry.plugins if p.first_party and p.plugin is not None}


def _plugin(registry: Registry, name: str) -> Plugin:
    found = first_party(registry)
    if name not in found:
        raise SystemExit(f"`rules of: {name}`: there is no such plugin")
    return found[name]


def pages(folder: Path, registry: Registry) -> dict[Path, str]:
    """Every page that asks for rules, as it should be."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.md"))}
    return {path: filled(text, registry) for path, text in texts.items() if ASKED.search(text)}


def _section(plugins: Sequence[Plugin], registry: Registry) -> Iterator[str]:
    options = [option for plugin in plugins for option in plugin.options if option.role != "derived"]
    settable = [option for option in options if option.role != "fact"]
    if settable:
        yield from ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
        for o in settable:
            yield f"| `{o.key}` | {_values(o, registry)} | {_usual(o, registry)} | {(o.doc or '').replace('|', '/')} |"
    bullets = _bullets(plugins, registry)
    for kind, heading in HEADINGS.items():
        if bullets[kind]:
            yield from ["", heading, "", *(f"- {text}" for text in bullets[kind])]


def _values(option: Option, registry: Registry) -> str:
    if option.kind in ("bool", "enum"):
        more = (v for plugin in first_party(registry).values() for v in plugin.provides.get(option.key, ()))
        return ", ".join(f"`{show(value)}`" for value in dict.fromkeys([*option.values, *more]))
    types = option.type if isinstance(option.type, tuple) else (option.type,) if option.kind == "setting" else (int,)
    names = {
        "int": "whole number",
        "float": "number",
        "str": "text",
        "bool": "`true`, `false`",
        "list": "list",
        "dict": "mapping",
    }
    words = " or ".join(names.get(t.__name__, t.__name__) for t in types)
    menu = getattr(option, "menu", ()) or (option.values if option.kind == "setting" and option.values else ())
    if menu:
        words = ", ".join(f"`{show(value)}`" for value in menu if value is not None)
    return words


def _usual(option: Option, registry: Registry) -> str:
    """The value where nothing is chosen, if there is one whatever else holds."""
    rules = (r for plugin in first_party(registry).values() for r in plugin.rules)
    found = [r for r in rules if isinstance(r, Default) and r.key == option.key]
    usual = getattr(option, "default", UNSET)
    if len(found) == 1 and found[0].when is ALWAYS and usual is UNSET:
        return f"`{of(option.key, found[0].values[0])}`"
    if found:
        return "below" if usual is UNSET else f"`{of(option.key, usual)}`, or below"
    return "" if usual is UNSET else f"`{of(option.key, usual)}`"


def _bullets(plugins: Sequence[Plugin], registry: Registry) -> dict[str, list[str]]:
    names = {plugin.name for plugin in plugins}
    keys = {o.key for plugin in plugins for o in plugin.options if o.role == "choice"} - {"trainer.name"}
    owned = {o.key for plugin in plugins for o in plugin.options}
    found: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    ignored: dict[tuple[str, str], list[Ignored]] = {}
    ours = {rule.id for plugin in first_party(registry).values() for rule in plugin.rules}
    for rule in _sorted((r for r in registry.theory.rules.values() if r.id in ours), names):
        own = rule.id.partition(".")[0] in names
        if own and isinstance(rule, Ignored):
            ignored.setdefault((plain(rule.when), rule.because), []).append(rule)
        elif own or _concerns(rule, keys, owned):
            kind, text = _told(rule)
            found[kind].append(f"{text} `[{rule.id}]`")
    found["refused"] += [_unread(rules) for rules in ignored.values()]
    for plugin in plugins:
        found["missing"] += [f"`{plain(item.when)}`: {item.because}" for item in plugin.not_yet]
    return found


def _concerns(rule: Rule, keys: set[str], owned: set[str]) -> bool:
    """Whether another plugin's rule belongs here: it decides an option of this page, or reads a choice of it."""
    if isinstance(rule, Default):
        return rule.key in owned
    return isinstance(rule, (Force, Require)) and bool(keys & _read(rule))


def _sorted(rules: Iterable[Rule], names: set[str]) -> list[Rule]:
    """A plugin's own rules in the order in which they are written, then those of others."""
    return sorted(rules, key=lambda rule: rule.id.partition(".")[0] not in names)


def _read(rule: Rule) -> frozenset[str]:
    conditions = [getattr(rule, name) for name in ("when", "cond") if hasattr(rule, name)]
    return frozenset().union(*map(mentions, conditions)) | frozenset([getattr(rule, "key", "")])


def _unread(rules: Sequence[Ignored]) -> str:
    """Options that nothing reads under one condition, for one reason."""
    keys = ", ".join(f"`{rule.key}`{_but(rule)}" for rule in rules)
    return f"setting {keys}{_when(rules[0].when)}, because {rules[0].because}"


def _but(rule: Ignored) -> str:
    allowed = ", ".join(f"`{show(v)}`" for v in rule.except_values)
    return f" to anything but {allowed}" if allowed else ""


def plain(expr: Expr) -> str:
    """A condition without the parentheses that reading does not need."""
    if isinstance(expr, Not) and isinstance(expr.part, Not):
        return plain(expr.part.part)
    if isinstance(expr, And):
        return " and ".join(f"({plain(p)})" if isinstance(p, Or) else plain(p) for p in expr.parts)
    if isinstance(expr, Or):
        return " or ".join(f"({plain(p)})" if isinstance(p, And) else plain(p) for p in expr.parts)
    return str(expr)


def _told(rule: Rule) -> tuple[str, str]:
    """The kind of a rule, and the rule as a sentence."""
    because = f", because {rule.because}" if rule.because else ""
    if isinstance(rule, Default):
        values = ", else ".join(f"`{rule.key}={of(rule.key, v)}`" for v in rule.values)
        return "default", f"{values}{_when(rule.when)}{because}"
    if isinstance(rule, Force):
        over = "; a choice to the contrary is overridden, with a warning" if rule.on_user == "override" else ""
        return "forced", f"`{rule.key}={of(rule.key, rule.value)}`{_when(rule.when)}{because}{over}"
    if isinstance(rule, Fallback):
        return "noted", f"`{rule.key}={show(rule.value)}` becomes `{show(rule.to)}`{_when(rule.when)}{because}"
    if isinstance(rule, (RenameKey, RenameValue, RemovedKey)):
        return "noted", _renamed(rule) + because
    if isinstance(rule, Advise):
        return "noted", f"{rule.level}{_when(rule.when)}: {rule.text}"
    return "refused", _refused(rule) + because + _instead(rule)


def _renamed(rule: Rule) -> str:
    if isinstance(rule, RenameKey):
        return f"`{rule.old}` is an old name of `{rule.new}`"
    if isinstance(rule, RenameValue):
        return f"`{rule.key}={show(rule.old)}` is an old name of `{show(rule.new)}`"
    return f"`{rule.key}` is no option any more: {rule.advice}" if isinstance(rule, RemovedKey) else ""


def _refused(rule: Rule) -> str:
    if isinstance(rule, Require):
        return f"`{plain(rule.when)}`" if rule.cond is NEVER else f"anything but `{plain(rule.cond)}`{_when(rule.when)}"
    if isinstance(rule, Check):
        return f"some values of {', '.join(f'`{key}`' for key in rule.reads)}{_when(rule.when)}"
    return f"`{rule.id}`"


def _when(condition: Expr) -> str:
    return "" if condition is ALWAYS else f" when `{plain(condition)}`"


def _instead(rule: Rule) -> str:
    suggested = getattr(rule, "suggest", ())
    return f"; instead {' or '.join(f'`{text}`' for text in suggested)}" if suggested else ""
