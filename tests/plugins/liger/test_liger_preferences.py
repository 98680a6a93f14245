"""Beside Liger's fused preference losses, in float64: memcfg's, whose log-probabilities come in chunks of any size, give the
same loss and the same gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("liger_kernel")

from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_reference.references import Live

from memcfg.engine.companion import frozen
from memcfg.engine.forward import backbone_of
from memcfg.engine.pairs import collate

pytestmark = pytest.mark.torch

BETA, SHARE, TAU = 0.3, 0.1, 0.05
LOSSES = ["sigmoid", "hinge", "robust", "exo_pair", "nca_pair", "sppo_hard", "apo_zero", "apo_down", "discopop"]
"""All that Liger offers but `bco_pair`, of which it leaves out the running mean of rewards."""


def shifted(model: Any, batch: Any, order: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states and the targets that they predict, with the documents in another order."""
    hidden = backbone_of(model)(**batch.inputs, use_cache=False).last_hidden_state
    return hidden[order, :-1], batch.labels[order, 1:]


@pytest.mark.parametrize("loss", LOSSES)
def test_pairs(bench: Any, loss: str) -> None:
    student, reference, batch = bench.model(0), bench.model(1), bench.batch(collate(bench.rows()))
    smoothing = SHARE if loss in ("robust", "exo_pair") else 0.0
    made = PreferencePairs(Settings({loss: 1.0}, BETA, smoothing, tau=TAU))
    made.bind(None, bench.attention(student))
    made.refer(Live(frozen(reference)))
    found = made.loss_sum(student, batch) / made.count(batch)
    found.backward()
    mine = bench.gradients(student)

    theirs = LigerFusedLinearDPOLoss(
        beta=BETA, compiled=False, loss_type=loss, label_smoothing=smoothing, discopop_tau=TAU
    )
    order = [*range(0, 8, 2), *range(1, 8, 2)]
    hidden, targets = shifted(student, batch, order)
    with torch.no_grad():
        before, _ = shifted(reference, batch, order)
    expected, _ = theirs(student.lm_head.weight, hidden, targets, ref_input=before, ref_weight=reference.lm_head.weight)
    expected.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6), "Liger's adds up in float32"
    bench.same(mine, bench.gradients(student), 1e-5)
