"""The head among other things: labels that are shifted already, a compiled backbone, a model that looks at images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_cce.head import ForeignHead
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from memcfg.batch import IGNORE
from memcfg.engine.forward import attach_head, backbone_of
from memcfg.head import HeadTransform, transform_of

pytestmark = pytest.mark.torch

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
ROW = 64 * 8
"""Bytes of one row of float64 logits."""


def llama() -> torch.nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).double()


def targets() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, :3] = labels[1, 4] = IGNORE
    return ids, labels


def asked(
    model: torch.nn.Module, head: Any, call: Any, **inputs: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What the head gives, and the gradients of its sum."""
    attach_head(model, head)
    model.zero_grad()
    found: torch.Tensor = model(**inputs, head_call=call)
    found.sum().backward()
    return found.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


HEADS = {
    "chunked": ChunkedHead(HeadTransform(), budget=3 * ROW), "full": FullHead(),
    "torch_linear": ForeignHead(HeadTransform(), "torch_linear"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HEADS))
def test_labels_that_are_shifted_already_give_the_same(name: str) -> None:
    if name == "torch_linear" and not hasattr(torch.nn.functional, "linear_cross_entropy"):
        pytest.skip("this torch has no linear_cross_entropy")
    model, (ids, labels) = llama(), targets()
    ahead = torch.cat([labels[:, 1:], labels.new_full((2, 1), IGNORE)], 1)

    def loss(shifted: bool) -> Any:
        given = ahead if shifted else labels
        return lambda head, inner, hidden: head.loss_sum(inner, hidden, given, NLL(), shifted=shifted)

    def logps(shifted: bool) -> Any:
        given = ahead if shifted else labels
        return lambda head, inner, hidden: head.logprobs(inner, hidden, given, 0.7, shifted=shifted)

    for ask in (loss, logps):
        (plain, expected), (found, gradients) = (
            asked(model, HEADS[name], ask(s), input_ids=ids) for s in (False, True)
        )
        if found.dim():
            plain = torch.cat([plain[:, 1:], plain.new_zeros(2, 1)], 1)
        torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)
        for mine, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_the_first_of_shifted_labels_is_a_target() -> None:
    """A piece of a sequence that lies on another device goes on where the one before it ended."""
    model, (ids, _) = llama(), targets()
    labels = torch.full_like(ids, IGNORE)
    labels[:, 0] = 5
    call = lambda shifted: lambda head, inner, hidden: head.loss_sum(inner, hidden, labels, NLL(), shifted=shifted)  # noqa: E731
    assert float(asked(model, HEADS["chunked"], call(False), input_ids=ids)[0]) == 0
    assert float(asked(model, HEADS["chunked"], call(True), input_ids=ids)[0]) > 1


def test_a_compiled_backbone_gives_the_same_loss_and_gradients() -> None:
    model, (ids, labels) = llama(), targets()
    head = ChunkedHead(transform_of(model), budget=3 * ROW)
    call = lambda head, inner, hidden: head.loss_sum(inner, hidden, labels, NLL())  # noqa: E731
    plain, expected = asked(model, head, call, input_ids=ids)
    graphs = []
    from torch._dynamo.backends.registry import lookup_backend

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    backbone_of(model).compile(backend=counted)
    try:
        found, gradients = asked(model, head, call, input_ids=ids)
    finally:
        torch._dynamo.reset()
    assert graphs, "the backbone was compiled"
    torch.testing.assert_close(found, plain)
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_model_that_looks_at_images() -> None:
    """The loss over whole logits in float64, with gradients that reach the eyes; also for text alone."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    eyes = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
    config = Qwen2VLConfig(
        text_config=SIZES | {"rope_parameters": rope, "bos_token_id": 1, "eos_token_id": 2}, vision_config=eyes,
        image_token_id=60, vision_start_token_id=61, vision_end_token_id=62, video_token_id=63,
    )  # fmt: skip
    model = Qwen2VLForConditionalGeneration(config).double()
    ids = torch.tensor([[1, 5, 61, 60, 60, 60, 60, 62, 7, 8, 9, 10]])
    labels = torch.where(torch.arange(12) < 8, IGNORE, ids)
    image = {
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4, dtype=torch.float64), "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == 60).long(),
    }  # fmt: skip
    first = model.model.visual.patch_embed.proj.weight
    for inputs in ({"input_ids": ids, **image}, {"input_ids": ids[:, :3]}):
        given = labels[:, : inputs["input_ids"].shape[1]].clone()
        given[:, -1] = inputs["input_ids"][:, -1]
        logits = model(**inputs, use_cache=False).logits
        plain = torch.nn.functional.cross_entropy(logits[0, :-1], given[0, 1:], reduction="sum")
        model.zero_grad()
        plain.backward()
        expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        head = ChunkedHead(transform_of(model), budget=3 * ROW)
        call = lambda head, inner, hidden, given=given: head.loss_sum(inner, hidden, given, NLL())  # noqa: E731
        found, gradients = asked(model, head, call, **inputs)
        torch.testing.assert_close(found.double(), plain.detach(), rtol=1e-6, atol=0)
        for mine, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-8)
        assert (first.grad is not None and bool(first.grad.abs().sum() > 0)) is ("pixel_values" in inputs)
