"""What a plugin is: one frozen object of plain data, named by an entry point of the group `memcfg`.

    plugin = Plugin(
        name="focal",
        options=[gamma],
        rules=[...],
        provides={"loss.type": ("focal",)},
        conf="pkg://memcfg_focal.conf",
        hooks="memcfg_focal.hooks",
    )

Importing the module that holds it must stay light (a few milliseconds; no torch). Everything heavy lives in the module
that `hooks` names, which is imported only when the plan makes the plugin active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memcfg.solver.expr import Expr, Option
from memcfg.solver.rules import Rule

API = 1
"""The plugin interface that this memcfg offers."""

OLDEST_API = 1
"""The oldest plugin interface that this memcfg still understands."""


@dataclass(frozen=True)
class NotYet:
    """A choice whose rules exist before its implementation: a plan in which `when` holds resolves, with a warning, and is
    refused before anything is built. `because` completes "this version cannot run it yet: ...".
    """

    when: Expr
    because: str


@dataclass(frozen=True)
class Axis:
    """An option that the planner may vary to make a run fit: `values` of `key`, from the fastest to the one that needs
    least. `changes` tells, for a value that changes what is learned, how; values without an entry change nothing."""

    key: str
    values: tuple[Any, ...]
    changes: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin's declaration.

    `options`: options, settings and facts it owns. `rules`: ids begin with `<name>.`. `provides`: menu values it adds
    to open options and implements; of its own options it implements the whole menu, or just what it lists here.
    `hooks`: dotted module of hook implementations. `active`: when that module is needed beyond the obvious, which is
    whenever the selector of an exclusive hook has a value that the plugin implements; the default adds nothing, except
    that a plugin which implements no such value is always active. `conf`: Hydra search path (`pkg://...`) of its config
    groups; `None` for first-party plugins, whose groups lie in `conf/`. `groups`: config groups for which the plugin
    answers, `{group: doc line}`. `commands`: sub-commands of `memcfg`, `{name: "module:function"}`; the function takes
    the remaining arguments and returns an exit code. `preflight`: "module:function", called with the plan before anything
    heavy is imported for a run; it raises a `MemcfgError` for what would stop the run later, such as a file that is not
    there. A second parameter `tell`, if it has one, takes lines that the user should hear meanwhile. `not_yet`: what its rules allow but its hooks cannot do yet. `axes`:
    what the planner may vary. `allowed`: what `memcfg lint` finds in its rules and is meant, `{finding: reason}`. `api`: the
    interface it was written for."""

    name: str
    api: int = API
    doc: str = ""
    options: Sequence[Option] = ()
    rules: Sequence[Rule] = ()
    provides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hooks: str | None = None
    active: Expr | None = None
    conf: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    preflight: str | None = None
    not_yet: Sequence[NotYet] = ()
    axes: Sequence[Axis] = ()
    allowed: Mapping[str, str] = field(default_factory=dict)
