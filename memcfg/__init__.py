"""memcfg: a declarative config compiler and plugin registry that makes a fine-tuning run fit in memory."""

from memcfg.errors import (
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
from memcfg.registry.plugin import API, Plugin
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
)

__version__ = "0.1.0"
