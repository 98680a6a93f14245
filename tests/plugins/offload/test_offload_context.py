"""The context around a step: what it moves of a model, and that a failure leaves everything as it was."""

from __future__ import annotations

import math
import shutil
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from datasets import Dataset
from memcfg_checkpointing.hooks import memcfg_patch_model
from memcfg_offload import foresight, host
from memcfg_offload.context import Offload
from memcfg_offload.foresight import foreseen
from memcfg_offload.hooks import memcfg_evidence, memcfg_step_context
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import compare
from memcfg.engine.update import entered

pytestmark = pytest.mark.torch


def plan(activations: str = "all", mode: str = "none", **more: Any) -> Plan:
    values = {
        "checkpointing.mode": mode, "checkpointing.reentrant": False, "offload.activations": activations,
        "offload.min_bytes": 0, "offload.streams": True, "offload.stash": 5, "offload.pin": True, "offload.path": None,
        "device.type": "cpu", **more,
    }  # fmt: skip
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def running(context: Offload, *lengths: int, **more: Any) -> Any:
    """What the evidence looks at of a run with rows of these lengths."""
    train = Dataset.from_dict({"input_ids": [[1] * n for n in lengths]}) if lengths else None
    first = [SimpleNamespace(layout="padded", lengths=[9, 9])]
    return SimpleNamespace(
        **{"contexts": [context], "generation": None, "train": train, "first": first, "grouping": None} | more
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes)).train()


def made(asked: Plan) -> tuple[LlamaForCausalLM, Offload]:
    built = memcfg_patch_model(plan=asked, model=model())
    (context,) = memcfg_step_context(plan=asked, model=built, contexts=[])
    return built, context


def forward(built: Any, length: int = 9) -> torch.Tensor:
    return (
        built(input_ids=torch.arange(2 * length).view(2, length) % 40, use_cache=False)
        .logits.float()
        .logsumexp(-1)
        .sum()
    )


def step(built: Any, contexts: list[Any]) -> list[torch.Tensor]:
    built.zero_grad(set_to_none=True)
    with entered(contexts):
        forward(built).backward()
    return [p.grad for p in built.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("activations", "mode"), [("all", "none"), ("all", "full"), ("checkpoint_inputs", "full"), ("disk", "none")]
)
def test_gradients_are_those_without_and_the_evidence_agrees(activations: str, mode: str) -> None:
    asked = plan(activations, mode)
    built, context = made(asked)
    for moved, plain in zip(step(built, [context]), step(model(), []), strict=True):
        assert torch.equal(moved, plain)
    compare(asked, memcfg_evidence(plan=asked, run=running(context), found=[]))


def test_checkpoint_inputs_moves_one_tensor_for_each_layer_and_no_other() -> None:
    built, context = made(plan("checkpoint_inputs", "full"))
    step(built, [context])
    assert context.mover.tensors == 3
    assert context.mover.bytes == 3 * 2 * 9 * 16 * 4


def test_the_head_and_the_parameters_stay() -> None:
    built, context = made(plan())
    head, kept = [], context.mover.pack
    context.mover.pack = lambda t: head.append(tuple(t.shape)) or kept(t)  # type: ignore[assignment, func-returns-value]
    step(built, [context])
    assert head, "tensors of the backbone come by"
    assert not any(40 in shape for shape in head), "logits or the head's weight came by"
    assert all(entry not in {p.untyped_storage()._cdata for p in built.parameters()} for entry in context.mover._known)


def test_nothing_is_moved_where_nothing_is_saved() -> None:
    built, context = made(plan())
    with torch.no_grad(), entered([context]):
        forward(built)
    assert context.mover.tensors == 0
    found = memcfg_evidence(plan=plan(), run=running(context), found=[])
    with pytest.raises(RunError, match="no saved tensor has been moved"):
        compare(plan(), found)


