"""Hydra's own modes: showing configs, information, completion, and sweeps.

They are `hydra.main` without its argument parser and its tracebacks: the same `Hydra` object runs them, with memcfg's
loader in it, so that what `--cfg` prints is what a run would get.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn

from memcfg.compose.normalise import Line, Normalised
from memcfg.compose.request import composed
from memcfg.compose.sweeper import Select, everything, sweep
from memcfg.compose.translate import refusing
from memcfg.compose.tree import PRIMARY, Tree


@contextmanager
def hydra(tree: Tree) -> Iterator[Hydra]:
    """Hydra over these config folders, as its global instance while it is used."""
    logging.raiseExceptions = False  # Hydra prints through logging, which makes a traceback of a reader that left
    GlobalHydra.instance().clear()
    instance = Hydra(task_name=PRIMARY, config_loader=tree.loader)
    GlobalHydra.instance().initialize(instance)
    try:
        with refusing():
            yield instance
    finally:
        GlobalHydra.instance().clear()


def show_config(tree: Tree, normalised: Normalised, part: str, package: str | None, resolve: bool) -> None:
    """`--cfg`: print the composed config. Raises `RequestError` for what a run would refuse."""
    composed(tree, normalised)
    with hydra(tree) as instance:
        instance.show_cfg(PRIMARY, normalised.texts, cfg_type=part, package=package, resolve=resolve)


def show_info(tree: Tree, normalised: Normalised, what: str) -> None:
    """`--info`: how the config comes about."""
    composed(tree, normalised)
    with hydra(tree) as instance:
        instance.show_info(what, config_name=PRIMARY, overrides=normalised.texts)


def hydra_help(tree: Tree, normalised: Normalised) -> None:
    """`--hydra-help`."""
    with hydra(tree) as instance:
        overrides = [line.text for line in normalised.lines if line.kind == "hydra"]
        instance.hydra_help(PRIMARY, args_parser=get_args_parser(), args=Namespace(overrides=overrides))


def shell_completion(tree: Tree, words: Sequence[str]) -> None:
    """`--shell-completion install=bash`, `query=bash` and the like."""
    with hydra(tree) as instance:
        instance.shell_completion(PRIMARY, list(words))


def multirun(
    tree: Tree, normalised: Normalised, task: Callable[[Any], Any], select: Select = everything
) -> list[JobReturn]:  # fmt: skip
    """`-m`: call `task` once for each job that `select` makes of the sweep's points, in Hydra's job folders. Returns what
    became of each.

    A request that no point of which could be composed is refused before any folder is made."""
    composed(tree, first_point(normalised))
    with hydra(tree) as instance:
        batches = sweep(instance, PRIMARY, [*normalised.texts, "hydra.mode=MULTIRUN"], task, select)
    return [job for batch in batches or () for job in batch if isinstance(job, JobReturn)]


def first_point(normalised: Normalised) -> Normalised:
    """The request with the first value of everything that is swept."""
    return replace(normalised, lines=[_first(line) for line in normalised.lines if line.values or not line.sweep])


def _first(line: Line) -> Line:
    if not line.sweep:
        return line
    from hydra.core.override_parser.types import Override

    name, _, _ = line.text.partition("=")
    text = f"{name}={Override._get_value_element_as_str(line.values[0])}"
    return replace(line, text=text, values=line.values[:1], sweep=False)


def this_job() -> tuple[int, list[str], list[str], str]:
    """Inside a job: its number, its overrides, Hydra's own overrides, and its folder."""
    config = HydraConfig.get()
    number = int(config.job.num)
    return number, list(config.overrides.task), list(config.overrides.hydra), str(config.runtime.output_dir)
