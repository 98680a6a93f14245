"""Liger in plans: what follows from it, and memory predicted with kernels that are not launched."""

import pytest

import memcfg
from memcfg.planner.predict import predict
from memcfg.registry import load

pytestmark = [pytest.mark.torch, pytest.mark.slow]
GPU = ["assume.device=h100", "assume.liger.installed=true"]


@pytest.mark.parametrize("more", [[], ["liger.layers=false"], ["loss=dft"]], ids=["all", "head", "dft"])
def test_memory_is_predicted_without_a_gpu(more):
    pytest.importorskip("liger_kernel")
    plan = memcfg.resolve([*GPU, "liger=on", *more])
    assert plan["loss.kernel"] == "liger"
    whole = memcfg.resolve([*GPU, "loss=nll"])
    ligers, plain = (predict(p, load(), fresh=True) for p in (plan, whole))
    assert ligers.allocated_bytes < plain.allocated_bytes
