"""Weights are packed one layer at a time as they arrive: what that gives, and the most that a device holds meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("bitsandbytes")

import bitsandbytes as bnb
from memcfg_model.presets import PRESETS
from memcfg_quantization.hooks import memcfg_patch_model
from memcfg_quantization.layers import already
from memcfg_quantization.simulated import stand_ins

from memcfg import Plan, resolve
from memcfg.arriving import held
from memcfg.planner import standins
from memcfg.planner.hosts import machine_of
from memcfg.planner.simulate import Watched, record
from memcfg.planner.trace import Trace
from memcfg.planner.tracker import Tracker
from memcfg.registry import Registry, load
from memcfg.simulated import listening
from memcfg.testing import PeakMemory
from memcfg.testing.memory import allocations

pytestmark = pytest.mark.torch

SHAPE = ["model=shape", "model.preset=smollm2-135m", "truncation.max_length=32", "run.batch_size=1"]
MODES = ["quantization=nf4", "quantization=nf4 quantization.double=true", "quantization=int8"]
BY_FOLD = {"quantization=nf4": 7.1, "quantization=nf4 quantization.double=true": 7.6, "quantization=int8": 3.9}
"""How many times smaller float32 weights become."""
TABLES = 4096
"""Bytes of tables that simulations count otherwise."""


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4}
    narrow = {"head_dim": 64, "num_key_value_heads": 2, "vocab_size": 2048, "tie_word_embeddings": False}
    monkeypatch.setitem(PRESETS, "smollm2-135m", {**PRESETS["smollm2-135m"], **small, **narrow})
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plan(registry: Registry, *more: str) -> Plan:
    return resolve([*SHAPE, *more], registry=registry)


def adapted(registry: Registry, mode: str, *more: str) -> Plan:
    return plan(registry, "peft=lora", *mode.split(), *more)


def changes(trace: Trace, until: int | None = None) -> list[int]:
    """Sizes of births, and of deaths as negative numbers."""
    return [trace.births[abs(e) - 1].size * (1 if e > 0 else -1) for e in trace.events[:until]]


def packing(plan: Plan, registry: Registry) -> list[int]:
    """The simulated load, up to the packed model."""
    tracker, machine = Tracker(machine_of(plan)), machine_of(plan)
    with standins.in_place(standins.of_torch(machine)), tracker, listening(tracker):
        tracker.enter(0, "load")
        model = Watched(registry.hooks(plan), tracker).load_model(plan=plan, device="meta")
        model = memcfg_patch_model(plan=plan, model=model)
        tracker.watching = False
    return changes(tracker.trace)


def loading(plan: Plan, registry: Registry) -> tuple[int, int, Any]:
    """The real load on the CPU: the most and the rest, in bytes, and the model."""
    hooks = registry.hooks(plan)
    with PeakMemory() as peak:
        model = hooks.load_model(plan=plan, device="cpu")
        model = memcfg_patch_model(plan=plan, model=model)
    return peak.bytes, sum(allocations(peak._profile)), model


@pytest.mark.parametrize("mode", MODES)
def test_the_load_of_packed_weights_is_simulated_as_it_is(mode: str, registry: Registry) -> None:
    asked = adapted(registry, mode)
    simulated = packing(asked, registry)
    loading(asked, registry)  # what libraries keep from their first use is no part of a load
    most, rest, model = loading(asked, registry)
    assert sum(simulated) == pytest.approx(rest, abs=TABLES)
    # bitsandbytes' kernels for CPUs copy what they pack, its kernels for GPUs do not
    largest = max(layer.in_features * layer.out_features * 4 for layer in already(model))
    assert 0 <= most - max(itertools.accumulate(simulated)) <= 3 * largest


@pytest.mark.parametrize("mode", MODES)
def test_only_one_layer_at_a_time_is_on_the_device_whole(mode: str, registry: Registry) -> None:
    simulated = packing(adapted(registry, mode), registry)
    largest = 688 * 256 * 4
    whole = 2 * 2048 * 256 * 4
    packed = (sum(simulated) - whole) / (4 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688))
    assert packed == pytest.approx(4 / BY_FOLD[mode], rel=0.03)
    assert max(itertools.accumulate(simulated)) <= sum(simulated) + 2 * largest


@pytest.mark.parametrize("mode", MODES)
def test_the_weights_are_those_of_a_model_that_was_loaded_whole(mode: str, registry: Registry) -> None:
    asked = adapted(registry, mode)
    passing = memcfg_patch_model(plan=asked, model=registry.hooks(asked).load_model(plan=asked, device="cpu"))
    plain = plan(registry)
    whole = registry.hooks(plain).load_model(plan=plain, device="cpu")
    assert not held(whole)
    whole = memcfg_patch_model(plan=asked, model=whole)
    expected = whole.state_dict()
    assert {name: bool((t == expected[name]).all()) for name, t in passing.state_dict().items()} == dict.fromkeys(
        expected, True
    )


@pytest.mark.parametrize(
    ("source", "packed"), [(SHAPE, 256 * 688 // 2), (["model.hidden=64"], 64 * 192 // 2)], ids=["shape", "tiny"]
)
def test_on_a_gpu_no_model_is_there_whole_before_it_is_packed(
    source: list[str], packed: int, registry: Registry
) -> None:
    asked = resolve([*source, "peft=lora", "quantization=nf4", "assume.device=rtx4090"], registry=registry)
    trace = record(asked, registry.hooks(asked), machine_of(asked)).trace
    end = next(at for at, number, _ in trace.marks if number == 1)
    load = changes(trace, end)
    assert max(itertools.accumulate(load)) <= sum(load) + 2 * max(load)
    assert load.count(packed) >= 3 * 2


def test_a_simulation_leaves_no_table_without_values_behind(registry: Registry) -> None:
    asked = adapted(registry, MODES[1])
    packing(asked, registry)
    model = loading(asked, registry)[2]
    scales = already(model)[0].weight.quant_state.state2  # type: ignore[union-attr]
    assert scales.code.device.type == "cpu"


def test_a_product_with_eight_bit_weights_keeps_no_input(registry: Registry) -> None:
    """On `meta`, where bitsandbytes takes the way that it takes on a GPU."""
    asked = adapted(registry, "quantization=int8")
    model = memcfg_patch_model(plan=asked, model=registry.hooks(asked).load_model(plan=asked, device="meta"))
    given = torch.randn(2, 3, 256, device="meta", requires_grad=True)
    out = already(model)[0](given)
    assert type(out.grad_fn).__name__ == "MatMul8bitLtBackward"
    assert out.grad_fn.tensors == (None, None, None)
    out.sum().backward()
    assert given.grad is not None


@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(48, 64), (3, 24)])
def test_packing_apart_gives_what_the_operation_gives(shape: tuple[int, int], storage: torch.dtype) -> None:
    apart, plain = stand_ins()["torch:ops.bitsandbytes.quantize_4bit"], torch.ops.bitsandbytes.quantize_4bit
    weight = torch.randn(shape)
    both = [operation.default(weight, 64, "nf4", storage) for operation in (apart, plain)]
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(*both, strict=True)), "bit by bit"
    ghosts = plain.default(weight.to("meta"), 64, "nf4", storage)
    found = apart.default(weight.to("meta"), 64, "nf4", storage)
    assert [(t.shape, t.dtype, t.is_meta) for t in found] == [(t.shape, t.dtype, True) for t in ghosts]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("rows", [1, 7])
def test_products_taken_apart_give_what_the_operation_gives(rows: int, double: bool) -> None:
    apart, plain = stand_ins()["torch:ops.bitsandbytes.gemm_4bit"], torch.ops.bitsandbytes.gemm_4bit
    weight = torch.randn(48, 64)
    packed, state = bnb.functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
    more = {"bias": torch.randn(48)}
    scales = state.absmax
    if double:
        scales = state.state2.absmax
        more |= {"absmax_8bit": state.absmax, "absmax_code": state.state2.code, "absmax_offset": state.offset}
    given = (torch.randn(1, rows, 64), packed, state.shape, scales, 64, "nf4")
    expected = plain.default(*given, **more)

    def ghost(thing: Any) -> Any:
        return thing.to("meta") if isinstance(thing, torch.Tensor) else thing

    found = apart.default(*map(ghost, given), **{name: ghost(thing) for name, thing in more.items()})
    assert (found.shape, found.dtype, found.is_meta) == (expected.shape, expected.dtype, True)
    assert torch.equal(apart.default(*given, **more), expected)
