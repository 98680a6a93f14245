"""Facts: what is true of this host and of the files at hand, asked before anything is resolved."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from memcfg.errors import MemcfgError, PluginError

if TYPE_CHECKING:
    from memcfg.registry import Registry
    from memcfg.solver.expr import Option


def probe(registry: Registry, choices: Mapping[str, Any], skip: Collection[str] = ()) -> dict[str, Any]:
    """Ask every fact's probe, handing it the chosen values by key; facts in `skip` are not asked.

    A value may be `PENDING`: only the network or the data can tell. Raises `PluginError` for a probe that fails."""
    facts = [option for option in registry.options.values() if option.role == "fact" and option.key not in skip]
    return {fact.key: _ask(registry, fact, choices) for fact in facts}


def _ask(registry: Registry, fact: Option, choices: Mapping[str, Any]) -> Any:
    module, _, name = str(fact.probe).partition(":")
    try:
        return getattr(importlib.import_module(module), name)(choices)
    except MemcfgError:
        raise
    except Exception as error:
        text = f"the probe `{fact.probe}` of the fact `{fact.key}` failed: {type(error).__name__}: {error}"
        owner = registry.owners.get(fact.key, "unknown")
        found = next((p for p in registry.plugins if p.name == owner), None)
        distribution = None if found is None else found.distribution
        raise PluginError(text, owner, distribution, traceback.format_exc()) from error
