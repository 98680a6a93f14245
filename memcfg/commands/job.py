"""One job of a sweep: a process of its own, in the job's folder, whose end is written down whatever it was.

JOB/status.json    the overrides, how it ended, the reason, the results
JOB/output.log     everything that the job printed
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from memcfg.commands.journal import JOURNAL_FILE, PAGE_FILE
from memcfg.commands.train import REPORT_FILE
from memcfg.errors import ConflictError, MemcfgError, RequestError
from memcfg.files import write_atomic
from memcfg.planfile import FILE
from memcfg.redact import clean, redacted
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry

STATUS_FILE: Final = "status.json"
LOG_FILE: Final = "output.log"
LEFT: Final = (FILE, "effective.json", "ledger.json", "memory.json", "metrics.jsonl", "batches.json", "completions.jsonl", "not_finite.json", "model",
               LOG_FILE, REPORT_FILE, JOURNAL_FILE, PAGE_FILE, "checkpoint-*")  # fmt: skip
"""What a run leaves in its folder, and what goes when the job is done again."""

TOLD: Final = 2_000
"""Characters of a reason that are kept."""

Status = Literal["running", "completed", "refused", "failed", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What became of one job. `overrides` are without secrets; refused: no plan; failed: the run stopped. `results`: the report of a completed run."""

    number: int
    overrides: tuple[str, ...]
    folder: str
    status: Status
    reason: str = ""
    exit_code: int = 0
    results: Mapping[str, Any] = field(default_factory=dict)


def read_status(file: Path) -> Outcome | None:
    """What an earlier job wrote down; None where it is not readable."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return Outcome(**{**data, "overrides": tuple(data["overrides"]), "folder": str(file.parent)})
    except (OSError, ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True)
class Job:
    """What Hydra's launcher calls. Plain data, so that a launcher may send it to another process or host."""

    config_dir: str | None
    searchpath: tuple[str, ...]
    quiet: bool
    color: bool
    inline: bool = False

    def __call__(self, config: Any) -> Outcome:
        from memcfg.compose.modes import this_job

        number, overrides, _, folder = this_job()
        begun = Outcome(number, redacted(overrides), folder, "running")
        terminal = Terminal(quiet=self.quiet, color=self.color)
        terminal.say("", f"job {number}: {' '.join(begun.overrides)}")
        for file in Path(folder).glob(".hydra/*.yaml"):  # Hydra has written down what was typed
            clean(file)
        make_room(Path(folder), begun.overrides)
        _write(begun)
        try:
            outcome = self._outcome(begun, overrides, terminal)
        except BaseException as error:
            _write(replace(begun, status="interrupted", reason=type(error).__name__, exit_code=130))
            raise
        _write(outcome)
        return outcome

    def _outcome(self, begun: Outcome, said: list[str], terminal: Terminal) -> Outcome:
        """Resolve, where the job runs and for the host that runs it, and train."""
        from memcfg.commands.train import planned
        from memcfg.compose.request import compose, installed

        registry = installed()
        try:
            request = compose(said, registry=registry, config_dir=self.config_dir, searchpath=self.searchpath)
            return self._trained(begun, planned(request, registry, terminal), registry, terminal)
        except (RequestError, ConflictError) as error:
            return replace(begun, status="refused", reason=_told(error, terminal), exit_code=error.exit_code)
        except MemcfgError as error:
            return replace(begun, status="failed", reason=_told(error, terminal), exit_code=error.exit_code)
        except Exception as error:
            from memcfg.report.errors import unexpected_text

            terminal.fail(unexpected_text(error))
            return replace(begun, status="failed", reason=f"{type(error).__name__}: {error}", exit_code=1)

    def _trained(self, begun: Outcome, plan: Plan, registry: Registry, terminal: Terminal) -> Outcome:
        from memcfg.commands.train import execute

        if self.inline:
            execute(plan, registry, terminal, run_dir=Path(begun.folder))
            return finished(begun, 0, "")
        registry.preflight(plan, terminal.say)
        registry.hooks(plan)  # what cannot be run is refused here, before a process is started for it
        from memcfg.commands.run import placed
        from memcfg.planfile import save, secrets

        file = save(placed(plan, begun.folder), Path(begun.folder) / FILE)
        code, said = self._run(file, terminal, secrets(plan))
        return finished(begun, code, said)

    def _run(self, file: Path, terminal: Terminal, secrets: Mapping[str, str]) -> tuple[int, str]:
        """The exit code of `memcfg run` on the plan and what it printed, which is shown and logged meanwhile."""
        flags = [*(["--quiet"] if self.quiet else []), *([] if self.color else ["--no-color"])]
        command = [sys.executable, "-m", "memcfg", "run", str(file), f"run.dir={file.parent}", *flags]
        lines: list[str] = []
        with (
            (file.parent / LOG_FILE).open("w", encoding="utf-8") as log,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, **secrets},
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                log.write(line)
                log.flush()
                terminal.say(line.rstrip("\n"))
        return process.returncode, "".join(lines)


def finished(begun: Outcome, code: int, said: str) -> Outcome:
    """What a finished process comes to."""
    if code == 0:
        results = json.loads((Path(begun.folder) / REPORT_FILE).read_text(encoding="utf-8"))
        return replace(begun, status="completed", results=results)
    if code < 0:
        reason = f"ended by signal {-code}" + (": out of memory on the host, most likely" if code == -9 else "")
    else:
        reason = last_error(said) or f"ended with exit code {code}"
    return replace(begun, status="failed", reason=reason, exit_code=code)


def last_error(said: str) -> str:
    """The last error message in what a process printed."""
    lines = said.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[starts[-1] :]).removeprefix("error: ")[:TOLD] if starts else ""


def make_room(folder: Path, overrides: tuple[str, ...]) -> None:
    """Take away what an earlier try of the same job left. Raises `MemcfgError` where the folder holds something else."""
    earlier = read_status(folder / STATUS_FILE) if (folder / STATUS_FILE).exists() else None
    if earlier is None:
        return
    if earlier.status == "completed" or earlier.overrides != overrides:
        raise MemcfgError(f"`{folder}` holds the results of another job: {' '.join(earlier.overrides)}")
    if "run.resume=auto" in overrides:
        return  # what is there is gone on with
    for pattern in LEFT:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write(outcome: Outcome) -> None:
    write_atomic(Path(outcome.folder) / STATUS_FILE, json.dumps(asdict(outcome), indent=2) + "\n")


def _told(error: MemcfgError, terminal: Terminal) -> str:
    from memcfg.report.errors import error_text

    terminal.fail(error_text(error))
    return str(error)[:TOLD]
