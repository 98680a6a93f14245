"""What a plugin is: one frozen object of plain data, named by an entry point of the group `memcfg`.

    plugin = Plugin(
        name="focal",
        options=[gamma],
        rules=[...],
        provides={"loss.type": ("focal",)},
        conf="pkg://memcfg_focal.conf",
        hooks="memcfg_focal.hooks",
        active=key("loss.type") == "focal",
    )

Importing the module that holds it must stay light (a few milliseconds; no torch). Everything heavy lives in the module
that `hooks` names, which is imported only when `active` holds in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memcfg.solver.expr import ALWAYS, Expr, Option
from memcfg.solver.rules import Rule

API = 1
"""The plugin interface that this memcfg offers."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin's declaration.

    `options`: options, settings and facts it owns. `rules`: ids begin with `<name>.`. `provides`: menu values it adds
    to open options and implements (its own included). `hooks`: dotted module of pluggy implementations. `active`: when
    that module is needed. `conf`: Hydra search path (`pkg://...`) of its config groups; `None` for first-party plugins,
    whose groups lie in `conf/`. `groups`: config groups for which the plugin answers, `{group: doc line}`. `commands`:
    sub-commands of `memcfg`, `{name: "module:function"}`; the function takes the remaining arguments and returns an
    exit code. `api`: the interface it was written for."""

    name: str
    api: int = API
    doc: str = ""
    options: Sequence[Option] = ()
    rules: Sequence[Rule] = ()
    provides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hooks: str | None = None
    active: Expr = ALWAYS
    conf: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
