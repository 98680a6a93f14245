"""`memcfg`: compile and train."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcfg.commands.arguments import Arguments
from memcfg.commands.journal import JOURNAL_FILE, PAGE_FILE, command, journal
from memcfg.commands.ranks import launched, rank
from memcfg.commands.survivors import close, standing_by
from memcfg.errors import OutOfMemory, Problem, RequestError, RunError
from memcfg.files import reason, write_atomic
from memcfg.planfile import FILE as PLAN_FILE
from memcfg.report.console import Terminal
from memcfg.report.words import listed

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.request import Request


RESUMED_FILE = ".resumed.yaml"
"""A plan that is to go on in a folder, until its processes have taken it up."""
REPORT_FILE = "report.json"
"""How the run went, as the summary tells it."""
RUNS = Path("runs")
"""Where runs lie that were given no folder."""


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Resolve, say what was decided, train, say how it went."""
    arguments.refuse_flags("json")
    from memcfg.compose import compose
    from memcfg.compose.request import installed
    from memcfg.report.plan import show_plan

    registry = installed()
    request = compose(arguments.rest, registry=registry, config_dir=arguments.config_dir)
    plan = planned(request, registry, terminal)
    if not terminal.quiet and not terminal.json:
        terminal.show(*show_plan(plan))
    execute(plan, registry, terminal)
    return 0


def planned(request: Request, registry: Registry, terminal: Terminal) -> Plan:
    """The plan to train; under a budget the planner may have chosen techniques for it. Raises as resolving does, and
    `RequestError` for assumed facts."""
    plan = registry.plan(request)
    refuse_assumed(plan)
    if plan.pending:
        from memcfg.compose.facts import learnt

        terminal.say(f"looking up {listed([pending.fact for pending in plan.pending], 'and')} ...")
        request, plan = learnt(request, plan, registry)
    if plan.get("budget.bytes") is None:
        return plan
    from memcfg.commands.fit import fitted

    calm_openmp(plan.device)
    terminal.say("looking whether the run fits its budget ...")
    return fitted(request, registry)


