"""Every optimizer moves what it holds, says what it is, and comes back from a checkpoint; the home-made ones are exact."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_optimizer import plugin, stochastic
from memcfg_optimizer.hooks import memcfg_evidence, memcfg_optimizer
from memcfg_optimizer.in_backward import InBackward
from memcfg_optimizer.kinds import KINDS
from memcfg_optimizer.stochastic import keys, noise, store_

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import compare

pytestmark = pytest.mark.torch

BETAS = {"lion_8bit": [0.9, 0.99]}


def plan(name: str = "adamw", **overrides: Any) -> Plan:
    values = {
        "optimizer.name": name, "optimizer.weight_decay": 0.0, "optimizer.betas": BETAS.get(name, [0.9, 0.999]),
        "optimizer.eps": 1e-8, "optimizer.momentum": 0.0, "optimizer.fused": False, "optimizer.in_backward": False,
        "run.learning_rate": 1e-2, "device.type": "cpu",
    }  # fmt: skip
    values |= {f"optimizer.{key}": value for key, value in overrides.items()}
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(67, 65), torch.nn.Tanh(), torch.nn.Linear(65, 1)).to(dtype)


def train(made: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range = range(5)) -> list[float]:
    losses = []
    for step in steps:
        x = torch.randn(16, 67, generator=torch.Generator().manual_seed(step)).to(next(made.parameters()).dtype)
        loss = (made(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def weights(made: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten() for p in made.parameters()])


@pytest.fixture(params=list(KINDS))
def name(request: pytest.FixtureRequest) -> str:
    if KINDS[request.param][0].startswith("bitsandbytes"):
        pytest.importorskip("bitsandbytes")
    return str(request.param)


@pytest.mark.parametrize("in_backward", [False, True])
def test_everything_moves_and_the_evidence_agrees(name: str, in_backward: bool) -> None:
    if in_backward and name == "adamw_offload":
        return
    asked, made = plan(name, in_backward=in_backward, weight_decay=0.1), model()
    optimizer, before = memcfg_optimizer(plan=asked, model=made), weights(made)
    train(made, optimizer, range(1))
    assert (weights(made) != before).float().mean() > 0.99
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(optimizer=optimizer), found=[])
    compare(asked, found)
    assert "4 tensors, 4,486 parameters" in next(e for e in found if e.key == "optimizer.name").evidence


@pytest.mark.parametrize("in_backward", [False, True])
def test_training_goes_on_from_a_checkpoint_to_the_last_bit(name: str, in_backward: bool, tmp_path: Path) -> None:
    """Through a file that is read as data alone, into another model and optimizer."""
    if in_backward and name == "adamw_offload":
        return
    asked, straight, interrupted, resumed = plan(name, in_backward=in_backward), model(), model(), model()
    torch.manual_seed(0)
    train(straight, memcfg_optimizer(plan=asked, model=straight), range(6))
    torch.manual_seed(0)
    first = memcfg_optimizer(plan=asked, model=interrupted)
    train(interrupted, first, range(3))
    torch.save({"model": interrupted.state_dict(), "optimizer": first.state_dict()}, tmp_path / "saved.pt")
    saved = torch.load(tmp_path / "saved.pt", map_location="cpu", weights_only=True)
    drawn = torch.get_rng_state()
    second = memcfg_optimizer(plan=asked, model=resumed)
    resumed.load_state_dict(saved["model"])
    second.load_state_dict(saved["optimizer"])
    torch.set_rng_state(drawn)
    train(resumed, second, range(3, 6))
    assert torch.equal(weights(resumed), weights(straight))


@pytest.mark.parametrize("kind", ["adamw", "sgd", "adafactor"])
def test_in_the_backward_pass_is_the_same_step(kind: str) -> None:
    made, moving = model(), model()
    train(made, memcfg_optimizer(plan=plan(kind, weight_decay=0.1), model=made))
    train(moving, memcfg_optimizer(plan=plan(kind, weight_decay=0.1, in_backward=True), model=moving))
    torch.testing.assert_close(weights(moving), weights(made), rtol=0, atol=1e-7)


def test_in_the_backward_pass_gradients_are_freed_one_after_the_other() -> None:
    made = model()
    optimizer = memcfg_optimizer(plan=plan(in_backward=True), model=made)
    made(torch.randn(3, 67)).sum().backward()
    assert all(p.grad is None for p in made.parameters())
    assert isinstance(optimizer, InBackward)
    assert optimizer.moved == 4
    after = weights(made)
    optimizer.step()
    assert torch.equal(weights(made), after), "everything has moved already"


def test_in_the_backward_pass_a_schedule_is_followed() -> None:
    made = model()
    optimizer = memcfg_optimizer(plan=plan(in_backward=True), model=made)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    train(made, optimizer, range(1))
    scheduler.step()
    before = weights(made)
    train(made, optimizer, range(1, 2))
    assert torch.equal(weights(made), before), "the rate is zero by now"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_offloaded_adamw_is_adamw_on_float32_copies(dtype: torch.dtype) -> None:
    made, twin = model(dtype), model(dtype).float()
    optimizer = memcfg_optimizer(plan=plan("adamw_offload", weight_decay=0.1), model=made)
    reference = memcfg_optimizer(plan=plan("adamw", weight_decay=0.1), model=twin)
    for step in range(4):
        train_grads(made, step)
        for p, q in zip(twin.parameters(), made.parameters(), strict=True):
            q.grad = q.grad if q.grad is not None else torch.zeros_like(q)
            p.grad = q.grad.float()
        optimizer.step()
        reference.step()
        for p, q in zip(twin.parameters(), made.parameters(), strict=True):
            torch.testing.assert_close(q, p.to(dtype), rtol=1e-6, atol=1e-7)
            q.grad = None


def train_grads(made: torch.nn.Module, step: int) -> None:
    x = torch.randn(16, 67, generator=torch.Generator().manual_seed(step)).to(next(made.parameters()).dtype)
    (made(x).float() - x.float().sum(1, keepdim=True)).square().mean().backward()


def test_bf16_adamw_is_adamw_but_for_rounding() -> None:
    made, twin = model(), model()
    train(made, memcfg_optimizer(plan=plan("adamw_bf16", weight_decay=0.1), model=made), range(8))
    train(twin, memcfg_optimizer(plan=plan("adamw", weight_decay=0.1), model=twin), range(8))
    assert (weights(made) - weights(twin)).norm() / weights(twin).norm() < 5e-3


def test_updates_too_small_for_bfloat16_count_on_average() -> None:
    torch.manual_seed(0)
    values = torch.full((20_000,), 1.0 + 2.0**-10)  # an eighth of bfloat16's last bit above one
    target = torch.empty(20_000, dtype=torch.bfloat16)
    store_(target, values.clone(), noise(target, 0, *keys(0, 1, 2))[0] & 0xFFFF)
    assert set(target.tolist()) == {1.0, 1.0 + 2.0**-7}
    assert float(target.double().mean()) == pytest.approx(1.0 + 2.0**-10, abs=5e-5)
    assert float(values.bfloat16().double().mean()) == 1.0, "rounded to nearest, they are lost"


def test_random_bits_are_even_and_differ_from_step_to_step_and_tensor_to_tensor() -> None:
    """Each of 32 bits is set in half of the elements, and no two streams have more in common than chance gives."""
    like = torch.empty(1 << 16)
    found = {(step, number): noise(like, 0, *keys(3, step, number)) for step in (1, 2) for number in (0, 1)}
    streams = [one for both in found.values() for one in both]
    for stream in streams:
        set_ = torch.stack([(stream >> bit & 1).double().mean() for bit in range(32)])
        assert float((set_ - 0.5).abs().max()) < 0.01  # five standard deviations
    for one, other in itertools.combinations(streams, 2):
        low = torch.stack([(one & 0xFFFF).double(), (other & 0xFFFF).double()])
        assert abs(float(torch.corrcoef(low)[0, 1])) < 0.02
    assert torch.equal(noise(like[:100], 500, 7, 8)[0], noise(like, 0, 7, 8)[0][500:600])


def test_large_tensors_are_moved_in_pieces_and_others_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made, pieced, strange = (model(torch.bfloat16) for _ in range(3))
    train(made, memcfg_optimizer(plan=plan("adamw_bf16", weight_decay=0.1), model=made))
    monkeypatch.setattr(stochastic, "PIECE", 1000)
    train(pieced, memcfg_optimizer(plan=plan("adamw_bf16", weight_decay=0.1), model=pieced))
    assert torch.equal(weights(pieced), weights(made))
    strange[0].weight.data = strange[0].weight.data.t().contiguous().t()
    train(strange, memcfg_optimizer(plan=plan("adamw_bf16", weight_decay=0.1), model=strange))
    assert torch.equal(weights(strange), weights(made))


def test_what_else_draws_random_numbers_changes_no_rounding() -> None:
    """Processes with the same gradients keep the same weights, whatever each of them has drawn."""
    made, other = model(torch.bfloat16), model(torch.bfloat16)
    train(made, memcfg_optimizer(plan=plan("adamw_bf16"), model=made))
    torch.rand(17)
    before = torch.get_rng_state()
    train(other, memcfg_optimizer(plan=plan("adamw_bf16"), model=other))
    assert torch.equal(weights(other), weights(made))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.0, float("inf"), float("-inf"), float("nan"), 3.3e38, 1e-40])
def test_what_bfloat16_holds_is_stored_as_it_is_and_nothing_else_becomes_infinite(value: float) -> None:
    target = torch.empty(64, dtype=torch.bfloat16)
    store_(target, torch.full((64,), value), torch.arange(64, dtype=torch.int32) * 1040)
    exact = torch.tensor(value).bfloat16().float()
    if float(exact) == value or value != value:
        assert torch.equal(target.float().nan_to_num(7.0), exact.expand(64).nan_to_num(7.0))
    else:
        assert bool(((target.float() - value).abs() <= abs(value) * 2**-7 + 1e-38).all())


def test_eight_bit_states_are_eight_bits() -> None:
    pytest.importorskip("bitsandbytes")
    made = torch.nn.Sequential(torch.nn.Linear(64, 128))
    optimizer = memcfg_optimizer(plan=plan("adamw_8bit"), model=made)
    made(torch.randn(3, 64)).sum().backward()
    optimizer.step()
    kinds = {
        v.dtype for v in optimizer.state[made[0].weight].values() if isinstance(v, torch.Tensor) and v.numel() > 4096
    }
    assert kinds == {torch.uint8}


def test_a_package_that_cannot_be_loaded_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(RunError, match=r"`optimizer\.name`: `bitsandbytes\.optim` cannot be loaded"):
        memcfg_optimizer(plan=plan("adamw_8bit"), model=model())


def test_the_menu_is_what_can_be_built() -> None:
    menu = next(option for option in plugin.options if option.key == "optimizer.name")
    assert list(KINDS) == sorted(KINDS, key=list(KINDS).index)
    assert set(itertools.chain(menu.values)) == set(KINDS)
