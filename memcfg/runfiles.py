"""A run's folder, or a sweep's, as data: whatever of it is there and can be read, and what is wrong with the rest.

Nothing here trusts a file: a folder may be torn (a run was killed, a disk was full) or somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import MemcfgError, Problem, RunError
from memcfg.files import reason
from memcfg.planfile import FILE

if TYPE_CHECKING:
    from memcfg.plan import Plan

PLAN: Final = FILE
OBJECTS: Final = {
    "run.json": "how it was started, and where",
    "effective.json": "what the live run showed",
    "ledger.json": "the account of tokens and rows",
    "batches.json": "lengths of documents and fill of rows",
    "memory.json": "the measured peak",
    "report.json": "the closing summary",
}
"""Files that hold one JSON object, and what is missing without them."""
LINES: Final = {"metrics.jsonl": "the loss of each logged step", "completions.jsonl": "sampled completions"}
OPTIONAL: Final = ("completions.jsonl", "batches.json", "run.json")
"""Not every run writes these, so that nothing is said where they are absent."""

STATUS: Final = "status.json"
SWEEP: Final = "sweep.json"
MOST_BYTES: Final = 512 * 2**20
"""Larger files are not read: they are no report's."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file: `torn`, `missing` or `foreign` in words."""

    file: str
    text: str


@dataclass(frozen=True)
class RunFiles:
    """What a run left. Objects are empty and lists short where a file is missing or torn; `faults` says so."""

    folder: Path
    plan: Plan | None = None
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lines: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def object(self, name: str) -> Mapping[str, Any]:
        return self.objects.get(name, {})

    @property
    def metrics(self) -> list[Mapping[str, Any]]:
        return self.lines.get("metrics.jsonl", [])

    @property
    def found(self) -> list[str]:
        """Names of the files that could be used."""
        return [
            *([PLAN] if self.plan is not None else []),
            *self.objects,
            *(n for n, rows in self.lines.items() if rows),
        ]


@dataclass(frozen=True)
class SweepFiles:
    """What a sweep left: its jobs by number, each `status.json` with its run's files; points that could not be run."""

    folder: Path
    jobs: tuple[tuple[Mapping[str, Any], RunFiles], ...]
    excluded: tuple[Mapping[str, Any], ...] = ()
    faults: tuple[Fault, ...] = ()


def read(folder: Path) -> RunFiles:
    """The files of a run. Raises `RunError` where there is no folder, or nothing in it that a run writes."""
    _refuse_no_folder(folder)
    found = _read(folder)
    if not found.found:
        raise RunError(_nothing(folder, found.faults))
    return found


def read_sweep(folder: Path) -> SweepFiles:
    """The files of a sweep. Raises `RunError` as `read` does."""
    _refuse_no_folder(folder)
    faults: list[Fault] = []
    jobs = []
    for file in sorted(folder.rglob(STATUS)):
        status = _object(file, f"{file.parent.relative_to(folder)}/{STATUS}", faults)
        if status is not None:
            jobs.append((status, _read(file.parent)))
    if not jobs and not (folder / SWEEP).exists():
        raise RunError(_nothing(folder, faults))
    jobs.sort(
        key=lambda job: (not isinstance(job[0].get("number"), int), job[0].get("number") or 0, str(job[1].folder))
    )
    sweep = _object(folder / SWEEP, SWEEP, faults) if (folder / SWEEP).exists() else None
    if sweep is None and not any(fault.file == SWEEP for fault in faults):
        faults.append(Fault(SWEEP, "is not there, so that points which could not be run are not told"))
    excluded = sweep.get("excluded") if sweep else None
    points = [point for point in excluded if isinstance(point, Mapping)] if isinstance(excluded, list) else []
    return SweepFiles(folder, tuple(jobs), tuple(points), tuple(faults))


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep's: it has a comparison, or jobs below it and no run of its own."""
    if (folder / SWEEP).exists() or (folder / "sweep.csv").exists():
        return True
    run = any((folder / name).exists() for name in (PLAN, *OBJECTS, *LINES, STATUS))
    return not run and folder.is_dir() and next(folder.glob(f"*/{STATUS}"), None) is not None


