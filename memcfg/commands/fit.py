"""The planner around training: techniques chosen for a budget, what was to be expected, and why memory ran out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import MemcfgError, Note, OutOfMemory, Problem, RequestError
from memcfg.report.words import gib
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET, show
from memcfg.solver.request import Choice, Request

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.planner.machine import Machine
    from memcfg.planner.search import Ladder
    from memcfg.registry import Registry
    from memcfg.report.console import Terminal

RULE: Final = "budget.bytes.planner"
"""What a plan names as the reason for what the planner chose."""

NOTHING: Final[Callable[..., Any]] = lambda text, share=None, begins=False: None  # noqa: E731


def fitted(request: Request, registry: Registry, tell: Callable[..., Any] = NOTHING) -> Plan:
    """The plan for a request with a budget: if it does not fit, the fastest set of lossless techniques that does.

    What the planner chose stands in the plan with its reason. Raises `RequestError` where nothing fits."""
    plan = registry.plan(request)
    if plan.get("budget.bytes") is None or plan.pending:
        return plan
    from memcfg.planner.predict import predict

    if predict(plan, registry.within(request)).verdict(plan["budget.bytes"]) == "fits":
        return plan
    ladder = _ladder(request, plan, registry, plan["budget.bytes"], tell)
    if not ladder.rungs:
        raise RequestError(_nothing(ladder))
    rung = ladder.rungs[0]
    return _told(rung.set.plan, rung.set.choices, rung.prediction.needed_bytes, ladder)


def expectation(plan: Plan, registry: Registry) -> Callable[[list[list[int]]], Mapping[str, Any] | None]:
    """What the engine asks after training: the prediction for the largest micro-batch that there was."""

    def predicted(lengths: list[list[int]]) -> Mapping[str, Any] | None:
        from memcfg.planner.predict import predict

        try:
            found = predict(plan, registry, lengths=lengths)
        except (MemcfgError, RuntimeError, NotImplementedError) as error:  # training succeeded: this may not spoil it
            return {"error": str(error)}
        return {
            "peak_bytes": found.allocated_bytes,
            "reserved_bytes": found.reserved_bytes,
            "phases": dict(found.phases),
            "kinds": dict(found.kinds),
            "step_ms": found.step_ms,
            "outside_bytes": found.outside_bytes,
            "machine": found.machine,
            "timeline": asdict(found.timeline),
        }

    return predicted


def explain(error: OutOfMemory, plan: Plan, registry: Registry, terminal: Terminal) -> None:
    """Say what the memory was used for when it ran out, what had been predicted, and what would have fitted."""
    if terminal.quiet or terminal.mute:
        return
    try:
        _explain(error, plan, registry, terminal)
    except (MemcfgError, RuntimeError, NotImplementedError) as reason:
        terminal.say(f"no breakdown: {reason}")  # what ran out of memory is the error to tell, and is told after this


def _explain(error: OutOfMemory, plan: Plan, registry: Registry, terminal: Terminal) -> None:
    from memcfg.planner.hosts import machine_of
    from memcfg.planner.predict import predict
    from memcfg.report.ladder import show_ladder
    from memcfg.report.memory import show_out_of_memory

    machine = machine_of(plan)
    lengths = [list(row) for row in error.lengths] or None
    found = predict(plan, registry, machine=machine, lengths=lengths)
    terminal.say(*show_out_of_memory(error, found))
    budget = available(error, plan, machine)
    if budget is not None:
        terminal.say("looking for technique sets that fit ...")
        ladder = _ladder(request_of(plan), plan, registry, budget, NOTHING)
        terminal.say("", *show_ladder(ladder, None))


def available(error: OutOfMemory, plan: Plan, machine: Machine) -> int | None:
    """Bytes of the card that the run could have used: its budget, or what other processes and a limit left it."""
    room = None if error.room_bytes is None else error.room_bytes + machine.outside
    known = [size for size in (plan.get("budget.bytes"), room, machine.memory) if size is not None]
    return min(known, default=None)


def request_of(plan: Plan) -> Request:
    """The request that a plan was made from: what the user chose, and the facts."""
    chosen = {key: d for key, d in plan.decisions.items() if d.requested is not UNSET}
    return Request(
        choices={key: Choice(d.requested, d.origin or "the plan") for key, d in chosen.items()},
        facts={key: d.value for key, d in plan.decisions.items() if d.role == "fact" and d.value is not UNSET},
        assumed=plan.assumed,
    )


def _ladder(request: Request, plan: Plan, registry: Registry, budget: int, tell: Callable[..., Any]) -> Ladder:
    from memcfg.planner.hosts import machine_of
    from memcfg.planner.search import Search
    from memcfg.planner.sets import Wishes

    return Search(request, registry.within(request), machine_of(plan), budget, Wishes(), tell).run()


def _told(plan: Plan, choices: Mapping[str, Any], needed: int, ladder: Ladder) -> Plan:
    """The plan with the planner's choices as its own, each with the reason."""
    because = (
        f"the request needs {gib(ladder.asked.prediction.needed_bytes)}, the budget is {gib(ladder.budget)}, "
        f"and this is the fastest set of lossless techniques that fits ({gib(needed)})"
    )
    decisions: dict[str, Decision] = dict(plan.decisions)
    for key in choices:
        decisions[key] = replace(
            decisions[key], kind="forced", rule=RULE, because=because, origin=None, requested=UNSET,
            antecedents=("budget.bytes",),
        )  # fmt: skip
    said = ", ".join(f"`{key}={show(value)}`" for key, value in choices.items())
    return replace(plan, decisions=decisions, notes=(*plan.notes, Note("note", RULE, f"chose {said}: {because}")))


def _nothing(ladder: Ladder) -> Problem:
    from memcfg.planner.budget import Budget, short_of_weights

    least = ladder.least.prediction
    weights = short_of_weights(least, Budget(ladder.budget, "request"))
    alone = "" if weights is None else f", {gib(weights)} of it for the weights and what lies outside the allocator"
    text = f"no set of lossless techniques fits {gib(ladder.budget)}"
    needs = f"the least that was found needs {gib(least.needed_bytes)}{alone}"
    fix = "`memcfg plan` also lists what changes the result, with `plan.allow=all`"
    return Problem(f"{text}; {needs}", key="budget", fix=fix)
