"""Documents that share a row: the loss, the gradients and the logits are those of each document alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from memcfg_attention.hooks import memcfg_attention
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.tokens import NLL
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import FlatLayout, RowsLayout
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.batch import Batch, Documents
from memcfg.engine.forward import attach_head
from memcfg.engine.layout import Paper
from memcfg.head.architectures import transform_of

pytestmark = pytest.mark.torch
VOCABULARY = 64
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
}  # fmt: skip
WINDOW = {"sliding_window": 4}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 8},
    "gemma3_text": {"head_dim": 8, **WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": WINDOW,
}
OWN_MASKS: dict[str, dict[str, Any]] = {
    "gpt_oss": {"head_dim": 8, **WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0, "max_position_embeddings": 64},
}
LENGTHS = [(4, 3, 5), (3, 1, 4), (1, 1, 1), (2, 1, 1, 3), (9, 1, 2, 1, 6)]


def build(kind: str, implementation: str) -> tuple[Any, Any]:
    """A small model with weights large enough for attention to matter, and its attention."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(SMALL | KINDS.get(kind, OWN_MASKS.get(kind, {})))))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.1)
    attention = memcfg_attention(Plan({"attention.implementation": Decision(implementation, "you")}), model)
    attach_head(model, ChunkedHead(transform_of(model), budget=7 * VOCABULARY * 4))
    return model.train(), attention


def documents(lengths: tuple[int, ...], seed: int = 1, rows: list[list[int]] | None = None) -> Documents:
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in lengths]
    return Documents(ids, [x.clone() for x in ids], rows or [[*range(len(ids))]])


def single(whole: Documents, index: int) -> Documents:
    return Documents([whole.input_ids[index]], [whole.labels[index]], [[0]])


def step(model: Any, attention: Any, batches: list[Batch]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss summed over the batches, divided by the number of targets, and its gradients."""
    model.zero_grad()
    count = sum(int((batch.labels[:, 1:] != -100).sum()) for batch in batches)
    total = torch.zeros(())
    for batch in batches:
        call = lambda head, inner, hidden, labels=batch.labels: head.loss_sum(inner, hidden, labels, NLL())  # noqa: E731
        loss = model(**batch.inputs, **attention.inputs(batch), head_call=call) / max(count, 1)
        loss.backward()
        total += loss.detach()
    return total, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(
    found: tuple[torch.Tensor, dict[str, torch.Tensor]], expected: tuple[torch.Tensor, dict[str, torch.Tensor]]
) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(
            found[1][name], gradient, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def implementations(kinds: dict[str, Any]) -> list[Any]:
    offered = {"gpt_oss": ["eager"]}
    return [pytest.param(k, i, id=f"{k}-{i}") for k in kinds for i in offered.get(k, ["eager", "sdpa"])]


@pytest.mark.parametrize(("kind", "implementation"), implementations(KINDS | OWN_MASKS))
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
def test_a_packed_step_equals_the_documents_alone(kind, implementation, checkpointing):
    model, attention = build(kind, implementation)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for lengths in LENGTHS:
        whole = documents(lengths)
        alone = step(model, attention, [PaddedLayout(Paper(0))(single(whole, i)) for i in range(len(lengths))])
        same(step(model, attention, [RowsLayout(Paper(0))(whole)]), alone)


LAYOUTS: dict[str, Callable[[Documents], Batch]] = {
    "padded": PaddedLayout(Paper(0)),
    "padded to 16": PaddedLayout(Paper(0, multiple_of=16)),
    "rows": RowsLayout(Paper(0)),
    "rows of 16": RowsLayout(Paper(0, multiple_of=16, max_length=12)),
    "flat": FlatLayout(Paper(0)),
    "flat to 32": FlatLayout(Paper(0, multiple_of=32)),
}


@pytest.mark.parametrize(("kind", "implementation"), implementations(KINDS | OWN_MASKS))
def test_every_layout_gives_the_same_step(kind, implementation):
    model, attention = build(kind, implementation)
    whole = documents((3, 9, 4, 12, 5, 7), rows=[[i] for i in range(6)])
    alone = step(model, attention, [PaddedLayout(Paper(0))(single(whole, i)) for i in range(6)])
    for layout in LAYOUTS.values():
        same(step(model, attention, [layout(whole)]), alone)
    two_rows = Documents(whole.input_ids, whole.labels, [[0, 1, 2], [3, 4]])
    rest = Documents(whole.input_ids[5:], whole.labels[5:], [[0]])
    same(step(model, attention, [RowsLayout(Paper(0))(two_rows), RowsLayout(Paper(0))(rest)]), alone)


@pytest.mark.parametrize(("kind", "implementation"), implementations(KINDS | OWN_MASKS))
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_changing_one_document_leaves_the_others_bit_equal(kind, implementation, training):
    model, attention = build(kind, implementation)
    model.train(training)
    whole = documents((4, 1, 5))

    def hidden(batch: Batch) -> torch.Tensor:
        return model(**batch.inputs, **attention.inputs(batch), head_call=lambda head, inner, hidden: hidden)

    before = hidden(RowsLayout(Paper(0))(whole))
    whole.input_ids[0] = (whole.input_ids[0] + 7) % VOCABULARY
    after = hidden(RowsLayout(Paper(0))(whole))
    assert not torch.equal(before[:, :4], after[:, :4])
    tolerance = 1e-6 if kind == "gpt_oss" else 0.0  # which tokens share an expert's product decides its last bit
    torch.testing.assert_close(before[:, 4:], after[:, 4:], rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_token_of_a_document_predicts_nothing(kind):
    model, attention = build(kind, "sdpa")
    batch = RowsLayout(Paper(0))(documents((3, 1, 4)))
    kept = {}

    def call(head: Any, inner: Any, hidden: torch.Tensor) -> torch.Tensor:
        hidden.retain_grad()
        kept["hidden"] = hidden
        return head.loss_sum(inner, hidden, batch.labels, NLL())

    model(**batch.inputs, **attention.inputs(batch), head_call=call).backward()
    silent = kept["hidden"].grad[0].abs().sum(-1) == 0
    assert silent.tolist() == [False, False, True, True, False, False, False, True]


def test_one_document_to_a_row_needs_no_mask_even_where_it_is_padded():
    _, attention = build("opt", "sdpa")
    whole = documents((3, 5), rows=[[0], [1]])
    assert attention.inputs(PaddedLayout(Paper(0))(whole)) == {}
    assert set(attention.inputs(FlatLayout(Paper(0))(whole))) == {"attention_mask"}


def test_an_attention_that_the_model_does_not_offer_is_refused():
    with pytest.raises(RunError, match=r"`GptOssForCausalLM` .* the attention `sdpa`"):
        build("gpt_oss", "sdpa")