def _read(folder: Path) -> RunFiles:
    faults: list[Fault] = []
    objects: dict[str, Mapping[str, Any]] = {}
    for name in OBJECTS:
        if (folder / name).exists():
            data = _object(folder / name, name, faults)
            objects |= {} if data is None else {name: data}
    plan = _plan(folder, faults)
    lines = {name: _lines(folder / name, faults) for name in LINES if (folder / name).exists()}
    faults += [Fault(name, f"is not there: {what} cannot be told") for name, what in _absent(folder)]
    return RunFiles(folder, plan, objects, lines, tuple(faults))


def _absent(folder: Path) -> Iterator[tuple[str, str]]:
    for name, what in {PLAN: "what was decided", **OBJECTS, **LINES}.items():
        if name not in OPTIONAL and not (folder / name).exists():
            yield name, what


def _plan(folder: Path, faults: list[Fault]) -> Plan | None:
    from memcfg.planfile import load

    if not (folder / PLAN).exists():
        return None
    try:
        return load(folder / PLAN)
    except MemcfgError as error:
        faults += [Fault(PLAN, problem.text) for problem in error.problems]
        return None


def _object(file: Path, name: str, faults: list[Fault]) -> Mapping[str, Any] | None:
    try:
        data = json.loads(_text(file))
    except OSError as error:
        faults.append(Fault(name, f"cannot be read: {reason(error)}"))
    except (ValueError, RecursionError):
        faults.append(Fault(name, "is torn: it is no JSON"))
    else:
        if isinstance(data, Mapping):
            return data
        faults.append(Fault(name, "is foreign: it holds no JSON object"))
    return None


def _lines(file: Path, faults: list[Fault]) -> list[Mapping[str, Any]]:
    """The objects of a file, one a line; lines that hold none are counted as a fault."""
    try:
        lines = [line for line in _text(file).split("\n") if line.strip()]
    except OSError as error:
        faults.append(Fault(file.name, f"cannot be read: {reason(error)}"))
        return []
    except ValueError:
        faults.append(Fault(file.name, "is torn: it is no text"))
        return []
    rows, torn = [], []
    for number, line in enumerate(lines, 1):
        data = _parsed(line)
        if isinstance(data, Mapping):
            rows.append(data)
        else:
            torn.append(number)
    if torn:
        faults.append(Fault(file.name, f"is torn at {_numbers(torn)}: the other {len(rows)} lines are shown"))
    return rows


def _text(file: Path) -> str:
    if not file.is_file():
        raise OSError(0, "is no file")
    if file.stat().st_size > MOST_BYTES:
        raise OSError(0, f"is larger than {MOST_BYTES // 2**20} MiB")
    return file.read_text(encoding="utf-8")


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _numbers(torn: list[int]) -> str:
    told = ", ".join(map(str, torn[:3]))
    return (
        f"line {told}" if len(torn) == 1 else f"lines {told}" + (f" and {len(torn) - 3} more" if len(torn) > 3 else "")
    )


def _refuse_no_folder(folder: Path) -> None:
    if not folder.is_dir():
        text = "is no folder" if folder.exists() else "no such folder"
        raise RunError(Problem(text, key=str(folder), fix="name the folder of a run or of a sweep"))


def _nothing(folder: Path, faults: Iterable[Fault]) -> Problem:
    wrong = [f"`{fault.file}` {fault.text}" for fault in faults if "is not there" not in fault.text]
    text = "holds no run: " + ("; ".join(wrong) if wrong else "none of the files that a run writes is in it")
    return Problem(text, key=str(folder), fix="name the folder of a run or of a sweep, as in `runs/TIME`")
