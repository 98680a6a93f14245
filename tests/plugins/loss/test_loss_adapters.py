"""Adapters on the output head: a plain LoRA's change is part of the product and trained; a saved copy is what counts."""

from typing import Any

import pytest
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from peft import LoraConfig, get_peft_model
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from memcfg.batch import IGNORE
from memcfg.engine.forward import attach_head
from memcfg.head import output_layer, prove, transform_of

pytestmark = pytest.mark.torch
TINY = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip


def llama() -> torch.nn.Module:
    return LlamaForCausalLM(LlamaConfig(**TINY))


def gemma2() -> torch.nn.Module:
    config = Gemma2Config(**TINY, head_dim=8, final_logit_softcapping=5.0)
    return Gemma2ForCausalLM._from_config(config, attn_implementation="eager")


def adapted(build: Any, **options: Any) -> torch.nn.Module:
    """With random adapters: LoRA's second factor is zero at first, which would hide what is left out."""
    torch.manual_seed(0)
    model = get_peft_model(build(), LoraConfig(**({"r": 4, "lora_alpha": 8} | options)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter.normal_()
    return model


def run(model: Any, head: Any, labels: torch.Tensor, ask: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    attach_head(model, head)
    torch.manual_seed(1)  # dropout drops the same

    def call(head: Any, inner: Any, hidden: torch.Tensor) -> torch.Tensor:
        if ask == "loss_sum":
            return head.loss_sum(inner, hidden, labels, NLL()) / 13
        return (head.logprobs(inner, hidden, labels, 0.7) * torch.linspace(-1, 2, 18).view(2, 9)).sum()

    value = model(input_ids=labels.clamp(min=0), head_call=call)
    value.backward()
    return value.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def labels() -> torch.Tensor:
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(1))
    ids[0, :3] = ids[1, 4] = IGNORE
    return ids


@pytest.mark.parametrize("ask", ["loss_sum", "logprobs"])
@pytest.mark.parametrize("rows", [5, 64])
@pytest.mark.parametrize("build", [llama, gemma2], ids=lambda build: build.__name__)
@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["q_proj"]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["lm_head"], "lora_dropout": 0.5},
        {"target_modules": ["lm_head"], "use_rslora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ],
    ids=["elsewhere", "head", "dropout", "rslora", "saved"],
)
def test_chunks_equal_the_plain_path(build, options, rows, ask):
    model = adapted(build, **options)
    transform = transform_of(model)
    prove(model, transform)
    value, gradients = run(model, ChunkedHead(transform, budget=rows * 64 * 4), labels(), ask)
    plain, expected = run(model, FullHead(), labels(), ask)
    torch.testing.assert_close(value, plain, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")  # fmt: skip
    if "lm_head" in options.get("target_modules", []):
        assert any("lm_head.lora_A" in name for name in gradients)


def test_an_adapter_that_is_off_adds_nothing():
    model = adapted(llama, target_modules=["lm_head"])
    assert len(output_layer(model).deltas) == 1
    with model.disable_adapter():
        assert not output_layer(model).deltas
    saved = adapted(llama, target_modules=["q_proj"], modules_to_save=["lm_head"])
    on = output_layer(saved).weight
    with saved.disable_adapter():
        assert not torch.equal(output_layer(saved).weight, on)


def test_without_targets_the_adapters_factors_get_zeros():
    model = adapted(llama, target_modules=["lm_head"])
    nothing = torch.full((2, 9), IGNORE)
    _, gradients = run(model, ChunkedHead(transform_of(model), budget=1 << 20), nothing, "loss_sum")
    factors = {name: g for name, g in gradients.items() if "lm_head" in name}
    assert len(factors) == 2
    assert not any(g.any() for g in factors.values())
