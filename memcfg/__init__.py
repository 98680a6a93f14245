"""memcfg: a declarative config compiler and plugin registry that makes a fine-tuning run fit in memory."""

from importlib import import_module
from typing import Any

from memcfg.errors import (
    Away,
    Conflict,
    ConflictError,
    DataError,
    MemcfgError,
    Note,
    PluginError,
    Problem,
    RequestError,
    RuleError,
    RunError,
)
from memcfg.plan import Decision, Plan
from memcfg.registry._markers import hookimpl
from memcfg.registry.plugin import API, Axis, NotYet, Plugin
from memcfg.solver.expr import ALWAYS, PENDING, UNSET, Bool, Enum, Expr, Fact, Int, Option, Setting, key
from memcfg.solver.rules import (
    Advise,
    Check,
    Default,
    Fallback,
    Forbid,
    Force,
    Ignored,
    RemovedKey,
    RenameKey,
    RenameValue,
    Require,
    Rule,
    only_when,
)

__version__ = "0.1.0"

__all__ = [
    "ALWAYS",
    "API",
    "PENDING",
    "UNSET",
    "Advise",
    "Axis",
    "Bool",
    "Check",
    "Conflict",
    "ConflictError",
    "DataError",
    "Decision",
    "Default",
    "Enum",
    "Expr",
    "Fact",
    "Fallback",
    "Forbid",
    "Force",
    "Ignored",
    "Int",
    "MemcfgError",
    "NotYet",
    "Note",
    "Option",
    "Plan",
    "Plugin",
    "PluginError",
    "Problem",
    "RemovedKey",
    "RenameKey",
    "RenameValue",
    "RequestError",
    "Require",
    "Rule",
    "RuleError",
    "RunError",
    "Setting",
    "hookimpl",
    "key",
    "only_when",
]


def __getattr__(name: str) -> Any:
    """`memcfg.compose` and `memcfg.resolve`, imported on first use: they bring Hydra, which plugins need not load."""
    if name == "compose":
        return import_module("memcfg.compose")
    if name == "resolve":
        return import_module("memcfg.compose").resolve
    raise AttributeError(f"module `memcfg` has no attribute `{name}`")
