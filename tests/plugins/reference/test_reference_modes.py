"""Where the reference's log-probabilities come from makes no difference to what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import peft
import pytest
import torch
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_reference.references import AdapterOff, Live, Precomputed, Sync, weights

from memcfg import RunError
from memcfg.engine.companion import copied
from memcfg.engine.forward import VIRTUAL, causal_model
from memcfg.engine.pairs import SCORES, collate

pytestmark = pytest.mark.torch


def objective(bench: Any, model: Any, reference: Any, ld_alpha: float | None = None) -> PreferencePairs:
    made = PreferencePairs(Settings(), ld_alpha)
    made.bind(None, bench.attention(model))
    made.refer(reference)
    return made


def batches(bench: Any) -> Any:
    def of(rows: Any, size: int) -> Any:
        return (
            bench.batch(collate([rows[i] for i in range(s, min(s + size, len(rows)))]), "rows")
            for s in range(0, len(rows), size)
        )

    return of


def adapted(bench: Any, seed: int = 0) -> Any:
    """A model with an adapter that changes what it does."""
    model = peft.get_peft_model(bench.model(seed), peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


@pytest.mark.parametrize("ld_alpha", [None, 0.3])
@pytest.mark.parametrize("size", [1, 3])
def test_precomputed_is_live(bench: Any, ld_alpha: float | None, size: int) -> None:
    model, frozen = bench.model(0), bench.model(1)
    rows = datasets.Dataset.from_list(bench.rows())
    live = objective(bench, model, Live(frozen), ld_alpha)
    wanted = live.loss_sum(model, bench.batch(collate([*rows])))
    before = Precomputed(frozen, size)
    made = objective(bench, model, before, ld_alpha)
    known = before.prepare(rows, model, made.score, batches(bench))
    assert [len(row[SCORES]) for row in known] == [2] * 4
    found = made.loss_sum(model, bench.batch(collate([*known])))
    assert float(found) == pytest.approx(float(wanted), rel=1e-12)


def test_precomputed_are_those_of_the_model_before_training(bench: Any) -> None:
    model = bench.model(0)
    before = Precomputed(None, 2)
    made = objective(bench, model, before)
    known = before.prepare(datasets.Dataset.from_list(bench.rows()), model, made.score, batches(bench))
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    frozen = bench.model(0)
    wanted = objective(bench, model, Live(frozen)).loss_sum(model, bench.batch(collate([*known])))
    found = made.loss_sum(model, bench.batch(collate([*known])))
    assert float(found) == pytest.approx(float(wanted), rel=1e-12)
    assert float(found) != pytest.approx(4 * 0.6931, rel=1e-3), "the policy has moved"


def test_rows_that_are_not_known_are_refused(bench: Any) -> None:
    model = bench.model(0)
    made = objective(bench, model, Precomputed(None, 2))
    with pytest.raises(RunError, match="no precomputed log-probabilities"):
        made.loss_sum(model, bench.batch(collate(bench.rows())))


def test_what_is_kept_belongs_to_the_weights(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    datasets.Dataset.from_list(bench.rows()).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")
    model = bench.model(0)
    calls: list[int] = []

    def prepared(ld_alpha: float | None = None) -> Any:
        before = Precomputed(None, 2)
        made = objective(bench, model, before, ld_alpha)

        def counted(all_rows: Any, size: int) -> Any:
            calls.append(size)
            return batches(bench)(all_rows, size)

        return before.prepare(rows, model, made.score, counted)[SCORES][:]

    first = prepared()
    assert prepared() == first
    assert len(calls) == 1, "read from the cache"
    assert prepared(0.5) != first
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    assert prepared() != first
    assert len(calls) == 3


def test_the_adapter_switched_off_is_a_copy_without_it(bench: Any) -> None:
    model = adapted(bench)
    batch = bench.batch(collate(bench.rows()), "rows")
    apart = objective(bench, model, Live(bench.model(0))).loss_sum(model, batch)
    apart.backward()
    wanted = bench.gradients(model)
    found = objective(bench, model, AdapterOff()).loss_sum(model, batch)
    found.backward()
    assert float(found) == pytest.approx(float(apart), rel=1e-12)
    bench.same(bench.gradients(model), wanted)
    assert model.training


def test_trained_prompts_are_gone_from_the_reference(bench: Any) -> None:
    rows = bench.batch(collate(bench.rows()))
    model: Any = peft.get_peft_model(
        bench.model(0), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    )
    setattr(causal_model(model), VIRTUAL, 3)
    goal, plain = objective(bench, model, AdapterOff()), bench.model(0)
    with torch.no_grad():
        wanted = goal.score(plain, rows)
        for reference in (AdapterOff(), Live.of(model, None, None)):
            assert torch.allclose(reference.scores(model, rows, goal.score), wanted)
        assert not torch.allclose(goal.score(model, rows), wanted, rtol=1e-3), "the policy has them"


def test_a_live_copy_of_an_adapted_model_is_the_model_before_training(bench: Any) -> None:
    model = adapted(bench)
    batch = bench.batch(collate(bench.rows()))
    wanted = objective(bench, model, Live(bench.model(0))).loss_sum(model, batch)
    found = objective(bench, model, Live.of(model, None, None)).loss_sum(model, batch)
    assert float(found) == pytest.approx(float(wanted), rel=1e-12)


def test_a_reference_that_follows_moves_every_so_many_steps(bench: Any) -> None:
    model = bench.model(0)
    reference = Live.of(model, None, Sync(share=0.25, steps=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    reference.follow(model, optimizer)
    start = model.lm_head.weight.detach().clone()
    for step in range(1, 4):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        moved = start if step < 2 else start - 0.25 * 2
        assert torch.allclose(reference.model.lm_head.weight, moved), step
    assert reference.moved == 1
    resumed = Live.of(bench.model(1), None, Sync(share=0.25, steps=2))
    resumed.load_state_dict(reference.state_dict())
    assert weights(resumed.model) == weights(reference.model)
    assert (resumed.moved, resumed._steps) == (1, 3)
    assert not any(p.requires_grad for p in reference.model.parameters())


def test_of_an_adapted_policy_the_adapter_is_what_a_reference_follows(bench: Any) -> None:
    model = peft.get_peft_model(bench.model(0), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    batch = bench.batch(collate(bench.rows()), "rows")
    reference, goal = Live.of(model, None, Sync(share=1.0, steps=1)), objective(bench, model, AdapterOff())
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    reference.follow(model, optimizer)
    before = reference.scores(model, batch, goal.score)
    assert torch.equal(before, AdapterOff().scores(model, batch, goal.score)), "an adapter that is new changes nothing"
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    with torch.no_grad():
        wanted = goal.score(model.eval(), batch)
    assert torch.equal(reference.scores(model, batch, goal.score), wanted)
    assert not torch.allclose(wanted, before)


def test_what_is_packed_does_not_move(bench: Any) -> None:
    model = bench.model(0)
    model.model.embed_tokens.weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.uint8), requires_grad=False)
    reference = Live.of(model, None, Sync(share=0.5, steps=1))
    reference._step(model)
    assert reference.moved == 1


def test_weights_are_told_apart(bench: Any) -> None:
    model = bench.model(0)
    assert weights(model) == weights(copied(model)) == weights(bench.model(0))
    assert weights(model) != weights(bench.model(1))