@pytest.mark.parametrize("activations", ["all", "checkpoint_inputs"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_an_error_everything_is_as_before(activations: str, error: type[BaseException]) -> None:
    built, context = made(plan(activations, "full"))
    before = [getattr(m, "_gradient_checkpointing_func", None) for m in built.modules()]

    def fail(*_: Any) -> None:
        raise error

    hook = built.model.layers[1].mlp.register_forward_hook(fail)
    with pytest.raises(error), entered([context]):
        forward(built)
    hook.remove()
    assert [getattr(m, "_gradient_checkpointing_func", None) for m in built.modules()] == before
    assert context._inside == 0
    x = torch.randn(4, 4, requires_grad=True)
    moved = context.mover.tensors
    (x * x).sum().backward()
    assert context.mover.tensors == moved, "its hooks are gone"
    for again, plain in zip(step(built, [context]), step(model(), []), strict=True):
        assert torch.equal(again, plain)


def test_a_step_that_there_is_no_room_for_is_refused_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    built, context = made(plan("checkpoint_inputs", "full"))
    monkeypatch.setattr(context.mover.stack, "refuse", asked.append)
    step(built, [context])
    assert asked == [3 * 2 * 9 * 16 * 4], "layers x positions x width x bytes"
    step(built, [context])
    assert len(asked) == 1, "asked again only for more than it has taken"


@pytest.mark.parametrize(("free_host", "free_disk", "fits"), [(0, 8 << 30, True), (64 << 30, 0, False)])
def test_what_goes_to_disk_is_held_against_the_disk_and_not_the_host(
    free_host: int, free_disk: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, context = made(plan("disk", "none", **{"offload.path": "/dev/shm"}))
    monkeypatch.setattr(host, "host", lambda: host.Host(total=100 << 30, free=free_host))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free_disk))
    if fits:
        step(built, [context])
    else:
        with pytest.raises(RunError, match=r"`offload\.path`: 0\.0 KiB are free on the disk of `/dev/shm`"):
            step(built, [context])


def test_what_the_longest_rows_will_take_is_told_before_the_first_update() -> None:
    asked = plan("checkpoint_inputs", "full", **{"run.batch_size": 2, "batching.tokens": 64})
    built, context = made(asked)
    step(built, [context])  # 2 rows of 9
    here = 3 * 2 * 9 * 16 * 4
    given = {
        "no rows": (running(context), None),
        "none longer": (running(context, 4, 9), here),
        "longer": (running(context, 4, 27, 9), 3 * here),
        "one flat row": (running(context, 27, first=[SimpleNamespace(layout="flat")]), 3 * here),
        "a budget": (running(context, 27, grouping=object()), math.ceil(here * 64 / 18)),
        "pairs": (
            running(context, train=Dataset.from_dict({"input_ids": [[1] * 30], "seq_lengths": [[18, 12]]})),
            2 * here,
        ),
        "a stream": (
            running(context, train=Dataset.from_dict({"input_ids": [[1] * 9], "seq_lengths": [[4, 5]]})),
            here,
        ),
        "other columns": (running(context, train=Dataset.from_dict({"chosen": [[1]]})), None),
        "completions": (running(context, 27, generation=object()), None),
    }
    assert {name: foreseen(asked, run, context) for name, (run, _) in given.items()} == {
        name: size for name, (_, size) in given.items()
    }
    (found,) = memcfg_evidence(plan=asked, run=running(context, 27), found=[])
    assert "; the longest rows will take 10.1 KiB at once, of " in found.evidence
    assert found.evidence.endswith("GiB that are free")


def test_too_little_for_the_longest_rows_is_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan("checkpoint_inputs", "full", **{"run.batch_size": 2})
    built, context = made(asked)
    step(built, [context])
    monkeypatch.setattr(host, "host", lambda: host.Host(total=100 << 30, free=8 << 30))
    long = 9 * (4 << 30) // (3 * 2 * 9 * 16 * 4)
    monkeypatch.setattr(foresight, "longest", lambda run: long)
    with pytest.raises(RunError) as caught:
        memcfg_evidence(plan=asked, run=running(context), found=[])
    assert str(caught.value) == (
        "`offload.activations`: the host has 8.0 GiB of 100.0 GiB left, too little to take 3.9 GiB of activations for the "
        "longest rows and leave 5% free\n  offload.activations=disk, a smaller `run.batch_size` or a smaller "
        "`truncation.max_length`"
    )
    _, on_disk = made(plan("disk", "none", **{"run.batch_size": 2, "offload.path": "/dev/shm"}))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2 << 30))
    with pytest.raises(
        RunError, match=r"`offload\.path`: 2\.0 GiB are free on the disk of `/dev/shm`, too little for 4\.0 GiB"
    ):
        foresight.refuse_too_little(4 << 30, on_disk)


def test_300_steps_do_not_let_the_host_grow() -> None:
    built, context = made(plan())
    process, before, capacity = psutil.Process(), 0, 0
    for number in range(300):
        built.zero_grad(set_to_none=True)
        with entered([context]):
            forward(built, length=5 + number * 7 % 13).backward()
        if number == 60:
            before, capacity = process.memory_info().rss, context.mover.stack.capacity
    assert context.mover.tensors > 300 * 10
    assert context.mover.stack.capacity == capacity
    assert process.memory_info().rss - before < 16 << 20


def test_a_graph_that_somebody_keeps_is_told_before_the_host_is_full() -> None:
    built, context = made(plan())
    kept: list[torch.Tensor] = []

    def keep() -> None:
        with entered([context]):
            kept.append(forward(built))

    for _ in range(32):
        keep()
    with pytest.raises(RunError, match="what 32 micro-batches saved is still held by somebody"):
        keep()


def test_on_tensors_without_storage_the_device_is_freed_all_the_same() -> None:
    with torch.device("meta"):
        built = model()
    (context,) = memcfg_step_context(plan=plan(), model=built, contexts=[])
    ids, mask = torch.zeros(2, 9, dtype=torch.int64, device="meta"), torch.zeros(2, 1, 9, 9, device="meta")
    with entered([context]):
        built.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state.sum().backward()
    assert context.mover.tensors > 10
    assert all(p.grad is not None and p.grad.is_meta for p in built.model.layers.parameters())
