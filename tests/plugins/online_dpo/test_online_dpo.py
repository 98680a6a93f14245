"""Pairs that the policy sampled: which is better, which tell nothing, and the loss against loops in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_online_dpo.objective import SampledPairs, Settings
from torch.nn.functional import logsigmoid

from memcfg import RequestError, prompts
from memcfg.engine.policy import REFERENCE, Sampled
from memcfg.engine.update import gradients
from memcfg.judging import Judge, Reward, Rewards
from memcfg.rollouts import Round, Sample

pytestmark = pytest.mark.torch

SHAPES = ((4, 5, 3), (1, 2, 7), (6, 1, 1))
"""Tokens of a prompt and of its two completions."""


class Words:
    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [" ".join(map(str, ids)) for ids in rows]


def sampled(finished: tuple[bool, ...] = (True,) * 6) -> Round:
    generator = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 40, (n,), generator=generator).tolist()  # noqa: E731
    ids, before = [], []
    for prompt, one, other in SHAPES:
        before += [draw(prompt)] * 2
        ids += [draw(one), draw(other)]
    samples = [Sample(each, ended) for each, ended in zip(ids, finished, strict=True)]
    return Round(before, [{"prompt": "p"}] * 6, samples, 2)


def objective(**more: Any) -> SampledPairs:
    return SampledPairs(Sampled(2, 8, 0.9, ["any"]), Settings(**more))


@pytest.mark.parametrize("loss", ["sigmoid", "ipo"])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_loss_equals_plain_loops(bench: Any, loss: str, parts: int) -> None:
    policy, reference, made, round_ = bench.model(0), bench.model(2), objective(loss=loss, beta=0.2), sampled()
    made.bind(None, bench.attention(policy))
    worth = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 0.5], dtype=torch.float64)  # the last pair tells nothing
    rows, figures = made.rows(round_, worth, [False] * 6)
    size = 3 // parts
    batches = [bench.batch(prompts.collate(rows[at : at + size])) for at in range(0, 3, size)]
    with torch.no_grad():
        for batch in batches:
            batch.fields[REFERENCE] = made.score(reference, batch)
    result = gradients(policy, batches, made)

    def whole(model: Any, at: int) -> torch.Tensor:
        prompt, ids = round_.prompts[at], round_.samples[at].ids
        row = [*prompt, *ids]
        logps = torch.log_softmax(model(input_ids=torch.tensor([row]), use_cache=False).logits[0, :-1] / 0.9, -1)
        return sum(logps[t, row[t + 1]] for t in range(len(prompt) - 1, len(row) - 1))

    total = 0.0
    for better, worse in ((1, 0), (2, 3)):
        gap = [whole(policy, at) - whole(reference, at) for at in (better, worse)]
        margin = float((gap[0] - gap[1]).detach())
        total += float(-logsigmoid(torch.tensor(0.2 * margin))) if loss == "sigmoid" else (margin - 2.5) ** 2
    assert result.count == 2
    assert float(result.loss) == pytest.approx(total / 2, rel=1e-5)
    assert figures == {"rewards/gap": pytest.approx(4 / 3), "ties": pytest.approx(1 / 3)}


def test_a_completion_that_does_not_end_loses_the_penalty() -> None:
    made, round_ = objective(penalty=1.5), sampled((True, False, True, True, False, False))
    made.rewards = Rewards([Reward("any", lambda finished: [2.0] * len(finished))], [0.5], Words())
    values, names = made.values(round_)
    assert names == ["any", "missing_eos"]
    assert made.total(values).tolist() == [1.0, -0.5, 1.0, 1.0, -0.5, -0.5]
    made.tokenizer = Words()
    shown = [(record["rewards"], record["reward"]) for record in made.learn(round_).records][:2]
    assert shown == [({"any": 2.0, "missing_eos": 0.0}, 1.0), ({"any": 2.0, "missing_eos": -1.5}, -0.5)]


def test_a_judge_stands_in_for_rewards() -> None:
    made, round_ = objective(judge="longer"), sampled()
    longer = lambda completions: [int(len(b) > len(a)) for a, b in completions]  # noqa: E731
    made.judged_by(Words(), [Judge("longer", longer), Reward("any", list)])
    learned = made.learn(round_)
    assert [row["seq_lengths"] for row in learned.rows] == [[9, 7], [8, 3], [7, 7]]
    assert {name: value for name, value in learned.figures.items() if name.startswith("rewards/longer")} == {
        "rewards/longer/mean": 0.5,
        "rewards/longer/std": pytest.approx(0.5477, abs=1e-4),
    }
    assert [record["rewards"] for record in learned.records] == [
        {"longer": record["reward"]} for record in learned.records
    ]
    with pytest.raises(RequestError) as caught:
        objective(judge="shorter").judged_by(Words(), [Judge("longer", longer)])
    assert str(caught.value) == (
        "`online_dpo.judge`: there is no judge `shorter`: there are `longer`\n  online_dpo.judge=null  # the rewards judge"
    )
