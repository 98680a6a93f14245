"""`memcfg -m`: one run for each point of a sweep, the impossible ones left out before they cost anything.

    sweep.invalid=prune|fail          what becomes of points that have no plan
    sweep.isolation=process|inline    each job is a process of its own, or all share this one
    sweep.resume=true                 run only what an earlier sweep in the same folder left undone

Every point is resolved before any is composed. A job that is refused or fails stops no other. The sweep's folder gets
`report.html`, `sweep.md`, `sweep.csv` and `sweep.json`, which compare choices, results, memory and speed; the exit code tells whether all is well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.arguments import Arguments
from memcfg.commands.job import STATUS_FILE, Job, Outcome, read_status
from memcfg.commands.journal import PAGE_FILE
from memcfg.commands.words import own_words
from memcfg.errors import Problem, RequestError
from memcfg.files import write_atomic
from memcfg.redact import redacted
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.compose.points import Points
    from memcfg.compose.pruning import Excluded
    from memcfg.registry import Registry

WORDS: Final = {"invalid": ("prune", "fail"), "isolation": ("process", "inline"), "resume": ("true", "false")}

UNFINISHED: Final = ("running", "interrupted")


@dataclass
class Sweep:
    """What is known of a sweep as it goes on: its folder, the points that were left out, what was done before."""

    points: Points
    registry: Registry
    terminal: Terminal
    fail: bool = False
    resume: bool = False
    folder: Path | None = None
    excluded: list[Excluded] = field(default_factory=list)
    done: list[Outcome] = field(default_factory=list)
    begun: float = field(default_factory=time.time)

    def completed(self) -> list[Outcome]:
        """The jobs of this sweep that have come to their end: all that is known of them where it was interrupted."""
        told = {outcome.folder for outcome in self.done}
        files = sorted(self.folder.rglob(STATUS_FILE)) if self.folder is not None else []
        found = [read_status(file) for file in files if file.stat().st_mtime >= self.begun]
        return [o for o in found if o is not None and o.folder not in told and o.status not in UNFINISHED]

    def select(self, folder: Path, points: list[tuple[str, ...]]) -> list[tuple[int, tuple[str, ...]]]:
        """The jobs to run. Raises `RequestError` for points that are not understood, and for excluded ones if wanted."""
        from memcfg.compose.pruning import pruned
        from memcfg.report.sweep import show_excluded

        self.folder = folder
        kept, excluded = pruned(self.points, self.registry, points)
        self.excluded = [replace(point, overrides=redacted(point.overrides)) for point in excluded]
        if self.excluded and not self.terminal.json:
            self.terminal.show(*show_excluded(self.excluded, [redacted(point) for point in kept]))
        if self.excluded and (self.fail or not kept):
            raise RequestError(_nothing_runs(len(self.excluded), len(points), self.fail))
        self.done = earlier(folder, kept) if self.resume else []
        finished = {outcome.overrides for outcome in self.done}
        return [(number, point) for number, point in enumerate(kept) if redacted(point) not in finished]


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Run the sweep. The exit code is that of the worst job: 1 if one failed, 2 if one was refused, else 0."""
    arguments.refuse_flags("multirun", "json")
    from memcfg.compose import modes
    from memcfg.compose.normalise import hydra_searchpath
    from memcfg.compose.points import Points
    from memcfg.compose.request import installed, prepare

    said, words = own_words(arguments.rest, "sweep", WORDS)
    registry = installed()
    tree, normalised = prepare(words, registry, arguments.config_dir, sweeps=True)
    if normalised.problems:
        raise RequestError(*normalised.problems)
    refuse_one_folder(words)
    folders, _ = hydra_searchpath(words)
    inline = said.get("isolation") == "inline"
    job = Job(arguments.config_dir, tuple(folders), terminal.quiet, terminal.color, inline)
    sweep = Sweep(
        Points(tree, registry), registry, terminal, said.get("invalid") == "fail", said.get("resume") == "true"
    )
    try:
        returned = modes.multirun(tree, normalised, job, sweep.select)
    except KeyboardInterrupt:
        conclude(sweep, sweep.completed())
        raise
    return conclude(sweep, [_outcome(ret) for ret in returned])


