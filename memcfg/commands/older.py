"""A plan that an earlier version wrote has no value for options that came later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import Problem, RunError
from memcfg.report.console import Terminal
from memcfg.report.words import listed, wrapped
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET, same, show

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.expr import Option

NOTHING: Final[tuple[Any, ...]] = (None, False, [])
"""Defaults that ask for nothing: what a version did that had no such option."""
BECAUSE: Final = "the plan was written before this option came"


def completed(plan: Plan, registry: Registry, terminal: Terminal) -> Plan:
    """The plan with a value for every option; the user is told what the plugins that take part in it were given.

    Raises `RunError` for options of those whose default would do what the plan's own version perhaps did not."""
    lacking = {key: option for key, option in sorted(registry.options.items()) if key not in plan}
    read = [key for key in lacking if registry.owners.get(key) in plan.active]
    _refuse([key for key in read if not _asks_nothing(lacking[key])])
    if read:
        taken = listed([f"{key}={show(lacking[key].default)}" for key in read], "and")
        terminal.say("\n".join(wrapped(f"{BECAUSE}, and it runs with {taken}", "  ", "note: ")))
    return replace(plan, decisions={**plan.decisions, **{key: _default(option) for key, option in lacking.items()}})


def _refuse(keys: list[str]) -> None:
    if keys:
        *others, last = (Problem(f"{BECAUSE}, and has no value for it", key=key) for key in keys)
        raise RunError(*others, replace(last, fix="resolve the request again, into another `run.dir`"))


def _asks_nothing(option: Option) -> bool:
    default = option.default
    return default is not UNSET and (option.free or any(same(default, value) for value in NOTHING))


def _default(option: Option) -> Decision:
    value: Any = option.default
    return Decision(value, "default", because=BECAUSE, role=option.role, secret=option.secret, free=option.free)