def execute(
    plan: Plan, registry: Registry, terminal: Terminal, run_dir: Path | None = None, *, in_place: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Train a plan in its folder (or in `run_dir`) and print the summary. Returns the engine's report as plain data.
    `in_place`: `run_dir` is there, holds the plan already, and keeps it whatever happens.

    Until the first step nothing is left behind by a failure: a folder that holds a plan and no run would look like one."""
    from memcfg.commands.fit import expectation, explain
    from memcfg.engine.joining import join, leave
    from memcfg.engine.tracking import refuse_missing
    from memcfg.planfile import save
    from memcfg.report.progress import TrainingTalk
    from memcfg.report.summary import header

    if (done := finished(plan, run_dir)) is not None:  # which needs nothing of what a run needs
        _tell(done, terminal, "this run is finished already")
        return done
    here = run_dir if in_place else resumed_in(plan, run_dir)
    if here is None and not launched():  # of several processes, the first makes the folder for all
        refuse_taken(run_dir or _wanted(plan))
    registry.preflight(plan, terminal.say)
    refuse_missing(plan)
    hooks = registry.hooks(plan)
    calm_openmp(plan.device)
    together = to_start(plan)
    group = None if together else join(plan, hooks)
    folder, made = run_dir, None
    if here is not None:
        folder = here
    elif group is None or group.main:
        folder, made = make_folder(run_dir or _wanted(plan))
    folder = Path(folder if group is None else group.shared(str(folder)))  # type: ignore[arg-type]
    if together:
        return _together(plan, folder, together, terminal, made)
    terminal.say("", header(plan.device, str(folder)))
    with journal(plan, folder, terminal) if rank() == 0 else standing_by(folder, terminal):
        try:
            if made is not None:
                save(plan, folder / PLAN_FILE)
            from memcfg.engine.execute import train

            talk, expected = TrainingTalk(terminal), expectation(plan, registry)
            report = train(plan, hooks, folder, reporter=talk, predicted=expected, group=group).to_dict()
        except OutOfMemory as error:
            _clear(folder, made)
            explain(error, plan, registry, terminal)
            raise
        except BaseException:
            _clear(folder, made)
            raise
        if rank() == 0:
            write_atomic(folder / REPORT_FILE, json.dumps(report, indent=2) + "\n")
        leave()
    _tell(report, terminal)
    return report


def _tell(report: dict[str, Any], terminal: Terminal, *more: str) -> None:
    """Print the summary."""
    from memcfg.report import jsonform
    from memcfg.report.summary import summary

    if terminal.json:
        terminal.show(jsonform.text({"ok": True, **report}))
    else:
        page = Path(report["run_dir"]) / PAGE_FILE
        terminal.show("", *more, summary({**report, "page": str(page) if page.exists() else None}))


def to_start(plan: Plan) -> int:
    """How many processes are to be started here for the plan; 0 where it runs in this one."""
    count = plan.get("distributed.processes")
    return int(count) if count and not launched() and plan.get("distributed.strategy") not in (None, "none") else 0


def _together(plan: Plan, folder: Path, count: int, terminal: Terminal, made: bool | None) -> dict[str, Any]:
    """Train the plan in its folder in processes of its own. Returns the report that the first one wrote."""
    from memcfg.commands.launch import run_together
    from memcfg.planfile import save, secrets

    said = {
        "--quiet": terminal.quiet,
        "--verbose": terminal.verbose,
        "--json": terminal.json,
        "--no-color": not terminal.color,
    }
    flags = [flag for flag, on in said.items() if on]
    resumed = made is None and plan.get("run.resume") is not None
    file = folder / (RESUMED_FILE if resumed else PLAN_FILE)
    try:
        if made is not None or resumed:
            save(plan, file)
        typed = command(sys.argv, secrets(plan))
        run_together(file, count, flags, secrets(plan), typed, cpu=plan.device == "cpu")
    except BaseException as error:
        _clear(folder, made, PAGE_FILE)
        close(folder, error, terminal)
        raise
    finally:
        if resumed:
            file.unlink(missing_ok=True)
    return dict(json.loads((folder / REPORT_FILE).read_text(encoding="utf-8")))


def refuse_assumed(plan: Plan) -> None:
    """Raise `RequestError` for a plan that was made for another host than this."""
    if plan.assumed:
        fix = "leave `assume.` out to train, or look at the plan with `memcfg resolve`"
        text = f"{listed(plan.assumed, 'and')} {'is' if len(plan.assumed) == 1 else 'are'} assumed, for planning only"
        raise RequestError(Problem(f"{text}; training needs what is true of this host", key="assume", fix=fix))


def calm_openmp(device: str) -> None:
    """Let idle OpenMP threads sleep where the CPU does the work: torch's spin, and a busy neighbour then costs fifty
    times the step. Must come before torch is loaded."""
    if device == "cpu":
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed, where installed, prints that it found no GPU


# ---------------------------------------------------------------------------------------------------------- going on


def resumed_in(plan: Plan, run_dir: Path | None = None) -> Path | None:
    """The folder that holds a run already and is gone on in; None where the run gets a folder of its own.

    Raises `RequestError` where nothing says which folder `run.resume=auto` means."""
    asked, folder = plan.get("run.resume"), run_dir or _wanted(plan)
    if asked == "auto" and folder is None:
        text = "`auto` means the newest checkpoint in the run's own folder, and `run.dir` names none"
        raise RequestError(Problem(text, key="run.resume", fix="add `run.dir=FOLDER`, or write `run.resume=FOLDER`"))
    if asked is None or folder is None or not (folder / PLAN_FILE).exists():
        return None
    place = Path(asked)
    same = asked == "auto" or folder.resolve() in (place.resolve(), place.resolve().parent)
    return folder if same else None


def finished(plan: Plan, run_dir: Path | None = None) -> dict[str, Any] | None:
    """The report of a run that `run.resume=auto` finds finished, if this plan asks for no further step. Raises `RunError`
    where it asks for another run."""
    folder = run_dir or _wanted(plan)
    if plan.get("run.resume") != "auto" or folder is None:
        return None
    try:
        report: dict[str, Any] = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        if (
            report["steps"] != plan["run.steps"]
            or not (folder / "model").is_dir()
            or not (folder / PLAN_FILE).is_file()
        ):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    from memcfg.engine.unchanged import refuse_changed
    from memcfg.planfile import load

    refuse_changed(plan, load(folder / PLAN_FILE), "the finished run")
    return report


# ----------------------------------------------------------------------------------------------------------- folders


def _wanted(plan: Plan) -> Path | None:
    stated = plan.get("run.dir")
    return Path(stated) if stated else None


def make_folder(stated: Path | None) -> tuple[Path, bool]:
    """The folder of a run, made and tried for writing, and whether it is new.

    Raises `RunError` where it cannot be used, or already holds a run."""
    try:
        folder = stated if stated is not None else fresh(RUNS)
        made = stated is None or not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(_unusable(stated or RUNS, reason(error))) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunError(_unusable(folder, "it may not be written to"))
    refuse_taken(folder)
    return folder, made


def refuse_taken(folder: Path | None) -> None:
    """Raise `RunError` for a folder that holds a run, or that cannot be one: what is known before anything is loaded."""
    if folder is None:
        return
    above = next((parent for parent in folder.parents if os.path.exists(parent)), None)
    if above is not None and not above.is_dir():
        raise RunError(_unusable(folder, "not a directory"))
    if os.path.exists(folder / PLAN_FILE):
        fix = "choose another `run.dir`, or go on: `run.resume=auto`"
        raise RunError(Problem(f"`{folder}` already holds a run", key="run.dir", fix=fix))


def fresh(parent: Path) -> Path:
    """A folder named by the time, made here and now so that no other run can take it."""
    stem = time.strftime("%Y-%m-%d_%H-%M-%S")
    for name in (stem, *(f"{stem}_{number}" for number in range(2, 10_000))):
        try:
            (parent / name).mkdir(parents=True)
        except FileExistsError:
            continue
        return parent / name
    raise FileExistsError(f"{parent / stem} and all its suffixes are taken")


def _unusable(folder: Path, text: str) -> Problem:
    return Problem(f"cannot use `{folder}`: {text}", key="run.dir", fix="choose a `run.dir` that you may write")


def _clear(folder: Path, made: bool | None, *more: str) -> None:
    """Take a plan away that never became a run (with `more` that says so), and the folder if it was made for it, `runs` too
    if it is empty. Nothing is taken from a folder that was somebody else's (`made` is None)."""
    left = {PLAN_FILE, JOURNAL_FILE, *more}
    if made is None or not folder.exists() or {path.name for path in folder.iterdir()} - left:
        return
    for name in left:
        (folder / name).unlink(missing_ok=True)
    if made:
        folder.rmdir()
        if folder.parent == RUNS:
            with suppress(OSError):
                RUNS.rmdir()
