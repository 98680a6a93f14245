"""`memcfg plan`: which technique sets fit a memory budget, fastest first.

Beyond overrides it reads `plan.axes` (vary only these), `plan.keep` (never these), `plan.allow` (changes of what is learned
that may be proposed; `all`) and `plan.find=false` (leave out the longest length, the most rows and the smallest card)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.arguments import Arguments
from memcfg.commands.pricing import pricing
from memcfg.commands.verdicts import no_plan
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.planner.inverse import Inverse
    from memcfg.planner.search import Ladder
    from memcfg.planner.sets import Wishes
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

PREFIX: Final = "plan."
WORDS: Final = ("axes", "keep", "allow", "find")
ON: Final = ("true", "yes", "on")
OFF: Final = ("false", "no", "off", "none", "null")


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the ladder. Exit code 0: something fits, 1: nothing does, 2: no plan at all."""
    arguments.refuse_flags("json")
    with no_plan():
        return _plan(arguments, terminal)


def _plan(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.commands.supposed import composed
    from memcfg.commands.train import calm_openmp
    from memcfg.compose.request import installed
    from memcfg.planner.sets import check

    wishes, find, rest = asked(arguments.rest)
    registry = installed()
    wanted = lambda: composed(rest, arguments.config_dir, registry, terminal.say)  # noqa: E731
    request, _ = pricing(wanted, rest, arguments, registry, terminal)
    registry = registry.within(request)
    check(wishes, registry)
    calm_openmp("cpu")
    with Talk(terminal) as talk:
        ladder = found(request, registry, wishes, talk)
        inverse = reach(ladder, request, registry, talk) if find else None
    if arguments.has("json"):
        from memcfg.report import jsonform
        from memcfg.report.ladder import ladder_data

        terminal.show(jsonform.text(ladder_data(ladder, inverse)))
    else:
        from memcfg.report.ladder import show_ladder

        terminal.show(*show_ladder(ladder, inverse))
    return 0 if ladder.rungs else 1


def found(request: Request, registry: Registry, wishes: Wishes, tell: Any) -> Ladder:
    """The ladder. Raises `RequestError` where no budget is known."""
    from memcfg.planner.budget import budget_of
    from memcfg.planner.hosts import machine_of
    from memcfg.planner.search import Search

    plan = registry.plan(request)
    machine = machine_of(plan)
    budget = budget_of(plan, machine)
    if budget is None:
        fix = "budget=24gib, or a card: assume.device=rtx4090"
        raise RequestError(Problem("there is nothing to fit into", key="budget", fix=fix))
    return Search(request, registry, machine, budget.bytes, wishes, tell).run()


def reach(ladder: Ladder, request: Request, registry: Registry, tell: Any) -> Inverse:
    from memcfg.planner.inverse import answers
    from memcfg.planner.search import SEARCHED

    tell("looking how far the smallest set reaches", SEARCHED, begins=True)
    rung = ladder.rungs[-1] if ladder.rungs else ladder.least
    return answers(request, registry, ladder.machine, ladder.budget, rung.set)


def asked(words: list[str]) -> tuple[Wishes, bool, list[str]]:
    """What is said to the planner itself, and the overrides that are left. Raises `RequestError`."""
    from memcfg.planner.sets import Wishes

    wishes, find, rest = Wishes(), True, []
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if not key.startswith(PREFIX):
            rest.append(word)
            continue
        name = key.removeprefix(PREFIX)
        if name not in WORDS or not value:
            raise RequestError(_no_word(key))
        if name == "find":
            find = _switch(key, value)
        else:
            wishes = replace(wishes, **{name: _list(key, value)})
    return wishes, find, rest


def _switch(key: str, value: str) -> bool:
    if value.lower() in (*ON, *OFF):
        return value.lower() in ON
    raise RequestError(Problem(f"`{value}` is neither `true` nor `false`", key=key))


def _list(key: str, value: str) -> tuple[str, ...]:
    """The names in `[a,b]`. None at all would count as if nothing had been said, so that is refused."""
    names = tuple(part.strip() for part in value.strip("[]").split(",") if part.strip())
    if not names:
        raise RequestError(
            Problem(f"`{value}` names nothing", key=key, fix=f"leave it out, or `{key}=[checkpointing]`")
        )
    return names


def _no_word(key: str) -> Problem:
    from memcfg.compose.spelling import nearest

    known = [f"{PREFIX}{word}" for word in WORDS]
    fix = "the planner reads `plan.axes=[...]`, `plan.keep=[...]`, `plan.allow=[...]` and `plan.find=false`"
    return Problem("the planner reads no such word", key=key, nearest=nearest(key, known), fix=fix)


class Talk:
    """What the search reports: on a terminal a bar with what is being looked at, which is written over; elsewhere a line for each
    stage, so that a log shows what takes the time. `--quiet` silences both, `--json` the lines."""

    def __init__(self, terminal: Terminal) -> None:
        self._bar: Any = None
        self._terminal = terminal

    def __enter__(self) -> Talk:
        self._terminal.say("looking for technique sets that fit ...")
        if self._terminal.err.is_terminal and not self._terminal.quiet:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
            # No thread of its own that draws: a process with threads is not forked, and would use one core.
            self._bar = Progress(*columns, console=self._terminal.err, transient=True, auto_refresh=False)
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, text: str, share: float | None = None, *, begins: bool = False) -> None:
        """`share`: how much of the work is done, from 0 to 1, where that is known; `begins`: a further stage of it."""
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=share, refresh=True)
        elif begins and not self._terminal.json:
            self._terminal.say(f"{text} ...")
