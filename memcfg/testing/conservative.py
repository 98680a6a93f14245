"""That a plugin changes no run which does not mention it: option by option, the same plan with it and without it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from memcfg.registry.plugin import Plugin
from memcfg.registry.registry import Registry
from memcfg.solver.expr import Option
from memcfg.testing.outcome import CPU, GPU, outcome, request_of
from memcfg.testing.subject import declaration, with_it, without_it

GROUPS: Final = 60
"""Random requests beside the systematic ones."""


def assert_conservative(plugin: Plugin | str, requests: Iterable[Mapping[str, Any]] | None = None) -> None:
    """Fail if memcfg with the plugin (or the installed one of this name) resolves any request otherwise than without it.

    `requests` are values by key. By default: each value of each option that rules read, alone, and random groups of
    them, on a CPU and on a GPU."""
    changed = list(changes(plugin, requests))
    if changed:
        raise AssertionError("\n".join(["requests that do not mention the plugin are resolved otherwise:", *changed]))


def changes(plugin: Plugin | str, requests: Iterable[Mapping[str, Any]] | None = None) -> Iterator[str]:
    """What the plugin changes though it is not mentioned, a line each."""
    plugin = declaration(plugin)
    present, absent = with_it(plugin), without_it()
    draw = random.Random(0)
    for values in everything(absent) if requests is None else list(requests):
        for host in hosts(absent, draw):
            if change := _change(values, host, present, absent, plugin.name):
                said = {**values, "device.type": host["device.type"]}
                yield f"  {' '.join(f'{key}={value}' for key, value in said.items())}: {change}"


def hosts(registry: Registry, draw: random.Random) -> list[dict[str, Any]]:
    """A CPU on which no yes-or-no fact is true (nothing optional is installed), and a GPU with some that are drawn."""
    yes_or_no = [o.key for o in registry.options.values() if o.role == "fact" and o.kind == "bool"]
    return [{**dict.fromkeys(yes_or_no, False), **CPU}, {**{key: draw.random() < 0.5 for key in yes_or_no}, **GPU}]


def _change(
    values: Mapping[str, Any], host: Mapping[str, Any], present: Registry, absent: Registry, plugin: str
) -> str | None:
    request, keys = request_of(values, absent.theory, host), tuple(absent.options)
    before, after = (
        outcome(registry.theory, request, keys, apart_from=plugin, repairs=False) for registry in (absent, present)
    )
    if before != after:
        return _first_difference(before, outcome(present.theory, request, keys, repairs=False))
    if isinstance(before[0], dict):
        return _woken({key: decision.value for key, decision in before[0].items()}, present, absent)
    return None


def everything(registry: Registry) -> list[dict[str, Any]]:
    """Requests over every option that rules read: nothing, each value by itself, and groups of values drawn once for all. A
    trainer's own options come with that trainer."""
    options = [o for o in registry.options.values() if o.role == "choice" and o.values and _solved(o, registry)]
    trainers, draw = registry.options["trainer.name"].values, random.Random(0)
    alone = [{**_trained(option, trainers), option.key: value} for option in options for value in option.values]
    groups = [
        {
            option.key: draw.choice(option.values)
            for option in draw.sample(options, min(len(options), draw.randint(2, 4)))
        }
        for _ in range(GROUPS)
    ]
    return [{}, *alone, *groups]


def _trained(option: Option, trainers: Sequence[Any]) -> dict[str, Any]:
    section = option.key.partition(".")[0]
    return {"trainer.name": section} if section in trainers else {}


def _solved(option: Option, registry: Registry) -> bool:
    return option.key in registry.theory.variables.index


def _woken(values: Mapping[str, Any], present: Registry, absent: Registry) -> str | None:
    """The plan is the same: so must be the plugins that carry it out."""
    hooked = {p.name for p in present.plugins if p.plugin is not None and p.plugin.hooks is not None}
    more = [name for name in present.active(values) if name in hooked and name not in absent.active(values)]
    return f"plugin `{more[0]}` is active (give it an `active=` condition)" if more else None


def _first_difference(before: Any, after: Any) -> str:
    if type(before) is not type(after) or isinstance(before, str):
        return f"{_told(before)}, and with it {_told(after)}"
    if isinstance(before[0], dict) and isinstance(after[0], dict):
        for key, decision in before[0].items():
            if decision != after[0][key]:
                new = after[0][key]
                return f"`{key}` is `{decision.value}`, and with it `{new.value}` ({new.kind}: {new.rule})"
        return f"its notes are {[n.text for n in before[1]]}, and with it {[n.text for n in after[1]]}"
    return f"{_told(before)}, and with it {_told(after)}"


def _told(result: Any) -> str:
    if isinstance(result, str):
        return f"it is refused ({result})"
    if isinstance(result[0], dict):
        return "it has a plan"
    return f"it is a conflict of {sorted({rule for _, rules in result[0] for rule in rules})}"
