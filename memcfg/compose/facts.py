"""Facts: what is true of this host and of the files at hand, asked before anything is resolved."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memcfg.errors import MemcfgError, PluginError
from memcfg.solver.expr import PENDING, UNSET, same

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.expr import Option
    from memcfg.solver.request import Request


def probe(registry: Registry, choices: Mapping[str, Any], skip: Collection[str] = ()) -> dict[str, Any]:
    """Ask every fact's probe, handing it the chosen values by key; facts in `skip` are not asked.

    A value may be `PENDING`: only the network or the data can tell. Raises `PluginError` for a probe that fails."""
    facts = [option for option in registry.options.values() if option.role == "fact" and option.key not in skip]
    return {fact.key: _ask(registry, fact, str(fact.probe), choices) for fact in facts}


def stated(registry: Registry, choices: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Those of these facts that a choice decides: the choice's key, and what the fact's probe says without it."""
    found: dict[str, tuple[str, Any]] = {}
    for fact in (registry.options[key] for key in facts):
        if fact.stated_by is not None and fact.stated_by in choices:
            without = {key: value for key, value in choices.items() if key != fact.stated_by}
            found[fact.key] = fact.stated_by, _ask(registry, fact, str(fact.probe), without)
    return {key: said for key, said in found.items() if not same(said[1], facts[key])}


def learn(registry: Registry, facts: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these facts that the network or the data can tell, now that they are needed. Raises what `learn` functions
    raise, and `PluginError` for one that fails."""
    asked = [registry.options[key] for key in facts if registry.options[key].learn is not None]
    found = {fact.key: _ask(registry, fact, str(fact.learn), values) for fact in asked}
    return {key: value for key, value in found.items() if value is not PENDING}


def learnt(request: Request, plan: Plan, registry: Registry) -> tuple[Request, Plan]:
    """The request and its plan with every fact known that can be known before anything is built.

    What was decided stands: a fact that turns out to contradict it is a `ConflictError`, never a silent change."""
    while plan.pending:
        values = {key: decision.value for key, decision in plan.decisions.items() if decision.value is not UNSET}
        found = learn(registry, [pending.fact for pending in plan.pending], values)
        if not found:
            break
        request = replace(request, facts={**request.facts, **found}, decided=plan.decisions)
        plan = registry.plan(request)
    return request, plan


def _ask(registry: Registry, fact: Option, target: str, values: Mapping[str, Any]) -> Any:
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(values)
    except MemcfgError:
        raise
    except Exception as error:
        what = "probe" if target == fact.probe else "function"
        text = f"the {what} `{target}` of the fact `{fact.key}` failed: {type(error).__name__}: {error}"
        owner = registry.owners.get(fact.key, "unknown")
        found = next((p for p in registry.plugins if p.name == owner), None)
        distribution = None if found is None else found.distribution
        raise PluginError(text, owner, distribution, traceback.format_exc()) from error
