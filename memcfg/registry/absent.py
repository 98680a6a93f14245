"""Why a key or value may be unknown: the plugin that has it is broken, or switched off.

A plugin whose module failed to import cannot say what it would have offered, so it is suspected: strongly if the request
spells its name, weakly otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memcfg.errors import PluginError, Problem, RequestError
from memcfg.registry.installed import Installed, described
from memcfg.solver.expr import UNSET, Option, same


def explained(
    error: RequestError, plugins: Sequence[Installed], options: Mapping[str, Option], values: Mapping[str, Any]
) -> RequestError | PluginError:
    """The same error, its problems saying which absent plugin may have what they miss.

    If it is clear that a broken plugin has it, the error becomes that plugin's `PluginError`, with its traceback."""
    absent = [p for p in plugins if p.status != "ok"]
    if not absent:
        return error
    problems, cause = [], None
    for problem in error.problems:
        value = values.get(problem.key or "", UNSET)
        if not _unknown(problem, value, options):
            problems.append(problem)
            continue
        certain = [p for p in absent if _has(p, problem.key or "", value)]
        cause = cause or next((p for p in certain if p.status == "broken"), None)
        problems.append(_with_hints(problem, certain or absent))
    return RequestError(*problems) if cause is None else _plugin_error(cause, problems)


def _unknown(problem: Problem, value: Any, options: Mapping[str, Option]) -> bool:
    """Whether the problem may come from a missing option or a missing entry of an open menu."""
    option = options.get(problem.key or "")
    return option is None or (option.open and not any(same(value, v) for v in option.values))


def _has(absent: Installed, key: str, value: Any) -> bool:
    """Whether a plugin declares the key or provides the value, or, where it could not be read, bears its name."""
    group = key.partition(".")[0]
    if absent.plugin is None:
        return absent.name in (group, value)
    provided = absent.plugin.provides.get(key, ())
    return value in provided or group in absent.plugin.groups or key in {o.key for o in absent.plugin.options}


def _with_hints(problem: Problem, suspects: Sequence[Installed]) -> Problem:
    lines = [problem.fix] if problem.fix else []
    return replace(problem, fix="\n  ".join([*lines, *map(_hint, suspects)]))


def _hint(absent: Installed) -> str:
    if absent.status == "off":
        return f"{described(absent)} is {absent.error}"
    return f"{described(absent)} could not be loaded: {absent.error}"


def _plugin_error(cause: Installed, problems: Sequence[Problem]) -> PluginError:
    error = PluginError("could not be loaded", cause.name, cause.distribution, cause.trace)
    error.problems = tuple(problems)
    error.args = error.problems
    error.exit_code = RequestError.exit_code
    return error
