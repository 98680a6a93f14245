"""Several processes become one run: they meet, and each has the same plan, or none of them trains.

A launcher (`torchrun`, `accelerate launch`, `distributed.processes=`) starts the processes and tells each its place in
environment variables. torch is imported only where there is somebody to meet."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import Lost, Problem, RunError
from memcfg.planfile import digest, to_data

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks

LAUNCHERS_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "ACCELERATE_MIXED_PRECISION": ("", "no"),
    "ACCELERATE_USE_FSDP": ("", "false"),
    "ACCELERATE_USE_DEEPSPEED": ("", "false"),
    "ACCELERATE_USE_MEGATRON_LM": ("", "false"),
}
"""What `accelerate launch` may say beside where the processes are, and the values that leave the plan as it is."""

GONE: Final = ("connection closed by peer", "connection reset by peer", "broken pipe", "remote process exited")
"""What gloo and NCCL say where another process is gone."""

SHOWN: Final = 5
"""Differences between two plans that are told."""


@dataclass(frozen=True)
class Group:
    """The processes of a run, seen from one of them. `rank` 0 writes and speaks for all; `local` is its rank among those of
    its host."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def main(self) -> bool:
        return self.rank == 0

    def shared(self, value: Any = None) -> Any:
        """What the first process gave here, for all of them. All must call it; plain data only."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        told = [value]
        dist.broadcast_object_list(told, src=0)
        return told[0]

    def all(self, value: Any) -> list[Any]:
        """What each process gave here, in the order of ranks. All must call it; plain data only."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, value)
        return told

    def of_host(self, value: Any) -> Any:
        """What the first process of this host gave here. All must call it; plain data only."""
        told = self.all((platform.node(), self.local, value))
        return next((given for node, local, given in told if (node, local) == (platform.node(), 0)), value)


ALONE: Final = Group()


@contextmanager
def relying(group: Group) -> Iterator[None]:
    """Raises `Lost` in place of what torch says where another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if group.size > 1 and any(words in str(error).lower() for words in GONE):
            fix = "it has said why, or it was killed: the host was out of memory, most likely"
            raise Lost(Problem("another process of this run is gone", fix=fix)) from error
        raise


def join(plan: Plan, hooks: Hooks) -> Group:
    """Meet the other processes, set up what spreads the work, and compare plans.

    Raises `RunError` in every process where the plans differ, where the plan spreads nothing, or where the launcher asks
    for something that the plan does not say."""
    if not spreads(plan):
        return ALONE
    if plan.get("world.size", 1) < 2:
        text = "there is one process, and nothing to spread the work over"
        raise RunError(Problem(text, key="distributed.strategy", fix=MORE))
    spread = hooks.spread(plan=plan)
    group = _met(plan.device)
    same_plans(plan, group)
    spread.join()
    return group


MORE: Final = "add `distributed.processes=2`, or start the same command with `torchrun --nproc-per-node 2 -m memcfg`"


def spreads(plan: Plan) -> bool:
    """Whether the plan is for several processes."""
    return plan.get("distributed.strategy") not in (None, "none")


def _refuse_others() -> None:
    """Raise `RunError` for what only a launcher's own configuration says: a plan holds all that a run does."""
    wrong = [name for name, fine in LAUNCHERS_OWN.items() if os.environ.get(name, "").lower() not in fine]
    fix = "answer that question with no (`accelerate config`), and say it in memcfg's own options"
    if wrong:
        raise RunError(
            *(Problem(f"the launcher says `{os.environ[n]}`, and the plan decides", n, fix=fix) for n in wrong)
        )


def _met(device: str) -> Group:
    """This process's place among all of them, once they are all there."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        _refuse_others()
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        try:
            # gloo beside nccl: plain data and whole weights on their way to a file travel through host memory
            dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        except (ValueError, RuntimeError) as error:
            text = f"the processes did not meet: {' '.join(str(error).split())}"
            raise RunError(
                Problem(text, key="distributed.strategy", fix="start them with `torchrun -m memcfg`")
            ) from error
    return Group(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK") or 0))


def same_plans(plan: Plan, group: Group) -> None:
    """Raise `RunError`, in every process, where one has another plan than the first."""
    digests = group.all(digest(plan))
    if len(set(digests)) == 1:
        return
    plans = group.all(to_data(plan))
    other = next(rank for rank, found in enumerate(digests) if found != digests[0])
    problems = list(_differences(plans[0], plans[other], other))
    rest = [f"and {len(problems) - SHOWN} more differences"] if len(problems) > SHOWN else []
    raise RunError(*problems[:SHOWN], *rest)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any], rank: int) -> list[Problem]:
    """Each value that differs; where there is none, the parts of the plan that do."""
    mine, theirs = first["options"], second["options"]
    keys = [k for k in sorted({*mine, *theirs}) if _value(mine, k) != _value(theirs, k)]
    text = "process 0 has {} here, and process {} has {}: all processes must be given the same plan"
    found = [Problem(text.format(_value(mine, k), rank, _value(theirs, k)), key=k) for k in keys]
    parts = [p for p in sorted({*first, *second}) if first.get(p) != second.get(p)]
    text = f"the plan of process {rank} differs from that of process 0 in its {', '.join(parts)}"
    return found or [Problem(text, key="distributed.strategy")]


def leave() -> None:
    """Part from the other processes, where there are any. Call it once nothing is left to be shared."""
    import sys

    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _value(options: Mapping[str, Any], key: str) -> str:
    from memcfg.solver.expr import show

    decision = options.get(key, {})
    return f"`{show(decision['value'])}`" if "value" in decision else "nothing"
