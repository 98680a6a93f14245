"""The head runs inside the model's own forward, and leaves everything else as it was."""

import copy
import inspect

import pytest
import torch
from accelerate.utils import convert_outputs_to_fp32
from peft import LoraConfig, get_peft_model
from transformers import CohereConfig, CohereForCausalLM, LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

from memcfg import RunError
from memcfg.engine.forward import attach_head, backbone_of, causal_model, detach_head, model_logits

pytestmark = pytest.mark.torch
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2)).eval()


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(1))


def hidden_of(head, model, hidden):
    return hidden


def test_a_head_gets_itself_the_model_and_the_last_hidden_states(model, ids):
    attach_head(model, "the head")
    head, inner, hidden = model(input_ids=ids, head_call=lambda *given: given)
    assert (head, inner) == ("the head", model)
    torch.testing.assert_close(model.lm_head(hidden), model(input_ids=ids).logits, rtol=0, atol=0)


def test_without_a_head_call_the_model_does_what_it_did(model, ids):
    before, signature = model(ids).logits, inspect.signature(model.forward)
    attach_head(model, "the head")
    assert torch.equal(model(ids).logits, before)
    assert inspect.signature(model.forward) == signature, "Transformers reads it to know what a model accepts"
    assert model.generate(ids, max_new_tokens=2, do_sample=False).shape == (2, 9)


def test_a_head_is_replaced_and_taken_off(model, ids):
    forward = model.forward
    attach_head(model, "first")
    attach_head(model, "second")
    assert model(input_ids=ids, head_call=lambda head, *_: head) == "second"
    detach_head(model)
    detach_head(model)
    assert model.forward == forward
    assert not any(name.startswith("_memcfg") for name in vars(model))


def test_the_cache_is_off_whatever_the_caller_says(model, ids):
    seen = {}
    model.model.register_forward_pre_hook(lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True)
    attach_head(model, None)
    model(input_ids=ids, use_cache=True, head_call=hidden_of)
    assert seen["use_cache"] is False


def test_a_copy_of_the_model_runs_its_own_weights(model, ids):
    attach_head(model, None)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.norm.weight.mul_(2)
    assert other(input_ids=ids, head_call=lambda head, inner, hidden: inner) is other
    assert not torch.equal(other(input_ids=ids, head_call=hidden_of), model(input_ids=ids, head_call=hidden_of))


def test_a_wrapper_of_the_forward_covers_the_head(model, ids):
    attach_head(model, None)
    bound = model.forward.__func__
    model.forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(bound)).__get__(model)
    product = model(
        input_ids=ids,
        head_call=lambda head, inner, hidden: {"it": hidden @ hidden.mT, "on": torch.is_autocast_enabled("cpu")},
    )
    assert product["on"]
    detach_head(model)
    assert model(ids).logits.dtype == torch.float32, "what was wrapped since goes on working"


def test_adapters_are_looked_through(model, ids):
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    attach_head(adapted, None)
    hidden = adapted(input_ids=ids, head_call=lambda head, inner, hidden: (inner is model, hidden))
    assert hidden[0]
    torch.testing.assert_close(model.lm_head(hidden[1]), adapted(input_ids=ids).logits)
    assert causal_model(adapted) is model


@pytest.mark.parametrize(
    "build",
    [
        lambda: CohereForCausalLM(CohereConfig(**SIZES, intermediate_size=64, logit_scale=0.25)),
        lambda: OPTForCausalLM(OPTConfig(**SIZES, ffn_dim=64, word_embed_proj_dim=32, dropout=0.0)),
    ],
    ids=["scaled logits", "a decoder inside the backbone"],
)
def test_logits_are_the_models_own(build, ids):
    model = build().eval()
    expected = model(input_ids=ids, use_cache=False).logits
    hidden = backbone_of(model)(input_ids=ids, use_cache=False).last_hidden_state
    for attached in (False, True):
        if attached:
            attach_head(model, None)
        torch.testing.assert_close(model_logits(model, hidden), expected, rtol=0, atol=0)
    assert isinstance(backbone_of(model), torch.nn.Module), "the backbone is back in its place"


def test_what_has_no_backbone_is_refused():
    with pytest.raises(RunError, match="no causal language model"):
        attach_head(torch.nn.Linear(2, 2), None)
