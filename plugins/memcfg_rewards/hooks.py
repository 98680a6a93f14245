"""Brings the built-in rewards, and functions that the user named by their module and trusts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.judging import OPTION, Judge, Reward
from memcfg_rewards.verifiable import finished, kinds

BUILT_IN = (Reward("kinds", kinds), Reward("finished", finished))


@hookimpl
def memcfg_rewards(plan: Plan, found: list[Any]) -> list[Any]:
    """Names with a colon are functions of modules."""
    named = [name for name in plan["rewards.functions"] if isinstance(name, str) and ":" in name]
    judge = plan.get("online_dpo.judge")
    judges = [Judge(judge, imported(judge, plan, "online_dpo.judge"))] if judge and ":" in judge else []
    return [*found, *BUILT_IN, *(Reward(name, imported(name, plan, OPTION)) for name in named), *judges]


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The functions that the objective calls."""
    rewards = getattr(run.objective, "rewards", None)
    if rewards is None:
        return found
    text = ", ".join(f"{weight:g} x `{name}`" for name, weight in zip(rewards.names, rewards.weights, strict=True))
    return [*found, Effective("rewards.functions", rewards.names, text)]


def imported(name: str, plan: Plan, option: str) -> Callable[..., Any]:
    """The function that `module:function` names. Raises `RequestError` where there is none, or it is not trusted."""
    if not plan["rewards.trust_code"]:
        text = f"`{name}` is code of its own, which is imported only where you say so"
        raise RequestError(Problem(text, key=option, fix="rewards.trust_code=true"))
    module, _, attribute = name.partition(":")
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
