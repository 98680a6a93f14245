"""Whether a plan is still that of a run that was begun: every option that decides the result must be as it was."""

from __future__ import annotations

from typing import Final

from memcfg import planfile
from memcfg.errors import Problem, RunError
from memcfg.plan import Plan
from memcfg.solver.expr import UNSET, same, show

COUNTED_FACTS: Final = ("device.type", "world.size")
"""The facts of a host that decide the result by themselves; what others decide shows in the options."""


def refuse_changed(plan: Plan, then: Plan, begun: str = "the checkpoint") -> None:
    """Raises `RunError` with every option that decides the result and is not as it was in the plan `then`, that of what
    `begun` names. An option that one of them lacks, of a plugin that came or went, counts where somebody chose it."""
    changed = [key for key in sorted({*plan.decisions, *then.decisions}) if _changed(key, plan, then)]
    if changed:
        problems = [Problem(f"{begun} has {_shown(then, key)}, this run {_shown(plan, key)}", key) for key in changed]
        fix = (
            f"leave out what {begun} does not have, or begin a new run: the result would be that of neither"
            if all(key not in then.decisions for key in changed)
            else f"give it the value of {begun}, or begin a new run: the result would be that of neither"
        )
        raise RunError(*problems[:-1], Problem(problems[-1].text, problems[-1].key, fix=fix))


def _changed(key: str, plan: Plan, then: Plan) -> bool:
    now, was = plan.decisions.get(key), then.decisions.get(key)
    if now is None or was is None:
        one = now or was
        return one is not None and one.kind == "you" and not one.free and not one.secret
    if now.free or now.secret or (now.role == "fact" and key not in COUNTED_FACTS):
        return False
    return not same(planfile.plain(now.value), planfile.plain(was.value))


def _shown(plan: Plan, key: str) -> str:
    decision = plan.decisions.get(key)
    return (
        "no such option" if decision is None else "nothing" if decision.value is UNSET else f"`{show(decision.value)}`"
    )
