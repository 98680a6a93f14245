"""`run.report_to`: metrics to TensorBoard, Weights & Biases or trackio too, through Transformers' own integrations.

What they record as a run's configuration is the plan, secrets masked. `metrics.jsonl` is written in any case. Each takes
its further settings from its own environment variables. A run that goes on in its folder goes on in its TensorBoard files;
what those held beyond the checkpoint is taken back."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import Problem, RequestError, RunError
from memcfg.planfile import to_data

if TYPE_CHECKING:
    from memcfg.plan import Plan

KEY: Final = "run.report_to"
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""Of each tracker, the packages of which one must be installed."""
FOLDER: Final = "tensorboard"


def names(plan: Plan) -> list[str]:
    """The trackers that the plan names."""
    said = plan.get(KEY) or []
    return [said] if isinstance(said, str) else list(said)


def refuse_missing(plan: Plan) -> None:
    """Raises `RequestError` for a tracker that is not known, `RunError` for one whose package is not installed. Imports
    nothing heavy."""
    for name in names(plan):
        if name not in PACKAGES:
            known = tuple(PACKAGES)
            raise RequestError(Problem(f"`{name}` is not one of {', '.join(f'`{k}`' for k in known)}", key=KEY))
    missing = [name for name in names(plan) if not any(installed(package) for package in PACKAGES[name])]
    if missing:
        raise RunError(
            *(Problem(f"the {name} package is not installed", key=KEY, fix=f"pip install {name}") for name in missing)
        )


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def callbacks(plan: Plan, folder: Path, step: int) -> list[Any]:
    """Transformers' callbacks of the plan's trackers, for a run that begins after `step`."""
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    made = {name: get_reporting_integration_callbacks([name])[0] for name in names(plan)}
    return [kind(_writer(folder, step)) if name == "tensorboard" else kind() for name, kind in made.items()]


def configuration(plan: Plan) -> dict[str, Any]:
    """What trackers record of a run: every value of its plan, as plain data."""
    options: Iterable[tuple[str, Any]] = to_data(plan)["options"].items()
    return {key: decision["value"] for key, decision in options if "value" in decision}


def _writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        from tensorboardX import SummaryWriter  # type: ignore[no-redef]
    return SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
