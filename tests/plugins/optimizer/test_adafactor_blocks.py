"""Adafactor in blocks is Transformers' Adafactor, without its copies of large tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from memcfg_optimizer import adafactor
from transformers.optimization import Adafactor

from memcfg.testing import PeakMemory

pytestmark = pytest.mark.torch


def made(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    shapes = [(37, 11), (3, 20, 11), (500,), (4, 5), (11, 40)]
    found = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    found[4].data = found[4].data.t()  # laid out in columns: left to Transformers
    return found


def step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in parameters:
        gradient = torch.randn(parameter.shape, generator=generator) * 10.0 ** (number - 2)
        parameter.grad = gradient.to(parameter.dtype)
    optimizer.step()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adafactor, "LARGE", 100)
    monkeypatch.setattr(adafactor, "BLOCK", 77)  # seven rows at a time


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_in_blocks_it_is_transformers_adafactor(small: None, dtype: torch.dtype, decay: float) -> None:
    mine, theirs = made(dtype), made(dtype)
    blocks = adafactor.Adafactor(mine, lr=1e-2, weight_decay=decay)
    rate = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
    whole = Adafactor(theirs, lr=1e-2, weight_decay=decay, **rate)
    for number in range(4):
        step(mine, blocks, number)
        step(theirs, whole, number)
    for one, other in zip(mine, theirs, strict=True):
        # two roundings of float32, which a bfloat16 may fall to the other side of
        torch.testing.assert_close(one, other, rtol=1e-5 if dtype == torch.float32 else 2**-7, atol=1e-6)
        if dtype == torch.bfloat16:
            assert float((one != other).double().mean()) < 0.02
    for name in ("exp_avg_sq_row", "exp_avg_sq_col"):
        torch.testing.assert_close(blocks.state[mine[1]][name], whole.state[theirs[1]][name], rtol=1e-5, atol=0)


def test_of_bfloat16_weights_a_checkpoint_keeps_float32_states(small: None, tmp_path: Path) -> None:
    straight, resumed = made(torch.bfloat16), made(torch.bfloat16)
    one, other = adafactor.Adafactor(straight, lr=1e-2), adafactor.Adafactor(resumed, lr=1e-2)
    step(straight, one, 0)
    torch.save(one.state_dict(), tmp_path / "saved.pt")
    other.load_state_dict(torch.load(tmp_path / "saved.pt", weights_only=True))
    for mine, theirs in zip(resumed, straight, strict=True):
        mine.data.copy_(theirs.data)
    for number in (1, 2):
        step(straight, one, number)
        step(resumed, other, number)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(resumed, straight, strict=True))


def test_a_large_tensor_has_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 MiB: in blocks a step needs less than a tenth of it."""
    monkeypatch.setattr(adafactor, "LARGE", 1 << 20)
    monkeypatch.setattr(adafactor, "BLOCK", 1 << 14)
    peaks = {}
    for kind in (adafactor.Adafactor, Adafactor):
        parameter = torch.nn.Parameter(torch.randn(1 << 10, 1 << 10))
        parameter.grad = torch.randn(1 << 10, 1 << 10)
        rate = {} if kind is adafactor.Adafactor else {"scale_parameter": False, "relative_step": False}
        optimizer = kind([parameter], lr=1e-2, **rate)
        optimizer.step()
        with PeakMemory() as memory:
            optimizer.step()
        peaks[kind] = memory.bytes
    assert peaks[adafactor.Adafactor] < 400_000 < 8 << 20 < peaks[Adafactor]
