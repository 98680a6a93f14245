"""Every loss and divergence against formulas written out one pair at a time; every layout against each document alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from memcfg_dpo.losses import LOSSES, Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_reference.references import Live

from memcfg.engine.loader import blank
from memcfg.engine.pairs import collate

pytestmark = pytest.mark.torch

BETA, SHARE, TAU = 0.3, 0.1, 0.05
IN_ORDER = ("aot", "aot_unpaired")
"""Losses of a whole micro-batch: they sort."""
DIVERGENCES = ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence")


def log_sigmoid(x: Any) -> Any:
    return -torch.log1p(torch.exp(-x))


def score(r: Any, divergence: str, alpha: float = 0.5) -> Any:
    """f'(t) of the f-divergence at t = p / p_ref."""
    t = torch.exp(r)
    if divergence == "forward_kl":
        return 1 - 1 / t
    if divergence == "js_divergence":
        return torch.log(2 * t / (1 + t))
    if divergence == "alpha_divergence":
        return (t ** (alpha - 1) - 1) / (alpha - 1)
    return r


def plain(name: str, y: Any, z: Any, ry: Any, rz: Any, n: tuple[int, int], divergence: str = "reverse_kl") -> Any:
    """The loss of one pair from summed log-probabilities: better and worse, under policy (y, z) and reference (ry, rz)."""
    a, b = y - ry, z - rz
    sy, sz = score(a, divergence), score(b, divergence)
    h = BETA * (sy - sz)
    if name == "sigmoid":
        return -(1 - SHARE) * log_sigmoid(h) - SHARE * log_sigmoid(-h)
    if name == "hinge":
        return torch.clamp(1 - h, min=0)
    if name == "ipo":
        return (sy / n[0] - sz / n[1] - 1 / (2 * BETA)) ** 2
    if name == "exo_pair":
        q = torch.sigmoid(h)
        return q * (torch.log(q) - math.log(1 - SHARE)) + (1 - q) * (torch.log(1 - q) - math.log(SHARE))
    if name == "nca_pair":
        return -log_sigmoid(BETA * a) - 0.5 * log_sigmoid(-BETA * a) - 0.5 * log_sigmoid(-BETA * b)
    if name == "robust":
        return (-(1 - SHARE) * log_sigmoid(h) + SHARE * log_sigmoid(-h)) / (1 - 2 * SHARE)
    if name == "bco_pair":
        return -log_sigmoid(BETA * a) - log_sigmoid(-BETA * b)
    if name == "sppo_hard":
        return (a - 0.5 / BETA) ** 2 + (b + 0.5 / BETA) ** 2
    if name == "apo_zero":
        return (1 - torch.sigmoid(BETA * a)) + torch.sigmoid(BETA * b)
    if name == "apo_down":
        return torch.sigmoid(BETA * a) + (1 - torch.sigmoid(BETA * (a - b)))
    if name == "discopop":
        m = torch.sigmoid(h / TAU)
        return -log_sigmoid(h) * (1 - m) + torch.exp(-h) * m
    if name == "sft":
        return -y / n[0]
    if name == "sigmoid_norm":
        g = BETA * (sy / n[0] - sz / n[1])
        return -(1 - SHARE) * log_sigmoid(g) - SHARE * log_sigmoid(-g)
    raise AssertionError(name)


def reference_loss(bench: Any, rows: Any, policy: Any, frozen: Any, name: str, divergence: str = "reverse_kl") -> Any:
    """The sum over pairs, each document run alone with whole logits."""
    total, table = 0.0, []
    for row in rows:
        (better, _), (worse, _) = (bench.token_logps(policy, *d) for d in bench.documents(row))
        with torch.no_grad():
            (ry, _), (rz, _) = (bench.token_logps(frozen, *d) for d in bench.documents(row))
        table.append((better.sum(), worse.sum(), ry.sum(), rz.sum()))
        if name not in IN_ORDER:
            total = total + plain(name, *table[-1], (len(better), len(worse)), divergence)
    if name in IN_ORDER:
        y, z, ry, rz = (torch.stack(column) for column in zip(*table, strict=True))
        if name == "aot":
            delta = torch.sort(y - z).values - torch.sort(ry - rz).values
        else:
            delta = torch.sort(y - ry).values - torch.sort(z - rz).values
        total = (-(1 - SHARE) * log_sigmoid(BETA * delta) - SHARE * log_sigmoid(-BETA * delta)).sum()
    return total


def objective(bench: Any, model: Any, frozen: Any, losses: dict[str, float], **more: Any) -> PreferencePairs:
    ld_alpha, weighting = more.pop("ld_alpha", None), more.pop("weighting", False)
    made = PreferencePairs(Settings(losses, BETA, SHARE, tau=TAU, **more), ld_alpha=ld_alpha, weighting=weighting)
    made.bind(None, bench.attention(model))
    made.refer(Live(frozen))
    return made


CASES = [(name, "reverse_kl") for name in LOSSES]
CASES += [(name, d) for name in ("sigmoid", "hinge", "ipo", "discopop", "sigmoid_norm") for d in DIVERGENCES[1:]]


