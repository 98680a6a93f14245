"""The sweeper behind `-m`: it expands the grid as Hydra's basic sweeper does, but lets memcfg say which points to run
before any of them is composed. Whatever launcher is configured gets the rest; a sweeper that the user configures instead
(`hydra/sweeper=...`) is Hydra's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hydra._internal.callbacks import Callbacks
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import OmegaConf

from memcfg.errors import Problem, RequestError, RunError
from memcfg.files import reason
from memcfg.redact import clean

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.types import Override
    from hydra.plugins.launcher import Launcher
    from omegaconf import DictConfig

Overrides = tuple[str, ...]
Numbered = tuple[int, Overrides]
Select = Callable[[Path, list[Overrides]], list[Numbered]]
"""From the sweep's folder and all points of the grid to the jobs that are to be run, with their numbers."""

BASIC: Final = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
IN_PLACE: Final = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


def everything(folder: Path, points: list[Overrides]) -> list[Numbered]:
    return list(enumerate(points))


class Grid(Sweeper):  # type: ignore[misc]
    """Every combination of the values that were listed, less what `select` leaves out. The options are those of the
    basic sweeper."""

    def __init__(self, select: Select, max_batch_size: int | None, params: Mapping[str, str] | None) -> None:
        self.select, self.max_batch_size, self.params = select, max_batch_size, params or {}
        self.launcher: Launcher | None = None
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> list[Any]:
        """Launch the jobs that are to be run. Returns a list of job returns for each launch."""
        assert self.launcher is not None
        assert self.config is not None
        folder = Path(str(self.config.hydra.sweep.dir))
        jobs = self.select(folder, self.points(arguments))
        if not jobs:
            return []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.config, folder / "multirun.yaml")
            clean(folder / "multirun.yaml")
        except OSError as error:
            text, fix = f"cannot use `{folder}`: {reason(error)}", "choose a folder with room that you may write"
            raise RunError(Problem(text, key="hydra.sweep.dir", fix=fix)) from error
        return [
            self.launcher.launch([list(overrides) for _, overrides in batch], initial_job_idx=batch[0][0])
            for batch in batches(jobs, self.max_batch_size)
        ]

    def points(self, arguments: list[str]) -> list[Overrides]:
        """Every point of the grid, the last name turning fastest. Raises `RequestError` where nothing is swept, unless a
        launcher takes the one run elsewhere."""
        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        parsed = parser.parse_overrides([*(f"{key}={value}" for key, value in self.params.items()), *arguments])
        if self.config.hydra.launcher._target_ == IN_PLACE and not any(said.is_sweep_override() for said in parsed):
            fix = "list values, as in `run.seed=1,2`, or leave `-m` out for a single run"
            raise RequestError(Problem("nothing to sweep: no option lists several values", key="-m", fix=fix))
        return list(product(*{override.get_key_element(): _values(override) for override in parsed}.values()))


def _values(override: Override) -> list[str]:
    """One override for each value. Raises `HydraException` for a sweep without an end, `RequestError` for an empty one."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise HydraException(f"`{override.input_line}` lists no values: a grid needs them one by one")
    values = [f"{key}={value}" for value in override.sweep_string_iterator()]
    if not values:
        raise RequestError(Problem(f"the range is empty: `{override.input_line}`", key=key))
    return values


def batches(jobs: Sequence[Numbered], most: int | None) -> Iterator[list[Numbered]]:
    """Jobs whose numbers follow each other, at most `most` at a time: a launcher counts upwards from the first."""
    batch: list[Numbered] = []
    for job in jobs:
        if batch and (job[0] != batch[-1][0] + 1 or len(batch) == most):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def sweep(instance: Hydra, primary: str, overrides: list[str], task: Callable[[Any], Any], select: Select) -> Any:
    """What `Hydra.multirun` does, with `Grid` where the basic sweeper would be: Hydra's own registry takes plugins only
    from the package `hydra_plugins`, which every process that imports Hydra would have to scan."""
    config = instance.compose_config(primary, overrides, RunMode.MULTIRUN, with_log_configuration=True)
    callbacks = Callbacks(config)
    callbacks.on_multirun_start(config=config, config_name=primary)
    context = HydraContext(config_loader=instance.config_loader, callbacks=callbacks)
    wanted = config.hydra.sweeper
    sweeper: Sweeper
    if wanted._target_ == BASIC:
        sweeper = Grid(select, wanted.max_batch_size, wanted.params)
        sweeper.setup(hydra_context=context, task_function=task, config=config)
    else:
        sweeper = Plugins.instance().instantiate_sweeper(hydra_context=context, task_function=task, config=config)
    returned = sweeper.sweep(arguments=[str(said) for said in config.hydra.overrides.task])
    callbacks.on_multirun_end(config=config, config_name=primary)
    return returned
