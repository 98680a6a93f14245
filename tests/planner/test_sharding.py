"""One rank's view: what is gathered, summed and kept as a shard, in which order, told by hand for two small layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from memcfg import RequestError
from memcfg.compose import resolve
from memcfg.planner.machine import CPU
from memcfg.planner.prediction import Prediction
from memcfg.planner.sharding import Shards, shard_bytes
from memcfg.planner.simulate import simulate
from memcfg.planner.tracker import Tracker
from memcfg.registry import Registry, load
from memcfg.simulated import RankView, Together

pytestmark = pytest.mark.torch

A, B, ROOT = 64, 32, 16
"""Bytes of the weights: 4 x 4 and 2 x 4 numbers of 32 bits in layers, 4 in none."""


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.empty(4, device="meta"))
        self.a = torch.nn.Linear(4, 4, bias=False, device="meta")
        self.b = torch.nn.Linear(4, 2, bias=False, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x * self.scale))


def layers(model: Small) -> list[Together]:
    return [Together((model.a,)), Together((model.b,))]


def told(tracker: Tracker) -> list[tuple[str, str, int]]:
    """Births and deaths of what no tensor shows, in order."""
    births = tracker.trace.births
    found = []
    for event in tracker.trace.events:
        birth = births[abs(event) - 1]
        if birth.op in ("all_gather", "copy_out", "reduce_scatter"):
            found.append(("+" if event > 0 else "-", birth.op, birth.size))
    return found


def micro_batch(tracker: Tracker, shards: Shards, model: Small, final: bool = True) -> None:
    tracker.phase = "forward"
    with shards.micro_batch(final):
        loss = model(torch.empty(3, 4, device="meta")).sum()
        tracker.phase = "backward"
        loss.backward()


def test_layers_are_gathered_one_by_one_and_their_gradients_summed_as_soon_as_they_are_whole() -> None:
    model = Small()
    with Tracker(CPU) as tracker:
        shards = Shards(RankView(2, layers), tracker, model)
        micro_batch(tracker, shards, model)
    assert told(tracker) == [
        # what is in no layer, for the whole micro-batch
        ("+", "all_gather", ROOT), ("+", "copy_out", ROOT),
        # forward: the buffer of one gather goes when the next has arrived, the last one when the model is through
        ("+", "all_gather", A), ("-", "all_gather", ROOT), ("+", "copy_out", A), ("-", "copy_out", A),
        ("+", "all_gather", B), ("-", "all_gather", A), ("+", "copy_out", B), ("-", "copy_out", B), ("-", "all_gather", B),
        # backward: what belongs to no layer is there still, and the last layer is on its way
        ("+", "all_gather", B), ("+", "copy_out", B), ("-", "all_gather", B),
        # the one before it is on its way, and the gradients of the last are summed
        ("+", "all_gather", A), ("-", "copy_out", B), ("+", "reduce_scatter", B), ("+", "reduce_scatter", B // 2),
        ("+", "copy_out", A), ("-", "all_gather", A),
        ("-", "copy_out", A), ("-", "reduce_scatter", B), ("+", "reduce_scatter", A), ("+", "reduce_scatter", A // 2),
        ("-", "copy_out", ROOT), ("-", "reduce_scatter", A), ("+", "reduce_scatter", ROOT), ("+", "reduce_scatter", ROOT // 2),
        ("-", "reduce_scatter", ROOT),
    ]  # fmt: skip


def test_gradients_stay_whole_until_the_last_micro_batch_and_are_shards_in_the_update() -> None:
    model = Small()
    with Tracker(CPU) as tracker:
        shards = Shards(RankView(2, layers), tracker, model)
        micro_batch(tracker, shards, model, final=False)
        assert all(p.grad is not None for p in model.parameters())
        micro_batch(tracker, shards, model)
        assert all(p.grad is None for p in model.parameters())
        tracker.phase = "optimizer"
        before = len(tracker.trace.births)
        with shards.optimizer():
            states = [torch.zeros_like(p) for p in model.parameters()]
        assert [b.size for b in tracker.trace.births[before:]] == [ROOT // 2, A // 2, B // 2]
    kept = [
        b for n, b in enumerate(tracker.trace.births, 1) if b.kind == "gradients" and -n not in tracker.trace.events
    ]
    assert not kept, "they end with the update"
    assert len(states) == 3


@pytest.mark.parametrize(
    ("shape", "world", "rows"), [((8, 3), 2, 4), ((7, 3), 2, 4), ((1, 3), 8, 1), ((5,), 4, 2)],
)  # fmt: skip
def test_rows_are_dealt_out_and_padded(shape: tuple[int, ...], world: int, rows: int) -> None:
    tensor = torch.empty(shape)
    assert shard_bytes(tensor, world) == 4 * rows * (tensor.numel() // shape[0])


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load()


def prediction(registry: Registry, *words: str) -> Prediction:
    size = ("model=shape", "model.preset=smollm2-135m", "run.batch_size=1", "truncation.max_length=256")
    plan = resolve(["assume.device=h100", *size, *words], registry=registry)
    return simulate(plan, registry.hooks(plan))


def predicted(registry: Registry, *words: str) -> Any:
    return prediction(registry, *words).to_dict()


def test_shards_add_up_to_the_whole(registry: Registry) -> None:
    """A model of 30 layers over two, then six processes: weights and states of each are that share, padding apart."""
    whole = predicted(registry, "checkpointing=none")
    for world in (2, 6):
        part = predicted(registry, f"assume.world.size={world}", "distributed=fsdp2", "checkpointing=none")
        assert part["kinds"]["weights"] == pytest.approx(whole["kinds"]["weights"] / world, rel=0.01)
        assert part["kinds"]["optimizer"] == pytest.approx(whole["kinds"]["optimizer"] / world, rel=0.01)
        assert part["allocated_bytes"] < whole["allocated_bytes"]


def test_what_streams_may_hold_besides_makes_a_tight_budget_too_close_to_call(registry: Registry) -> None:
    alone, rank = prediction(registry), prediction(registry, "assume.world.size=2", "distributed=fsdp2")
    assert alone.unforeseen_bytes == 0
    assert rank.unforeseen_bytes == int(0.28 * rank.smallest_bytes)
    tight = int(1.1 * (rank.needed_bytes - rank.outside_bytes)) + rank.outside_bytes
    assert rank.verdict(tight) == "close"
    assert rank.verdict(2 * rank.needed_bytes) == "fits"


def test_replicas_hold_everything_and_their_buckets(registry: Registry) -> None:
    whole = predicted(registry)
    part = predicted(registry, "assume.world.size=2", "distributed=ddp")
    assert part["allocated_bytes"] - whole["allocated_bytes"] == pytest.approx(whole["kinds"]["weights"], rel=0.01)


def test_what_cannot_be_predicted_is_refused(registry: Registry) -> None:
    with pytest.raises(RequestError) as caught:
        predicted(registry, "assume.world.size=2", "distributed=zero3")
    assert str(caught.value) == (
        "`distributed.strategy`: what DeepSpeed keeps in its own buffers is not simulated, so this plan's memory cannot "
        "be predicted\n  predict `distributed.strategy=fsdp2` instead"
    )