def refuse_one_folder(words: Sequence[str]) -> None:
    """Raise `RequestError` for a folder that all jobs would share."""
    if any(word.lstrip("+").startswith("run.dir=") for word in words):
        text = "the jobs of a sweep cannot lie in one folder: each gets its own"
        raise RequestError(
            Problem(text, key="run.dir", fix="write `hydra.sweep.dir=FOLDER` for the folder of them all")
        )


def conclude(sweep: Sweep, outcomes: Sequence[Outcome]) -> int:
    """Compare what came out, in the sweep's folder and on the terminal. Returns the exit code."""
    from memcfg.report.sweep import show_sweep

    if sweep.folder is None:  # a sweeper that keeps its own account
        return worst(outcomes)
    told = {outcome.folder for outcome in (*sweep.done, *outcomes)}
    cut = [o for o in _statuses(sweep.folder) if o.folder not in told and o.status in UNFINISHED]
    jobs = sorted((*sweep.done, *outcomes, *cut), key=lambda outcome: outcome.number)
    if sweep.folder.is_dir():
        write_comparison(sweep.folder, jobs, sweep.excluded)
    if sweep.terminal.json:
        from memcfg.report import jsonform
        from memcfg.report.sweep import sweep_data

        code = worst(jobs)
        data = {"ok": code == 0, "folder": str(sweep.folder), **sweep_data(jobs, sweep.excluded)}
        sweep.terminal.show(jsonform.text(data))
    elif jobs:
        sweep.terminal.show("", *show_sweep(jobs), "", f"compared in {sweep.folder / PAGE_FILE}")
    return worst(jobs)


def write_comparison(folder: Path, jobs: Sequence[Outcome], excluded: Sequence[Excluded]) -> None:
    """What became of the points, to read and for programs."""
    from memcfg.report.pages.sweep import page_of
    from memcfg.report.sweep import sweep_csv, sweep_data, sweep_markdown
    from memcfg.runfiles import SWEEP, read_sweep

    write_atomic(folder / "sweep.csv", sweep_csv(jobs, excluded))
    write_atomic(folder / "sweep.md", sweep_markdown(jobs, excluded))
    write_atomic(folder / SWEEP, json.dumps(sweep_data(jobs, excluded), indent=2) + "\n")
    write_atomic(folder / PAGE_FILE, page_of(read_sweep(folder)))


def earlier(folder: Path, points: Sequence[tuple[str, ...]]) -> list[Outcome]:
    """The jobs of these points that an earlier sweep in the folder completed. Raises `RequestError` without one."""
    if not folder.is_dir():
        fix = "name the folder of the earlier sweep: `hydra.sweep.dir=multirun/DATE/TIME`"
        raise RequestError(Problem(f"there is no earlier sweep in `{folder}`", key="sweep.resume", fix=fix))
    found = [outcome for outcome in _statuses(folder) if outcome.status == "completed"]
    wanted = {redacted(point) for point in points}
    return [outcome for outcome in found if outcome.overrides in wanted]


def _statuses(folder: Path) -> list[Outcome]:
    files = sorted(folder.rglob(STATUS_FILE))
    return [outcome for file in files if (outcome := read_status(file)) is not None]


def _outcome(ret: Any) -> Outcome:
    """What a job returned; a job that could not even write its status down has failed."""
    try:
        outcome = ret.return_value
    except Exception as error:
        folder = ret.hydra_cfg.hydra.runtime.output_dir if ret.hydra_cfg is not None else ""
        number = int(ret.hydra_cfg.hydra.job.num) if ret.hydra_cfg is not None else -1
        return Outcome(number, tuple(ret.overrides or ()), str(folder), "failed", str(error), 1)
    assert isinstance(outcome, Outcome)
    return outcome


def worst(outcomes: Sequence[Outcome]) -> int:
    """1 before 2 before 0: that a run failed weighs more than that one was impossible."""
    statuses = {outcome.status for outcome in outcomes}
    return 1 if statuses & {"failed", "running", "interrupted"} else 2 if "refused" in statuses else 0


def _nothing_runs(excluded: int, points: int, fail: bool) -> Problem:
    if not fail:
        return Problem(f"none of the {points} points can be run", key="-m")
    fix = "`sweep.invalid=prune` leaves them out and runs the others"
    return Problem(f"{excluded} of {points} points cannot be run", key="sweep.invalid", fix=fix)
