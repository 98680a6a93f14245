"""Leave-one-out baselines, the penalty in the reward, and the loss of whole completions, against loops in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_rloo.objective import LeaveOneOut, Settings, advantages

from memcfg import prompts
from memcfg.engine.policy import OLD, REFERENCE, Sampled
from memcfg.engine.update import gradients
from memcfg.rollouts import Round, Sample

pytestmark = pytest.mark.torch

REWARDS = [1.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]


def test_each_is_compared_with_the_others_of_its_prompt() -> None:
    found = advantages(torch.tensor(REWARDS, dtype=torch.float64), 4, normalize=False)
    assert found.tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3, 0, 0, 0, 0])


@pytest.mark.parametrize("normalize", [False, True])
def test_a_group_of_one_which_evaluation_may_have_is_neither_good_nor_bad(normalize: bool) -> None:
    assert advantages(torch.tensor(REWARDS, dtype=torch.float64), 1, normalize=normalize).tolist() == [0.0] * 8


@pytest.mark.parametrize("rewards", [REWARDS, [2.0] * 8, [1e-9, 0, 0, 0, 0, 0, 0, 0]])
def test_dividing_by_the_deviation_never_explodes(rewards: list[float]) -> None:
    found = advantages(torch.tensor(rewards, dtype=torch.float64), 4, normalize=True)
    assert float(found.abs().max()) < 10


def sampled(shapes: list[tuple[int, int]]) -> Round:
    generator = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 40, (n,), generator=generator).tolist()  # noqa: E731
    given = [(draw(before), Sample(draw(size), True)) for before, size in shapes]
    return Round([p for p, _ in given], [{}] * len(given), [s for _, s in given], 2)


def scored(bench: Any, model: Any, prompt: Any, ids: list[int], temperature: float) -> torch.Tensor:
    whole = [*prompt, *ids]
    logits = model(input_ids=torch.tensor([whole]), use_cache=False).logits[0, :-1] / temperature
    logps = torch.log_softmax(logits, -1)
    return torch.stack([logps[at, whole[at + 1]] for at in range(len(prompt) - 1, len(whole) - 1)])


@pytest.mark.parametrize("parts", [1, 2])
def test_the_loss_equals_plain_loops(bench: Any, parts: int) -> None:
    policy, old, reference = bench.model(0), bench.model(0), bench.model(2)
    with torch.no_grad():
        for p in old.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype))
    round_, rewards = sampled([(4, 5), (4, 1), (2, 3), (2, 6)]), [1.0, 0.25, -0.5, 2.0]
    made = LeaveOneOut(Sampled(2, 8, 0.9, ["any"]), Settings(beta=0.05, low=0.01, high=0.02))
    made.bind(None, bench.attention(policy))
    rows, _ = made.rows(round_, torch.tensor(rewards, dtype=torch.float64), [False] * 4)
    size = 4 // parts
    batches = [bench.batch(prompts.collate(rows[at : at + size])) for at in range(0, 4, size)]
    with torch.no_grad():
        for batch in batches:
            batch.fields[OLD], batch.fields[REFERENCE] = made.score(old, batch), made.score(reference, batch)
    figures = made.settle(round_, batches)
    result = gradients(policy, batches, made)

    total, moved, tokens = torch.zeros((), dtype=torch.float64), [], 0
    given = list(zip(round_.prompts, round_.samples, strict=True))
    for prompt, sample in given:
        kept = [scored(bench, m, prompt, sample.ids, 0.9).detach() for m in (old, reference)]
        moved.append(float((kept[0] - kept[1]).sum()))
        tokens += len(sample.ids)
    worth = [reward - 0.05 * gap for reward, gap in zip(rewards, moved, strict=True)]
    for at, (prompt, sample) in enumerate(given):
        advantage = worth[at] - worth[at ^ 1]  # the only other of its prompt
        new, before = (scored(bench, m, prompt, sample.ids, 0.9).sum() for m in (policy, old))
        ratio = torch.exp(new - before.detach())
        total = total - torch.minimum(ratio * advantage, ratio.clamp(0.99, 1.02) * advantage) / 4
    assert figures["kl"] == pytest.approx(sum(moved) / tokens, abs=1e-6)
    assert float(result.loss) == pytest.approx(float(total.detach()), abs=1e-6)
    assert result.count == 4


def test_rewards_stay_within_their_bounds() -> None:
    made = LeaveOneOut(Sampled(2, 8, 1.0, ["any"]), Settings(beta=0.0, bounds=(-1.0, 1.0)))
    from memcfg.judging import Reward, Rewards

    made.rewards = Rewards([Reward("any", list)], [2.0], None)
    assert made.total(torch.tensor([[3.0], [-0.25]]).double()).tolist() == [1.0, -0.5]
