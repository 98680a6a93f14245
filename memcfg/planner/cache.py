"""Predictions that were made before, kept by everything that they depend on: the plan's values, the machine, the rows, and
the code that was run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import RunError
from memcfg.files import write_atomic
from memcfg.planfile import plain
from memcfg.planner.batches import Lengths
from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Prediction

if TYPE_CHECKING:
    from memcfg.plan import Plan

DISTRIBUTIONS: Final = ("memcfg", "torch", "transformers", "accelerate", "peft")
WITHOUT_EFFECT: Final = (
    "run.dir", "run.steps", "run.learning_rate", "run.scheduler", "run.warmup_steps", "run.seed", "run.log_steps",
    "run.save_steps", "run.eval_steps", "run.resume", "budget.bytes",
)  # fmt: skip
"""Options of memcfg's own that change nothing about a step's memory."""


def folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "memcfg" / "predictions"


def key(plan: Plan, machine: Machine, lengths: Lengths | None = None) -> str:
    """What the prediction for this plan is kept under."""
    values = {name: plain(plan[name]) for name in sorted(plan) if name not in WITHOUT_EFFECT}
    facts = [values, list(plan.active), machine.to_dict(), lengths, _versions(plan.versions), _sources(plan.active)]
    text = json.dumps([*facts, _model_file(plan)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def kept(name: str) -> Prediction | None:
    """The prediction that was made before; None where there is none, or none that can be read."""
    try:
        return Prediction.from_dict(json.loads((folder() / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(name: str, prediction: Prediction) -> None:
    """Keep a prediction. A folder that cannot be written costs the next caller a simulation, nothing else."""
    with suppress(OSError, RunError):
        folder().mkdir(parents=True, exist_ok=True)
        write_atomic(folder() / f"{name}.json", json.dumps(prediction.to_dict()))


def _versions(more: Mapping[str, str]) -> dict[str, str]:
    found = dict(more)
    for name in DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _sources(active: tuple[str, ...]) -> list[Any]:
    """When the code last changed: a working copy changes without its version."""
    return [_newest(name) for name in ("memcfg", *(f"memcfg_{plugin}" for plugin in active))]


def _newest(package: str) -> int:
    spec = importlib.util.find_spec(package)
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    times = [file.stat().st_mtime_ns for root in roots for file in Path(root).rglob("*.py")]
    return max(times, default=0)


def _model_file(plan: Plan) -> Any:
    """The configuration beside a saved model: its path stays when it is edited."""
    path = plan.get("model.path")
    with suppress(OSError):
        return None if path is None else (Path(path).expanduser() / "config.json").read_text(encoding="utf-8")
    return None
