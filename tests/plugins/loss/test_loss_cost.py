"""What the chunked head costs beside whole logits, on a CPU at a vocabulary of 32 k."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from memcfg.head.transform import HeadTransform
from memcfg.testing import PeakMemory

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    base_model_prefix = "model"

    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = torch.nn.Identity(), torch.nn.Linear(64, 32_768, bias=False)

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head

    def forward(self, input_ids: Any, use_cache: bool) -> Any:
        return types.SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))


def measured(head: Any) -> tuple[float, int]:
    """The loss, and the most bytes in use at once while it and its gradients are computed."""
    from memcfg_loss.tokens import NLL

    torch.manual_seed(0)
    model, hidden = Model(), torch.randn(2, 256, 64, requires_grad=True)
    labels = torch.randint(0, 32_768, (2, 256))
    with PeakMemory() as peak:
        loss = head.loss_sum(model, hidden, labels, NLL())
        loss.backward()
    return loss.item(), peak.bytes


def test_half_the_memory_of_whole_logits() -> None:
    from memcfg_loss.chunked import ChunkedHead
    from memcfg_loss.full import FullHead

    loss, whole = measured(FullHead())
    assert whole > 2 * 512 * 32_768 * 4, "logits and their gradients"
    chunked = measured(ChunkedHead(HeadTransform(), budget=16 << 20))
    assert chunked[0] == pytest.approx(loss, rel=1e-6)
    assert chunked[1] <= whole / 2
