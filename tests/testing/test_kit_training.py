"""The kit's step, meter and recorder against what they measure."""

import pytest
import torch

import memcfg
from memcfg.engine.build import build
from memcfg.registry import load
from memcfg.testing import HookRecorder, PeakMemory, assert_same_training, first_update

pytestmark = pytest.mark.torch
PLAIN = ["checkpointing=none"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def plain():
    return first_update(PLAIN)


def test_a_step_is_repeatable_and_moves_the_weights(plain):
    again = first_update(PLAIN)
    assert (again.loss, again.norm) == (plain.loss, plain.norm)
    assert_same_training(again, plain, tolerance=0.0, weights=True)
    moved = first_update([*PLAIN, "run.learning_rate=0.5"])
    assert_same_training(moved, plain, tolerance=0.0)
    with pytest.raises(AssertionError, match=r"the value after the step of `.*` differs by"):
        assert_same_training(moved, plain, weights=True)


def test_another_technique_and_another_loss(plain):
    assert_same_training([], plain)
    with pytest.raises(AssertionError, match=r"the loss is .*, and that of the reference"):
        assert_same_training([*PLAIN, "loss=dft"], plain)


def test_other_parameters_are_not_the_same_training(plain):
    with pytest.raises(AssertionError, match="only one of the two has"):
        assert_same_training([*PLAIN, "peft=lora", "peft.dropout=0.0"], plain, tolerance=1e3)


def test_a_comparison_of_nothing_is_refused():
    silent = first_update(PLAIN)
    for gradient in silent.gradients.values():
        gradient.zero_()
    with pytest.raises(AssertionError, match=r"only 0 of \d+ gradients of the reference are not zero"):
        assert_same_training(silent, silent)


def test_the_meter_counts_what_is_in_use_at_once():
    kept = torch.zeros(10_000)
    with PeakMemory() as peak:
        first = torch.zeros(1000)
        second = torch.zeros(500)
        del first
        third = torch.zeros(250)
    assert peak.bytes == 6000
    assert len(kept) + len(second) + len(third) == 10_750


@pytest.mark.gpu
def test_the_meter_on_a_gpu():
    with PeakMemory("cuda") as peak:
        first = torch.zeros(1 << 20, device="cuda")
        del first
    assert peak.bytes == 1 << 22


def test_the_recorder_sees_what_the_engine_asks_and_gets():
    plan = memcfg.resolve(["model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=1"])
    recorder = HookRecorder(load().hooks(plan))
    run = build(plan, recorder, data=False)
    (loaded,) = recorder.of("memcfg_load_model")
    assert (loaded.plugins, loaded.arguments["device"]) == (("model",), run.device)
    assert loaded.ms > 0
    assert recorder.of("patch_model")[0].plugins == recorder.hooks.implementers("patch_model")
    assert recorder.of("objective")[0].result is run.objective
