"""Every loss of groups against loops over tokens, written from the papers' formulas in float64, in every layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from memcfg_grpo.losses import Settings, advantages
from memcfg_grpo.objective import GroupRelative

from memcfg import prompts
from memcfg.engine.policy import OLD, REFERENCE, Sampled
from memcfg.engine.update import gradients
from memcfg.rollouts import Sample

pytestmark = pytest.mark.torch

LOSSES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
SHAPES = ((4, 5, True), (4, 1, True), (1, 3, False), (6, 2, True))
"""Tokens of a prompt, of its completion, and whether that ended by itself."""
ADVANTAGES = (1.5, -0.5, -1.25, 0.75)
LIMIT = 8


def completed(*, masked: Sequence[int] = ()) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 40, (n,), generator=generator).tolist()  # noqa: E731
    return [
        prompts.completed(draw(before), [Sample(draw(size), ended)], masked=[at in masked], advantage=[ADVANTAGES[at]])
        for at, (before, size, ended) in enumerate(SHAPES)
    ]


def objective(bench: Any, model: Any, settings: Settings, temperature: float = 0.7) -> GroupRelative:
    made = GroupRelative(Sampled(2, LIMIT, temperature, ["any"]), settings)
    made.bind(None, bench.attention(model))
    return made


class Plain:
    """The loss of one completion, from whole logits and loops."""

    def __init__(self, bench: Any, settings: Settings, temperature: float = 0.7) -> None:
        self.bench, self.settings, self.temperature = bench, settings, temperature

    def logps(self, model: Any, row: dict[str, Any]) -> torch.Tensor:
        logits = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0, :-1] / self.temperature
        scored = torch.log_softmax(logits, -1)
        return torch.stack([scored[at, label] for at, label in enumerate(row["labels"][1:]) if label != -100])

    def tokens(self, row: dict[str, Any], policy: Any, old: Any, reference: Any) -> list[torch.Tensor]:
        s, advantage = self.settings, row["advantage"][0]
        new, before, base = self.logps(policy, row), self.logps(old, row).detach(), self.logps(reference, row).detach()
        steps = new - before
        ratios = torch.exp(steps.mean()).expand(len(steps)) if s.by_completion else torch.exp(steps)
        found = []
        for at in range(len(steps)):
            ratio = ratios[at]
            if s.loss == "cispo":
                value = -min(float(ratio.detach()), s.high) * advantage * new[at]
            elif s.loss == "sapo":
                tau = 1.0 if advantage > 0 else 1.05
                value = -4 / tau / (1 + torch.exp(-tau * (ratio - 1))) * advantage
            elif s.loss == "vespo":
                w = math.exp(float(steps.detach().sum()))
                a, b = (2.0, 3.0) if advantage >= 0 else (3.0, 2.0)
                value = -math.exp(b) * w**a * math.exp(-b * w) * advantage * new[at]
            else:
                bounded = ratio if s.delta is None or ratio < s.delta else torch.tensor(s.delta).double()
                inside = torch.clamp(ratio, 1 - s.low, 1 + s.high)
                value = -min(bounded * advantage, inside * advantage)
            if s.off_policy is not None and advantage < 0 and float((-steps.detach()).mean()) > s.off_policy:
                value = value * 0
            if s.beta:
                gap = base[at] - new[at]
                value = value + s.beta * (torch.exp(gap) - gap - 1) * (ratio if s.kl_correction else 1)
            found.append(value)
        return found

    def loss(self, rows: list[dict[str, Any]], *models: Any) -> torch.Tensor:
        each = [self.tokens(row, *models) for row in rows if any(label != -100 for label in row["labels"])]
        loss, flat = self.settings.loss, [value for tokens in each for value in tokens]
        if loss in ("grpo", "sapo"):
            return sum(sum(tokens) / len(tokens) for tokens in each) / len(each)
        if loss == "dr_grpo":
            return sum(flat) / (LIMIT * len(each))
        if loss == "luspo":
            return sum(sum(tokens) for tokens in each) / len(each)
        return sum(flat) / len(flat)


def batched(bench: Any, made: GroupRelative, rows: list[dict[str, Any]], layout: str, old: Any, reference: Any) -> Any:
    """A micro-batch with the scores of the two models that are kept."""
    batch = bench.batch(prompts.collate(rows), layout)
    with torch.no_grad():
        batch.fields[OLD], batch.fields[REFERENCE] = made.score(old, batch), made.score(reference, batch)
    return batch


@pytest.mark.parametrize("layout", ["padded", "rows"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_equal_plain_loops(bench: Any, loss: str, layout: str) -> None:
    policy, old, reference = bench.model(0), bench.model(0), bench.model(2)
    with torch.no_grad():
        for p in old.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype))
    settings = Settings(loss=loss, low=0.1, high=1.3 if loss == "cispo" else 0.15, beta=0.04)
    rows = completed()
    made = objective(bench, policy, settings)
    result = gradients(policy, [batched(bench, made, rows, layout, old, reference)], made)
    seen = bench.gradients(policy)
    expected = Plain(bench, settings).loss(rows, policy, old, reference)
    expected.backward()
    assert float(result.loss) == pytest.approx(float(expected.detach()), abs=1e-6)
    bench.same(seen, bench.gradients(policy), 1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"by_completion": True},
        {"delta": 1.05, "low": 0.3, "high": 0.3},
        {"beta": 0.1, "kl_correction": True},
        {"off_policy": -0.05},
        {"low": 0.0, "high": 0.3},
    ],
    ids=lambda more: "-".join(more),
)
def test_what_shapes_a_loss_equals_plain_loops(bench: Any, more: dict[str, Any]) -> None:
    policy, old, reference = bench.model(0), bench.model(0), bench.model(2)
    with torch.no_grad():
        for p in old.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype))
    settings = replace(Settings(loss="grpo", low=0.1, high=0.1), **more)
    rows, made = completed(), objective(bench, policy, settings)
    result = gradients(policy, [batched(bench, made, rows, "padded", old, reference)], made)
    plain = Plain(bench, settings).loss(rows, policy, old, reference)
    assert float(result.loss) == pytest.approx(float(plain.detach()), abs=1e-6)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "bnpo"])
def test_micro_batches_change_nothing(bench: Any, loss: str) -> None:
    policy, settings = bench.model(0), Settings(loss=loss, high=2.0)
    rows, made = completed(masked=[2]), objective(bench, policy, settings)
    whole = gradients(policy, [bench.batch(prompts.collate(rows))], made)
    together = bench.gradients(policy)
    parts = [bench.batch(prompts.collate(part)) for part in (rows[:1], rows[1:3], rows[3:])]
    apart = gradients(policy, parts, made)
    assert float(apart.loss) == pytest.approx(float(whole.loss), abs=1e-9)
    bench.same(together, bench.gradients(policy))


ONE = [(3, True), (5, False), (2, True)]


@pytest.mark.parametrize(
    ("loss", "hidden", "accumulation", "expected"),
    [
        # tokens of completions that hit the limit are neither above nor below the line
        ("dapo", [1], 1, 5 / 5),
        ("dapo", [1], 3, 5 / 5),
        ("dapo", [], 1, 10 / 10),
        ("dapo", [0, 1, 2], 1, 0.0),
        ("dapo", [0, 1, 2], 3, 0.0),
        # nor is a masked completion one of those that are averaged over
        ("grpo", [1], 1, 2 / 2),
        ("grpo", [1], 3, 2 / 2),
        ("dr_grpo", [1], 1, 5 / (2 * LIMIT)),
        # a micro-batch without a token is none
        ("bnpo", [1], 3, 1.0),
    ],
)
def test_masked_completions_leave_both_sides_of_the_line(
    bench: Any, loss: str, hidden: list[int], accumulation: int, expected: float
) -> None:
    """Each token's loss is one: an advantage of -1 at a ratio of 1."""
    policy, made = bench.model(), None
    made = objective(bench, policy, Settings(loss=loss))
    rows = [
        prompts.completed([5, 6], [Sample([7] * size, ended)], masked=[at in hidden], advantage=[-1.0])
        for at, (size, ended) in enumerate(ONE)
    ]
    parts = [rows] if accumulation == 1 else [[row] for row in rows]
    batches = [bench.batch(prompts.collate(part)) for part in parts]
    result = gradients(policy, batches, made)
    assert float(result.loss) == pytest.approx(expected)
    found = bench.gradients(policy)
    assert all(torch.isfinite(g).all() for g in found.values())
    if len(hidden) == len(ONE):
        assert not any(g.any() for g in found.values())
    assert sum(sum(batch.lengths) - 2 * len(batch.lengths) for batch in batches) == 10


