"""The kernel of `adamw_bf16` does what its plain form does; on a GPU a step takes no memory beside weights and states."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import torch

pytestmark = pytest.mark.torch
SCRIPT = pathlib.Path(__file__).with_name("interpreted.py")


def test_the_kernel_rounds_as_plain_torch_does(interpreting_python: str) -> None:
    """The same random bits: but for a last bit of float32 the same numbers."""
    pytest.importorskip("triton")
    done = subprocess.run([interpreting_python, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"torch.bfloat16", "torch.float32", "torch.float16"}
    for dtype, apart in found.items():
        assert apart["far"] < 0.02, dtype  # a bfloat16 is one step off at most
        assert apart["share"] < (0.05 if dtype == "torch.float32" else 0.005), dtype


def test_predicted_for_a_gpu_the_step_takes_what_plain_adamw_takes() -> None:
    pytest.importorskip("triton")
    import memcfg
    from memcfg.planner.simulate import simulate
    from memcfg.registry import load

    found = {}
    for name in ("adamw", "adamw_bf16"):
        plan = memcfg.resolve(["assume.device=h200", "model.dtype=bfloat16", f"optimizer={name}"])
        found[name] = simulate(plan, load().hooks(plan)).to_dict()
    plain, rounded = (found[name]["phases"] for name in ("adamw", "adamw_bf16"))
    assert plain["optimizer"] > plain["load"]
    for phase, taken in rounded.items():  # plain AdamW counts its steps on the device, in 512 bytes for each tensor
        assert plain[phase] - 512 * 30 <= taken <= plain[phase], phase


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_on_a_gpu_a_step_needs_no_room_and_follows_plain_torch(dtype: torch.dtype) -> None:
    from memcfg_optimizer.stochastic import StochasticAdamW

    torch.manual_seed(0)
    weights = torch.randn(3001, 4099, device="cuda").to(dtype)
    moved = []
    for kernel in (True, False):
        parameter = torch.nn.Parameter(weights.clone())
        optimizer = StochasticAdamW([parameter], lr=1e-2, weight_decay=0.1, seed=3, kernel=kernel)
        for step in range(3):
            generator = torch.Generator("cuda").manual_seed(step)
            parameter.grad = torch.randn(parameter.shape, device="cuda", generator=generator).to(dtype)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            optimizer.step()
            if kernel and step:
                assert torch.cuda.max_memory_allocated() == before
            if not kernel:
                assert torch.cuda.max_memory_allocated() - before < 320 << 20
        assert optimizer.kernels == (3 if kernel else 0)
        moved.append(parameter.detach())
    mine, plain = (weights.double() for weights in moved)
    apart = (mine - plain).abs()
    if dtype == torch.bfloat16:
        assert float((apart != 0).double().mean()) < 0.005
    else:  # the last bits of float32 are those of other divisions; where a moment is rounded otherwise, more of them
        assert float((apart > 1e-6 * (plain.abs() + 1e-2)).double().mean()) < 0.005
    assert float((apart / (plain.abs() + 1e-3)).max()) < 0.02
