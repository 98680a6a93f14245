"""`memcfg -m`: one run for each point of a sweep, the impossible ones refused before they cost anything.

Every job goes the way of a single run. One that is refused or fails does not stop the others; all of them are listed at
the end, each folder holds a `status.json`, and the exit code tells.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from memcfg.commands.arguments import Arguments
from memcfg.errors import ConflictError, MemcfgError, RequestError
from memcfg.files import write_atomic
from memcfg.report.console import Terminal

STATUS_FILE = "status.json"


@dataclass(frozen=True)
class Outcome:
    """What became of one job. refused: no plan; failed: the run stopped."""

    number: int
    overrides: tuple[str, ...]
    folder: str
    status: Literal["completed", "refused", "failed"]
    reason: str = ""
    loss_last: float | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Job:
    """What Hydra's launcher calls. Plain data, so that a launcher may send it to another process."""

    config_dir: str | None
    searchpath: tuple[str, ...]
    quiet: bool
    color: bool

    def __call__(self, config: Any) -> Outcome:
        from memcfg.compose.modes import this_job

        number, overrides, hydra, folder = this_job()
        outcome = self._outcome(number, overrides, hydra, Path(folder))
        write_atomic(Path(folder) / STATUS_FILE, json.dumps(asdict(outcome), indent=2) + "\n")
        return outcome

    def _outcome(self, number: int, overrides: list[str], hydra: list[str], folder: Path) -> Outcome:
        said, terminal = tuple(overrides), Terminal(quiet=self.quiet, color=self.color)
        terminal.say("", f"job {number}: {' '.join(overrides)}")
        try:
            report = self._train(overrides, folder, terminal)
        except (RequestError, ConflictError) as error:
            return Outcome(number, said, str(folder), "refused", _told(error, terminal), exit_code=error.exit_code)
        except MemcfgError as error:
            return Outcome(number, said, str(folder), "failed", _told(error, terminal), exit_code=error.exit_code)
        except Exception as error:
            from memcfg.report.errors import unexpected_text

            terminal.fail(unexpected_text(error))
            return Outcome(number, said, str(folder), "failed", f"{type(error).__name__}: {error}", exit_code=1)
        return Outcome(number, said, str(folder), "completed", loss_last=report.get("loss_last"))

    def _train(self, overrides: list[str], folder: Path, terminal: Terminal) -> dict[str, Any]:
        from memcfg.commands.train import execute, refuse_assumed
        from memcfg.compose import resolve
        from memcfg.compose.request import installed

        registry = installed()
        plan = resolve(overrides, registry=registry, config_dir=self.config_dir, searchpath=self.searchpath)
        refuse_assumed(plan)
        return execute(plan, registry, terminal, run_dir=folder)


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Run the sweep. The exit code is that of the worst job: 1 if one failed, 2 if one was refused, else 0."""
    arguments.refuse_flags("multirun")
    from memcfg.compose import modes
    from memcfg.compose.normalise import hydra_searchpath
    from memcfg.compose.request import installed, prepare

    tree, normalised = prepare(arguments.rest, installed(), arguments.config_dir, sweeps=True)
    if normalised.problems:
        raise RequestError(*normalised.problems)
    folders, _ = hydra_searchpath(arguments.rest)
    job = Job(arguments.config_dir, tuple(folders), terminal.quiet, terminal.color)
    outcomes = [_returned(ret) for ret in modes.multirun(tree, normalised, job)]
    from memcfg.report.sweep import show_sweep

    terminal.show("", *show_sweep([asdict(outcome) for outcome in outcomes]))
    return worst(outcomes)


def _returned(ret: Any) -> Outcome:
    outcome = ret.return_value
    assert isinstance(outcome, Outcome)
    return outcome


def worst(outcomes: Sequence[Outcome]) -> int:
    """1 before 2 before 0: that a run failed weighs more than that one was impossible."""
    statuses = {outcome.status for outcome in outcomes}
    return 1 if "failed" in statuses else 2 if "refused" in statuses else 0


def _told(error: MemcfgError, terminal: Terminal) -> str:
    from memcfg.report.errors import error_text

    terminal.fail(error_text(error))
    return str(error)