REWARDS = [1.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("group", [1.49970, -0.49990, -0.49990, -0.49990, 0, 0, 0, 0]),
        ("batch", [0.756711, -0.252237, -0.252237, -0.252237, 0, 0, 0, 0]),
        ("none", [0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0]),
    ],
)
def test_advantages(scale: str, expected: list[float]) -> None:
    found = advantages(torch.tensor(REWARDS, dtype=torch.float64), 4, scale)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_of_one_which_evaluation_may_have_is_neither_good_nor_bad(scale: str) -> None:
    assert advantages(torch.tensor(REWARDS, dtype=torch.float64), 1, scale).tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("mode", "low", "high", "expected"),
    [
        # probabilities of the trained model over the sampler's: 2, 1/2 and 4 (the second completion has the last)
        ("token_truncate", None, 3.0, [2.0, 0.5, 3.0]),
        ("token_truncate", 1.0, None, [2.0, 1.0, 4.0]),
        ("token_mask", None, 3.0, [2.0, 0.5, 0.0]),
        ("token_mask", 1.0, 3.0, [2.0, 0.0, 0.0]),
        ("sequence_truncate", None, 3.0, [1.0, 1.0, 3.0]),
        ("sequence_mask", None, 3.0, [1.0, 1.0, 0.0]),
        ("sequence_mask", None, None, [1.0, 1.0, 4.0]),
    ],
)
@pytest.mark.parametrize("layout", ["padded", "rows"])
def test_another_sampler_is_corrected_for(
    bench: Any, mode: str, low: float | None, high: float | None, expected: list[float], layout: str
) -> None:
    from memcfg_grpo.correction import Correction

    from memcfg.engine import documents

    given = [([5, 6], [-1.0, -2.0]), ([7], [-3.0])]
    rows = [
        prompts.completed([3] * (2 + at), [Sample(ids, True)], masked=[False], sampler_logprobs=[theirs])
        for at, (ids, theirs) in enumerate(given)
    ]
    batch = bench.batch(prompts.collate(rows), layout)
    mask = documents.learned(batch)
    theirs = documents.placed(batch, batch.fields["sampler_logprobs"])
    ours = documents.placed(
        batch, [torch.tensor([-1.0, -2.0]) + torch.tensor([2.0, 0.5]).log(), torch.tensor([-3.0]) + math.log(4)]
    )
    weights = Correction(mode, low, high).weights(batch, ours, theirs, mask)
    own = documents.owners(batch).view(mask.shape)
    found = [float(w) for d in range(2) for w in weights[mask & (own == d)]]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_correction_needs_the_samplers_own_numbers(bench: Any) -> None:
    from memcfg_grpo.correction import Correction

    from memcfg import RunError
    from memcfg.rollouts import Round

    made = GroupRelative(Sampled(2, LIMIT, 1.0, ["any"]), Settings(), Correction("token_mask", high=3.0))
    sampled = Round([[3], [3]], [{}, {}], [Sample([5], True), Sample([6], True)], 2)
    with pytest.raises(RunError) as caught:
        made.rows(sampled, torch.tensor([1.0, 0.0]).double(), [False, False])
    assert str(caught.value) == (
        "`grpo.correction`: the sampler gives no log-probabilities, which the correction compares\n  grpo.correction=false"
    )
