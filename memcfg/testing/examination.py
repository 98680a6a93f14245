"""The kit's checks of an installed plugin, all of them: for `memcfg plugins test`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from memcfg.errors import ConflictError, MemcfgError
from memcfg.plan import Plan
from memcfg.registry.hooks import PREFIX, SPECS, Hooks
from memcfg.registry.installed import Installed
from memcfg.registry.registry import load
from memcfg.solver.rules import Check
from memcfg.testing.conservative import changes
from memcfg.testing.imports import imported
from memcfg.testing.linting import findings
from memcfg.testing.rules import unexercised
from memcfg.testing.subject import with_it
from memcfg.testing.witnesses import witnesses

SHOWN: Final = 5
"""Lines that are told of one fault; there may be hundreds that are alike."""


@dataclass(frozen=True)
class Checked:
    """One check. `result`: ok; fault; note (worth a look, no fault); skipped. `lines` say what was found."""

    name: str
    result: Literal["ok", "fault", "note", "skipped"]
    lines: tuple[str, ...] = ()


def examine(found: Installed) -> Iterator[Checked]:
    """Check a plugin as it is installed. One that is broken or off is not looked at further."""
    if found.plugin is None or found.status != "ok":
        yield Checked("declaration", "fault", (f"{found.status}: {found.error}",))
        return
    what = f"{len(found.plugin.options)} options, {len(found.plugin.rules)} rules, plugin interface {found.plugin.api}"
    yield Checked("declaration", "ok", (what,))
    checks: dict[str, Callable[[Installed], Checked]] = {
        "light import": _light, "hooks": _hooks, "config groups": _groups, "conservative": _conservative, "lint": _lint,
        "rules": _rules,
    }  # fmt: skip
    for name, check in checks.items():
        try:
            yield check(found)
        except (MemcfgError, AssertionError) as error:
            yield Checked(name, "fault", tuple(str(error).splitlines()))


def _light(found: Installed) -> Checked:
    module = found.entry_point.partition(":")[0]
    if found.local or not module:
        return Checked("light import", "skipped", ("it is a file of this folder",))
    seen = imported(module)
    if seen.heavy:
        return Checked("light import", "fault", (f"importing `{module}` also imports {', '.join(seen.heavy)}",))
    return Checked("light import", "ok", (f"{seen.ms:.0f} ms",))


def _hooks(found: Installed) -> Checked:
    """Imports the hooks: they exist, and their parameters are those of the specifications."""
    if found.plugin is None or found.plugin.hooks is None:
        return Checked("hooks", "skipped", ("it has none",))
    hooks = Hooks(Plan({}), [found])
    names = [name for name in SPECS if hooks.implementers(name.removeprefix(PREFIX))]
    return Checked("hooks", "ok" if names else "note", (", ".join(names) or "the module implements none",))


def _groups(found: Installed) -> Checked:
    """Each file of its own config groups is composed and resolved. One that needs more than itself may conflict."""
    from memcfg.compose.groups import conf_folders, groups_in
    from memcfg.compose.request import resolve

    plugin = found.plugin
    assert plugin is not None
    if plugin.conf is None:
        return Checked("config groups", "skipped", ("it has none of its own",))
    registry = with_it(plugin)
    words = [f"{group}={name}" for group, names in groups_in(conf_folders([plugin.conf])).items() for name in names]
    faults = []
    for word in words:
        try:
            resolve([word], registry=registry)
        except ConflictError:
            continue
        except MemcfgError as error:
            faults += [f"{word}: {line}" for line in str(error).splitlines()]
    if not words:
        return Checked("config groups", "fault", (f"`{plugin.conf}` holds no file `GROUP/NAME.yaml`",))
    return Checked("config groups", "fault" if faults else "ok", tuple(faults) or (", ".join(words),))


def _conservative(found: Installed) -> Checked:
    if found.first_party:
        return Checked("conservative", "skipped", ("it is a part of memcfg",))
    assert found.plugin is not None
    changed = [line.strip() for line in islice(changes(found.plugin), SHOWN)]
    untouched = ("requests that do not mention it resolve as without it",)
    return Checked("conservative", "fault" if changed else "ok", tuple(changed) or untouched)


def _lint(found: Installed) -> Checked:
    if found.first_party:
        return Checked("lint", "skipped", ("`memcfg lint` looks at memcfg itself",))
    assert found.plugin is not None
    faults = findings(found.plugin)
    return Checked("lint", "fault" if faults else "ok", tuple(f"{f.name}: {f.text}" for f in faults) or ("no fault",))


def _rules(found: Installed) -> Checked:
    """Whether each rule changes some request that its condition suggests."""
    plugin = found.plugin
    assert plugin is not None
    theory = (load() if found.first_party else with_it(plugin)).theory
    idle = [
        rule.id
        for rule in plugin.rules
        if isinstance(rule, Check) or rule.id in unexercised(plugin, theory, witnesses(rule, theory), only=rule.id)
    ]
    if not idle:
        return Checked("rules", "ok", ("each changes some request",))
    return Checked("rules", "note", ("no request was found that these change: let a test show one", *idle))
