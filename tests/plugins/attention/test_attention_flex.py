"""FlexAttention on a GPU: forward and backward against `sdpa`, in every layout that it is used with.

None of this runs on a CPU, where FlexAttention has no backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_attention.hooks import memcfg_attention
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import RowsLayout
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from memcfg import Decision, Plan
from memcfg.batch import Batch, Documents
from memcfg.engine.layout import Paper

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"sliding_window": 4},
}
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


def computed(kind: str, implementation: str, batch: Batch, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of all tokens in float32, and the gradients of a weighted sum of them, flat."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(SMALL | KINDS[kind]))).to("cuda", dtype)
    attention = memcfg_attention(Plan({"attention.implementation": Decision(implementation, "you")}), model)
    logits = model(**batch.inputs, **attention.inputs(batch), use_cache=False).logits[batch.document_ids >= 0].float()
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2)).cuda()
    (logits * weights).sum().backward()
    gradients = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    return logits.detach(), gradients


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_logits_and_gradients_are_those_of_sdpa(kind: str, layout: str) -> None:
    """In bfloat16 the error against float32 `sdpa` is no larger than that of bfloat16 `sdpa`."""
    batch = batch_of(layout)
    exact = computed(kind, "sdpa", batch, torch.float32)
    coarse = computed(kind, "sdpa", batch, torch.bfloat16)
    found = computed(kind, "flex", batch, torch.bfloat16)
    for mine, rounded, expected in zip(found, coarse, exact, strict=True):
        assert (mine - expected).norm() <= 1.5 * (rounded - expected).norm()


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_no_document_reaches_another(kind: str) -> None:
    batch = batch_of("packed")
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(SMALL | KINDS[kind]))).to("cuda")
    attention = memcfg_attention(Plan({"attention.implementation": Decision("flex", "you")}), model)
    hidden = model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
    kwargs = {"inputs_embeds": hidden, "position_ids": batch.position_ids, "use_cache": False}
    logits = model(**kwargs, **attention.inputs(batch)).logits
    logits[batch.document_ids == 2].float().sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[(batch.document_ids >= 0) & (batch.document_ids != 2)].abs().max() == 0
    assert hidden.grad[batch.document_ids == 2].abs().max() > 0
