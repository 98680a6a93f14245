"""One plugin with everything that it brings: for `memcfg plugins show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memcfg.report.words import listed, value, wrapped
from memcfg.solver.expr import ALWAYS, UNSET, Option, show
from memcfg.solver.retell import says
from memcfg.solver.rules import Advise, Check, Default, RemovedKey, RenameKey, RenameValue, Rule

if TYPE_CHECKING:
    from memcfg.registry import Installed
    from memcfg.registry.plugin import Plugin


def show_plugin(found: Installed, hooks: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The page, line by line. `hooks` are those that it implements, `groups` its config groups with their names."""
    doc = f": {found.plugin.doc}" if found.plugin and found.plugin.doc else ""
    lines = wrapped(f"{found.name}{doc}", "  ", first="")
    lines += wrapped(_origin(found), "  ", first="  ")
    if found.status != "ok":
        lines += wrapped(f"{found.status}: {found.error}", "    ", first="  ")
    if found.plugin is not None:
        for title, part in _parts(found.plugin, hooks, groups):
            lines += ["", title, *part]
    return lines


def _origin(found: Installed) -> str:
    interface = f", plugin interface {found.plugin.api}" if found.plugin else ""
    where = f" (`{found.entry_point}`)" if found.entry_point else ""
    return f"from {found.distribution} {found.version}".rstrip() + f"{where}, {found.status}{interface}"


def _parts(
    plugin: Plugin, hooks: Sequence[str], groups: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[str]]]:
    sections = {
        "options": [line for option in plugin.options for line in _option(option, plugin.rules)],
        "rules": [line for rule in plugin.rules for line in _rule(rule)],
        "values": _listed(f"{key}={show(v)}" for key, values in plugin.provides.items() for v in values),
        "hooks": [*_listed(hooks), *([f"  in {plugin.hooks}, {_when(plugin)}"] if plugin.hooks else [])],
        "config groups": [
            line for group, names in groups.items() for line in wrapped(f"{group}: {', '.join(names)}", "    ", "  ")
        ],
        "commands": [f"  {name} ({target})" for name, target in plugin.commands.items()],
        "planner axes": _listed(f"{axis.key}: {', '.join(map(show, axis.values))}" for axis in plugin.axes),
        "not yet": [
            line for item in plugin.not_yet for line in wrapped(f"`{item.when}`: {item.because}", "    ", first="  ")
        ],
    }
    yield from ((title, lines) for title, lines in sections.items() if lines)


def _when(plugin: Plugin) -> str:
    if plugin.active is None:
        return "imported where a value of this plugin is chosen"
    return "imported in every run" if plugin.active == ALWAYS else f"imported where `{plugin.active}`"


def _listed(names: Any) -> list[str]:
    return [line for name in names for line in wrapped(str(name), "    ", first="  ")]


def _option(option: Option, rules: Sequence[Rule]) -> Iterator[str]:
    yield from wrapped(f"{option.key}: {domain(option)}; {default(option, rules)}", "    ", first="  ")
    yield from wrapped(option.doc, "    ", first="    ")


def domain(option: Option) -> str:
    """What values an option takes, in words."""
    menu = [value(item) for item in option.values]
    if option.kind == "setting":
        types = option.type if isinstance(option.type, tuple) else (option.type,)
        words = " or ".join(getattr(kind, "__name__", str(kind)) for kind in types)
        text = f"{words}, one of {', '.join(menu)}" if menu else words
    else:
        text = "whole number" if option.kind == "int" else ", ".join(menu)
    text += f" of at least {option.minimum:g}" if option.minimum is not None else ""
    text += f" of at most {option.maximum:g}" if option.maximum is not None else ""
    text += f" ({option.unit})" if option.unit else ""
    text += ", and what other plugins add" if option.open else ""
    return text + (", or null" if option.nullable else "")


def default(option: Option, rules: Sequence[Rule]) -> str:
    """Where its value comes from if nobody chooses one, in words."""
    if option.role == "fact":
        return f"a fact, from `{option.probe}`"
    if option.role == "derived":
        return "follows from others"
    if option.default is not UNSET:
        return f"default {value(option.default)}"
    plain = [rule for rule in rules if isinstance(rule, Default) and rule.key == option.key]
    always = [rule for rule in plain if rule.when == ALWAYS]
    if len(plain) == len(always) == 1:
        return f"default {show(always[0].values[0])}"
    return "default by rule" if plain else "no default of its own"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"  {rule.id}"
    yield from wrapped(f"{statement(rule)}, because {rule.because}", "    ", first="    ")
    if rule.ref:
        yield f"    see {rule.ref}"


def statement(rule: Rule) -> str:
    """What a rule of any kind says, without its reason."""
    when = "" if getattr(rule, "when", ALWAYS) == ALWAYS else f" when `{rule.when}`"  # type: ignore[attr-defined]
    if isinstance(rule, Default):
        first, *others = (f"`{rule.key}={show(item)}`" for item in rule.values)
        return f"proposes {first}{''.join(f', else {other}' for other in others)}{when}"
    if isinstance(rule, RenameKey):
        return f"`{rule.old}` is now called `{rule.new}`"
    if isinstance(rule, RenameValue):
        return f"`{rule.key}={show(rule.old)}` is now called `{rule.key}={show(rule.new)}`"
    if isinstance(rule, RemovedKey):
        return f"`{rule.key}` is gone: {rule.advice}"
    if isinstance(rule, Advise):
        return f'leaves the {rule.level} "{rule.text}"{when}'
    if isinstance(rule, Check):
        return f"checks {listed(rule.reads, 'and')}{when}"
    return says(rule)


def plugin_data(found: Installed, hooks: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What `plugins show --json` prints."""
    plugin = found.plugin
    about = {
        "ok": found.status == "ok", "name": found.name, "distribution": found.distribution, "version": found.version,
        "entry_point": found.entry_point, "status": found.status, "error": found.error,
    }  # fmt: skip
    if plugin is None:
        return about
    return {
        **about,
        "doc": plugin.doc,
        "api": plugin.api,
        "options": [_option_data(option, plugin.rules) for option in plugin.options],
        "rules": [_rule_data(rule) for rule in plugin.rules],
        "provides": {key: list(values) for key, values in plugin.provides.items()},
        "hooks": {
            "module": plugin.hooks,
            "implements": list(hooks),
            "active": None if plugin.active is None else str(plugin.active),
        },
        "groups": {group: list(names) for group, names in groups.items()},
        "commands": dict(plugin.commands),
        "not_yet": {str(item.when): item.because for item in plugin.not_yet},
    }


def _option_data(option: Option, rules: Sequence[Rule]) -> dict[str, Any]:
    return {
        "key": option.key, "role": option.role, "kind": option.kind, "values": list(option.values), "domain": domain(option),
        "default": default(option, rules), "doc": option.doc,
    }  # fmt: skip


def _rule_data(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id, "kind": type(rule).__name__, "says": statement(rule), "because": rule.because, "ref": rule.ref,
        "source": str(rule.source) if rule.source else None,
    }  # fmt: skip
