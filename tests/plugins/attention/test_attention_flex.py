"""FlexAttention on a GPU: forward and backward against `sdpa`, in every layout that it is used with.

None of this runs on a CPU, where FlexAttention has no backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import RowsLayout

from memcfg.batch import Batch, Documents
from memcfg.engine.layout import Paper

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
]

LAYOUTS = {
    "padded": (PaddedLayout(Paper(0)), [[0], [1], [2], [3], [4], [5]]),
    "rows": (RowsLayout(Paper(0)), [[0], [1], [2], [3], [4], [5]]),
    "packed": (RowsLayout(Paper(0)), [[0, 1, 2], [3, 4], [5]]),
}


def batch_of(layout: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(3, 64, (n,), generator=generator) for n in (9, 1, 2, 1, 6, 33)]
    lay, rows = LAYOUTS[layout]
    return lay(Documents(ids, [x.clone() for x in ids], rows)).to("cuda")


def computed(model: Any, attention: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of all tokens in float32, and the gradients of a weighted sum of them, flat."""
    logits = model(**batch.inputs, **attention.inputs(batch), use_cache=False).logits[batch.document_ids >= 0].float()
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2)).cuda()
    (logits * weights).sum().backward()
    gradients = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    return logits.detach(), gradients


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_logits_and_gradients_are_those_of_sdpa(attended: Any, architecture: str, layout: str) -> None:
    """In bfloat16 the error against float32 `sdpa` is no larger than that of bfloat16 `sdpa`."""
    batch = batch_of(layout)
    exact = computed(*attended(architecture, "sdpa", device="cuda"), batch)
    coarse = computed(*attended(architecture, "sdpa", device="cuda", dtype=torch.bfloat16), batch)
    found = computed(*attended(architecture, "flex", device="cuda", dtype=torch.bfloat16), batch)
    for mine, rounded, expected in zip(found, coarse, exact, strict=True):
        assert (mine - expected).norm() <= 1.5 * (rounded - expected).norm()


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_no_document_reaches_another(attended: Any, kind: str) -> None:
    batch = batch_of("packed")
    model, attention = attended(kind, "flex", device="cuda")
    hidden = model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
    kwargs = {"inputs_embeds": hidden, "position_ids": batch.position_ids, "use_cache": False}
    logits = model(**kwargs, **attention.inputs(batch)).logits
    logits[batch.document_ids == 2].float().sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[(batch.document_ids >= 0) & (batch.document_ids != 2)].abs().max() == 0
    assert hidden.grad[batch.document_ids == 2].abs().max() > 0
