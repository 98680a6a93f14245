"""One optimizer step over six documents is the same step, however they are batched, accumulated and laid out."""

from typing import Any

import pytest
import torch
from memcfg_attention.hooks import memcfg_attention
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import FlatLayout, RowsLayout
from memcfg_sft.hooks import memcfg_objective
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import Decision, Plan
from memcfg.batch import Documents
from memcfg.engine.forward import attach_head
from memcfg.engine.layout import Paper
from memcfg.engine.update import gradients
from memcfg.head import HeadTransform

pytestmark = pytest.mark.torch
LENGTHS, VOCABULARY, TARGETS = (3, 9, 4, 12, 5, 7), 64, 34
RATE = 0.5
PLAN = Plan({"trainer.name": Decision("sft", "default"), "attention.implementation": Decision("sdpa", "default")})


def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().train()


def documents(rows: list[list[int]]) -> Documents:
    """The documents that these rows hold, renumbered."""
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in LENGTHS]
    chosen = [d for row in rows for d in row]
    place = iter(range(len(chosen)))
    return Documents(
        [ids[d] for d in chosen], [ids[d].clone() for d in chosen], [[next(place) for _ in row] for row in rows]
    )


def trained(layout: Any, micro_batches: list[list[list[int]]], head: Any) -> tuple[float, torch.Tensor]:
    """The loss of the step and all weights after it."""
    subject = model()
    attention = memcfg_attention(PLAN, subject)
    attach_head(subject, head)
    objective = memcfg_objective(PLAN)
    objective.bind(NLL(), attention)
    result = gradients(subject, [layout(documents(rows)) for rows in micro_batches], objective)
    assert int(result.count) == TARGETS
    torch.optim.SGD(subject.parameters(), lr=RATE).step()
    return float(result.loss), torch.cat([p.detach().flatten() for p in subject.parameters()])


@pytest.fixture(scope="module")
def oracle() -> tuple[float, torch.Tensor]:
    """Each document alone through the model's own logits; summed, and divided once."""
    subject, total = model(), torch.zeros((), dtype=torch.float64)
    for ids in documents([[i] for i in range(6)]).input_ids:
        logits = subject(input_ids=ids[None], use_cache=False).logits[0, :-1]
        total = total + torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum")
    loss = total / TARGETS
    loss.backward()
    torch.optim.SGD(subject.parameters(), lr=RATE).step()
    return float(loss.detach()), torch.cat([p.detach().flatten() for p in subject.parameters()])


def singly(batch: int) -> list[list[list[int]]]:
    return [[[i] for i in range(start, start + batch)] for start in range(0, 6, batch)]


PACKED_16 = [[0, 1, 2], [3], [4, 5]]
SPLITS: dict[str, tuple[Any, list[list[list[int]]]]] = {
    **{f"padded {b} x {6 // b}": (PaddedLayout(Paper(0)), singly(b)) for b in (6, 1, 2, 3)},
    **{f"rows {b} x {6 // b}": (RowsLayout(Paper(0)), singly(b)) for b in (6, 1, 2, 3)},
    **{f"flat {b} x {6 // b}": (FlatLayout(Paper(0, multiple_of=8)), singly(b)) for b in (6, 1, 2, 3)},
    "packed at 16, together": (RowsLayout(Paper(0)), [PACKED_16]),
    "packed at 16, one by one": (RowsLayout(Paper(0)), [[row] for row in PACKED_16]),
    "packed at 40": (RowsLayout(Paper(0)), [[[0, 1, 2, 3, 4, 5]]]),
}
HEADS = {
    "full": FullHead(),
    **{f"chunks of {rows}": ChunkedHead(HeadTransform(), budget=rows * VOCABULARY * 8) for rows in (1, 7, 64)},
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("head", HEADS)
def test_the_same_loss_and_the_same_weights(split, head, oracle):
    loss, weights = trained(*SPLITS[split], HEADS[head])
    assert loss == pytest.approx(oracle[0], abs=1e-6)
    torch.testing.assert_close(weights, oracle[1], rtol=0, atol=1e-6)
