"""The optimizer holds what is trainable, with the settings of the plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_optimizer import plugin
from memcfg_optimizer.hooks import memcfg_evidence, memcfg_optimizer

import memcfg
from memcfg import ConflictError, Decision, Plan
from memcfg.engine.evidence import compare

pytestmark = pytest.mark.torch


def plan(**overrides: Any) -> Plan:
    values = {
        "optimizer.name": "adamw", "optimizer.weight_decay": 0.0, "optimizer.betas": [0.9, 0.999],
        "optimizer.eps": 1e-8, "optimizer.fused": False, "run.learning_rate": 1e-3, "device.type": "cpu",
    }  # fmt: skip
    values |= {f"optimizer.{name}": value for name, value in overrides.items()}
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 8, bias=False))
    made[2].weight = made[0].weight  # tied
    return made


def test_everything_trainable_is_held_once_and_nothing_else() -> None:
    made = model()
    made[1].bias.requires_grad_(False)
    optimizer = memcfg_optimizer(plan=plan(), model=made)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert [id(p) for p in held] == [id(made[0].weight), id(made[1].weight)]


def test_the_plans_settings_are_used() -> None:
    optimizer = memcfg_optimizer(plan=plan(betas=[0.8, 0.95], eps=1e-6), model=model())
    group = optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["lr"], group["weight_decay"]) == ((0.8, 0.95), 1e-6, 1e-3, 0.0)


def test_matrices_decay_and_vectors_do_not() -> None:
    made = model()
    optimizer = memcfg_optimizer(plan=plan(weight_decay=0.1), model=made)
    decayed, rest = optimizer.param_groups
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() == 2 for p in decayed["params"])
    assert all(p.dim() == 1 for p in rest["params"])
    for p in made.parameters():
        p.grad = torch.zeros_like(p)
    before = [p.detach().clone() for p in made.parameters()]
    optimizer.step()
    shrunk = [not torch.equal(p, q) for p, q in zip(made.parameters(), before, strict=True)]
    assert shrunk == [True, False, False]


@pytest.mark.parametrize("betas", [[0.9], [0.9, 1.0], [-0.1, 0.9], ["a", "b"], [0.9, 0.95, 0.99]])
def test_betas_that_make_no_sense_are_refused(betas: list[Any]) -> None:
    with pytest.raises(ConflictError) as caught:
        memcfg.resolve([f"optimizer.betas={betas}"])
    assert f"needs two numbers from 0 to below 1, not {betas}" in str(caught.value)


@pytest.mark.parametrize("overrides", [{}, {"weight_decay": 0.1}, {"betas": [0.5, 0.6], "eps": 1e-5}])
def test_evidence_agrees_with_the_plan_it_was_built_from(overrides: dict[str, Any]) -> None:
    made = plan(**overrides)
    run = SimpleNamespace(optimizer=memcfg_optimizer(plan=made, model=model()))
    found = memcfg_evidence(plan=made, run=run, found=[])
    compare(made, found)
    assert {e.key for e in found} == {f"optimizer.{n}" for n in ("name", "weight_decay", "betas", "eps", "fused")}
    assert "3 tensors, 40 parameters" in found[0].evidence


def test_evidence_tells_what_is_in_force_not_what_was_planned() -> None:
    made = plan()
    run = SimpleNamespace(optimizer=torch.optim.AdamW(model().parameters(), weight_decay=0.01, betas=(0.9, 0.95)))
    found = {e.key: e.effective for e in memcfg_evidence(plan=made, run=run, found=[])}
    assert found["optimizer.weight_decay"] == 0.01
    assert found["optimizer.betas"] == [0.9, 0.95]


def test_every_rule_says_why() -> None:
    assert all(rule.because and rule.id.startswith("optimizer.") for rule in plugin.rules)
