"""Where a run goes on from, and whether it may.

    run.resume=auto   the newest whole checkpoint in the run's own folder; without one, training begins anew
    run.resume=PATH   a checkpoint, or the newest whole one in the folder of a run

In its own folder a run continues there; otherwise it gets a folder of its own, with the metrics up to the checkpoint. What
decides the result (every option that is not `free`, the prepared rows, how many processes) must be as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memcfg import planfile
from memcfg.engine import checkpoint, fingerprint
from memcfg.engine.checkpoint import PREFIX, Checkpoint, Sums, Torn
from memcfg.engine.joining import ALONE, Group
from memcfg.engine.unchanged import refuse_changed
from memcfg.errors import Problem, RunError
from memcfg.plan import Plan

AUTO: Final = "auto"
KEY: Final = "run.resume"


@dataclass(frozen=True)
class Start:
    """Where training begins. `here`: in a folder that holds a run already. `point` is None at the very beginning."""

    point: Checkpoint | None = None
    here: bool = False

    @property
    def history(self) -> Path | None:
        """The metrics that lead to the point."""
        return self.point.path.parent / "metrics.jsonl" if self.point else None


def in_place(plan: Plan, folder: Path) -> bool:
    """Whether the plan goes on in the folder where it was."""
    asked = plan.get(KEY)
    return asked == AUTO or (asked is not None and _run_of(Path(asked)).resolve() == folder.resolve())


def start(
    plan: Plan, folder: Path, tell: Callable[[str], Any] = lambda text: None, group: Group = ALONE
) -> Start:  # fmt: skip
    """Where this plan begins. `tell` is given what a user should know of it. Of the processes on a host only the first reads
    checkpoints through; the others take its word.

    Raises `RunError` for a place without a whole checkpoint, and for a plan that another one was trained under."""
    sums = Sums()
    if group.size > 1 and plan.get(KEY) is not None:
        if group.local == 0:
            with suppress(Exception):  # which all of them are about to meet
                _start(plan, folder, lambda text: None, sums)
        sums.known |= group.of_host(sums.known)
    return _start(plan, folder, tell, sums)


def _start(plan: Plan, folder: Path, tell: Callable[[str], Any], sums: Sums) -> Start:
    asked = plan.get(KEY)
    if asked is None:
        return Start()
    here = in_place(plan, folder)
    point = _newest(folder, tell, sums) if asked == AUTO else _named(Path(asked), tell, sums)
    if point is None:
        _refuse_finished(folder)
        tell(f"no whole checkpoint in `{folder}`: training begins anew")
        return Start(here=here)
    if point.step > plan["run.steps"]:
        text = f"`{point.path}` has taken {point.step} steps already"
        raise RunError(Problem(text, key="run.steps", fix=f"run.steps={point.step} or more"))
    if here and asked != AUTO:  # which took the newest: after it nothing sound is left, and to read it again is dear
        _refuse_later(folder, point, sums)
    refuse_changed(plan, planfile.load(point.path / planfile.FILE))
    tell(f"going on from `{point.path}`")
    return Start(point, here)


def refuse_other_rows(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises `RunError` where the prepared rows are not those of the checkpoint."""
    if text := fingerprint.difference(dict(then), dict(now)):
        fix = "give it the data and the tokenizer that it was begun with, or begin a new run"
        raise RunError(Problem(f"the prepared rows are not those of the checkpoint: {text}", key=KEY, fix=fix))


def _run_of(asked: Path) -> Path:
    return asked.parent if asked.name.startswith(PREFIX) else asked


def _named(asked: Path, tell: Callable[[str], Any], sums: Sums) -> Checkpoint:
    """The checkpoint that a path names. Raises `RunError` where there is none."""
    if not asked.is_dir():
        raise RunError(Problem(f"no such folder: `{asked}`", key=KEY))
    if asked.name.startswith(PREFIX):
        try:
            return checkpoint.read(asked, sums)
        except Torn as error:
            raise RunError(Problem(f"`{asked}` is not whole: {error}", key=KEY, fix=_others(asked))) from error
    point = _newest(asked, tell, sums)
    if point is None:
        raise RunError(Problem(f"`{asked}` holds no whole checkpoint", key=KEY))
    return point


def _newest(folder: Path, tell: Callable[[str], Any], sums: Sums) -> Checkpoint | None:
    whole, torn = checkpoint.found(folder)
    for path, reason in torn.items():
        tell(f"`{path}` is not whole and is left out: {reason}")
    for candidate in reversed(whole):
        try:
            return checkpoint.read(candidate.path, sums)
        except Torn as error:
            tell(f"`{candidate.path}` is not whole and is left out: {error}")
    return None


def _others(asked: Path) -> str | None:
    whole, _ = checkpoint.found(asked.parent)
    return f"run.resume={whole[-1].path}" if whole else None


def _refuse_finished(folder: Path) -> None:
    if (folder / "model").is_dir():
        text = f"`{folder}` holds a finished run and no checkpoint to go on from"
        raise RunError(Problem(text, key=KEY, fix="choose another `run.dir`"))


def _sound(found: Checkpoint, sums: Sums) -> bool:
    try:
        return bool(checkpoint.read(found.path, sums))
    except Torn:
        return False


def _refuse_later(folder: Path, point: Checkpoint, sums: Sums) -> None:
    """In the same folder only the newest can be gone on from: later ones would pass for this run's own."""
    later = [c.path.name for c in checkpoint.found(folder)[0] if c.step > point.step and _sound(c, sums)]
    if later:
        text = f"`{folder}` holds later checkpoints ({', '.join(f'`{name}`' for name in later)})"
        raise RunError(Problem(text, key=KEY, fix="go on in another `run.dir`, or from the newest: `run.resume=auto`"))