@pytest.mark.parametrize(("name", "divergence"), CASES)
def test_loss_and_gradients_are_those_of_the_formula(bench: Any, name: str, divergence: str) -> None:
    model, frozen, rows = bench.model(0), bench.model(1), bench.rows()
    expected = reference_loss(bench, rows, model, frozen, name, divergence)
    expected.backward()
    wanted = bench.gradients(model)
    found = objective(bench, model, frozen, {name: 1.0}, divergence=divergence).loss_sum(
        model, bench.batch(collate(rows), "rows")
    )
    found.backward()
    assert float(found) == pytest.approx(float(expected), rel=1e-9)
    bench.same(bench.gradients(model), wanted)


@pytest.mark.parametrize("kernel", ["torch", "full"])
def test_every_layout_gives_what_each_pair_alone_gives(bench: Any, kernel: str) -> None:
    model, frozen, rows = bench.model(0, kernel=kernel), bench.model(1), bench.rows()
    made = objective(bench, model, frozen, {"sigmoid": 1.0, "ipo": 0.5, "sft": 0.2}, ld_alpha=0.4)
    total = sum(made.loss_sum(model, bench.batch(collate([row]))) for row in rows)
    total.backward()
    wanted = bench.gradients(model)
    for layout in ("padded", "rows", "flat"):
        found = made.loss_sum(model, bench.batch(collate(rows), layout))
        found.backward()
        assert float(found) == pytest.approx(float(total), rel=1e-9), layout
        bench.same(bench.gradients(model), wanted)


def test_a_mixture_is_the_weighted_sum(bench: Any) -> None:
    model, frozen = bench.model(0), bench.model(1)
    batch = bench.batch(collate(bench.rows()))
    value = lambda losses: float(objective(bench, model, frozen, losses).loss_sum(model, batch))  # noqa: E731
    assert value({"sigmoid": 0.5, "nca_pair": 2.0}) == pytest.approx(
        0.5 * value({"sigmoid": 1.0}) + 2.0 * value({"nca_pair": 1.0})
    )


def test_tokens_beyond_the_shorter_completion_are_weighed(bench: Any) -> None:
    model, frozen, rows, alpha = bench.model(0), bench.model(1), bench.rows(), 0.3

    def weighed(one: Any, other: Any) -> Any:
        shared = min(len(one), len(other))
        return one[:shared].sum() + alpha * one[shared:].sum()

    expected = 0.0
    for row in rows:
        sums = []
        for which in (model, frozen):
            y, z = (bench.token_logps(which, *d)[0] for d in bench.documents(row))
            sums.append((weighed(y, z), weighed(z, y)))
        expected = expected + plain("sigmoid", *sums[0], *(s.detach() for s in sums[1]), (1, 1))
    made = objective(bench, model, frozen, {"sigmoid": 1.0}, ld_alpha=alpha)
    for layout in ("padded", "rows", "flat"):
        assert float(made.loss_sum(model, bench.batch(collate(rows), layout))) == pytest.approx(
            float(expected), rel=1e-9
        )


def test_pairs_are_weighed_by_their_likelihood(bench: Any) -> None:
    model, frozen, rows = bench.model(0), bench.model(1), bench.rows()
    expected = 0.0
    for row in rows:
        (y, yall), (z, zall) = (bench.token_logps(model, *d) for d in bench.documents(row))
        (ry, _), (rz, _) = (bench.token_logps(frozen, *d) for d in bench.documents(row))
        weights = [
            torch.exp((logp - torch.log((every.exp() ** 2).sum(-1))).mean()).detach()
            for logp, every in ((y, yall), (z, zall))
        ]
        loss = plain("sigmoid", y.sum(), z.sum(), ry.sum().detach(), rz.sum().detach(), (len(y), len(z)))
        expected = expected + loss * weights[0] * weights[1]
    expected.backward()
    wanted = bench.gradients(model)
    found = objective(bench, model, frozen, {"sigmoid": 1.0}, weighting=True).loss_sum(
        model, bench.batch(collate(rows), "rows")
    )
    found.backward()
    assert float(found) == pytest.approx(float(expected), rel=1e-9)
    bench.same(bench.gradients(model), wanted)


@pytest.mark.parametrize("name", ["sigmoid", "ipo", "exo_pair", "aot", "sft"])
def test_a_batch_without_labels_counts_nothing_and_moves_nothing(bench: Any, name: str) -> None:
    model = bench.model(0)
    made = objective(bench, model, bench.model(1), {name: 1.0})
    batch = bench.batch(collate(bench.rows()), "rows")
    assert int(made.count(batch)) == 4
    masked = blank(batch)
    assert int(made.count(masked)) == 0
    loss = made.loss_sum(model, masked)
    assert float(loss) == 0.0
    loss.backward()
    assert all(not p.grad.abs().any() for p in model.parameters() if p.grad is not None)
    assert made.metrics() == {}


def test_before_training_every_pair_is_a_tie(bench: Any) -> None:
    model = bench.model(0)
    made = objective(bench, model, bench.copy(model), {"sigmoid": 1.0})
    batch = bench.batch(collate(bench.rows()))
    made.loss_sum(model, batch)
    found = dict(made.metrics())
    assert (found["rewards/accuracies"], found["rewards/margins"]) == (0.5, 0.0)
    assert found["logps/chosen"] < 0
    assert made.metrics() == {}, "reading starts anew"
    model.eval()
    made.loss_sum(model, batch)
    assert made.metrics() == {}
    assert made.held_out()["rewards/accuracies"] == 0.5
