"""Brings the built-in rewards, and functions that the user named by their module and trusts."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.judging import OPTION, Bench, Judge, Reward
from memcfg_rewards.folders import OPTION as MODELS
from memcfg_rewards.folders import labels
from memcfg_rewards.verifiable import finished, kinds

BUILT_IN = (Reward("kinds", kinds), Reward("finished", finished))


@hookimpl
def memcfg_rewards(plan: Plan, found: list[Any], bench: Bench) -> list[Any]:
    """Names with a colon are functions of modules."""
    named = dict.fromkeys(name for name in plan["rewards.functions"] if isinstance(name, str) and ":" in name)
    judge = plan.get("online_dpo.judge")
    judges = [Judge(judge, imported(judge, plan, "online_dpo.judge"))] if judge and ":" in judge else []
    models = _models(plan, bench) if judge is None else []
    return [*found, *BUILT_IN, *(Reward(name, imported(name, plan, OPTION)) for name in named), *judges, *models]


def _models(plan: Plan, bench: Bench) -> list[Reward]:
    paths = plan["rewards.models"]
    if not paths:
        return []
    from memcfg_rewards.models import load  # Transformers' models, which other rewards need not wait for

    return [
        Reward(path, load(plan, path, bench), label, MODELS) for path, label in zip(paths, labels(paths), strict=True)
    ]


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Raises `RequestError` for reward models: functions run on the host and need nothing of the device."""
    if plan["rewards.models"]:
        text = "what a reward model takes beside the policy is not simulated"
        raise RequestError(Problem(text, key=MODELS, fix="predict `rewards.models=[] rewards.functions=[finished]`"))
    return stands_in


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The functions that the objective calls."""
    rewards = getattr(run.objective, "rewards", None)
    if rewards is None:
        return found
    text = ", ".join(f"{weight:g} x `{name}`" for name, weight in zip(rewards.names, rewards.weights, strict=True))
    models = [reward for reward in rewards.functions if reward.option == MODELS]
    said = "; ".join(reward.function.describe() for reward in models) or "no model judges"
    return [
        *found,
        Effective("rewards.functions", [r.name for r in rewards.functions if r.option != MODELS], text),
        Effective("rewards.models", [reward.name for reward in models], said),
    ]


def imported(name: str, plan: Plan, option: str) -> Callable[..., Any]:
    """The function that `module:function` names. Raises `RequestError` where there is none, or it is not trusted."""
    if not plan["rewards.trust_code"]:
        text = f"`{name}` is code of its own, which is imported only where you say so"
        raise RequestError(Problem(text, key=option, fix="rewards.trust_code=true"))
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        text = f"`{name}` does not name a module and a function of it"
        raise RequestError(Problem(text, key=option, fix="write `my_rewards:score` for `score` of `my_rewards.py`"))
    _look_here()
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise RequestError(
            Problem(f"`{name}` cannot be imported: {type(error).__name__}: {error}", key=option)
        ) from error
    if not callable(function):
        raise RequestError(Problem(f"`{name}` is no function", key=option))
    found: Callable[..., Any] = function
    return found


def _look_here() -> None:
    """Let modules of the working directory be imported, after all others. `python -m memcfg` looks there anyway; the program
    `memcfg` does not."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
