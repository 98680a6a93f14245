"""Each known architecture's head, held against the logits that the model itself makes."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from memcfg_model.types import MODEL_TYPES
from peft import IA3Config, LoraConfig, get_peft_model
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    BertConfig,
    BertLMHeadModel,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from memcfg import RunError
from memcfg.batch import IGNORE
from memcfg.engine.forward import attach_head, model_logits
from memcfg.head.architectures import output_head, prove, transform_of
from memcfg.head.layer import output_layer
from memcfg.head.transform import HeadTransform
from memcfg.heads import CAPPED, DIVIDED, MULTIPLIED, PLAIN, UNKNOWN, VISION

pytestmark = pytest.mark.torch

SETTINGS = MULTIPLIED | DIVIDED | CAPPED
SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
TEXT = {"text_config": SMALL | {"head_dim": 16}}
ALSO: dict[str, dict[str, Any]] = {
    "gemma3": TEXT,
    "gemma4": TEXT,
    "gemma4_unified": TEXT,
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "hunyuan_v1_dense": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "llama4": TEXT,
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "ministral": {"head_dim": 16},
    "qwen3_5": TEXT,
}
"""What a type needs beyond `SMALL` to be built at all."""


def shape_of(kind: str, **setting: Any) -> torch.nn.Module:
    """A model of this type, its weights on `meta` except those of its head, which are random."""
    config = CONFIG_MAPPING[kind](**(SMALL | ALSO.get(kind, {}) | setting))
    with torch.device("meta"):
        return with_head(AutoModelForCausalLM.from_config(config))


def seeing(kind: str) -> torch.nn.Module:
    """The same of a model that looks at images."""
    text = CONFIG_MAPPING[kind]().text_config.to_dict() | TEXT["text_config"]
    config = CONFIG_MAPPING[kind](text_config={k: v for k, v in text.items() if k != "layer_types"})
    with torch.device("meta"):
        return with_head(AutoModelForImageTextToText.from_config(config))


def with_head(model: torch.nn.Module) -> torch.nn.Module:
    head = output_head(model)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in list(head.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator, device="cpu")
        setattr(head, name, torch.nn.Parameter(values))
    return model


@pytest.mark.parametrize("kind", sorted(VISION))
def test_models_that_look_at_images_have_plain_heads(kind):
    model = seeing(kind)
    hidden = torch.randn(1, 3, output_head(model).in_features, generator=torch.Generator().manual_seed(1))
    assert transform_of(model) == HeadTransform()
    with torch.no_grad():
        torch.testing.assert_close(output_head(model)(hidden), model_logits(model, hidden))
    prove(model, transform_of(model))


@pytest.mark.parametrize("kind", sorted(PLAIN | set(SETTINGS)))
def test_the_formula_gives_the_models_own_logits(kind):
    if kind not in CONFIG_MAPPING:
        pytest.skip("this Transformers does not know the type")
    for value in (None, 3.0) if kind in SETTINGS else (None,):
        setting = {} if value is None else {SETTINGS[kind]: value}
        with suppress(AttributeError):  # derived from other settings, where it cannot be set
            model = shape_of(kind, **setting)
            transform, head = transform_of(model), output_head(model)
            hidden = torch.randn(1, 3, head.in_features, generator=torch.Generator().manual_seed(1))
            with torch.no_grad():
                own, raw = model_logits(model, hidden).float(), head(hidden)
            torch.testing.assert_close(transform.apply_(raw.clone()), own, rtol=1e-5, atol=1e-5)
            if value is not None:
                assert not torch.allclose(raw, own), (
                    "the setting has no effect here: the type belongs among the plain ones"
                )
            prove(model, transform)


def test_every_known_type_is_one_that_rules_may_name():
    assert set(MODEL_TYPES) >= PLAIN | set(SETTINGS)
    assert not PLAIN & set(SETTINGS)
    assert not set(UNKNOWN) & (PLAIN | set(SETTINGS) | VISION)


TINY = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
}  # fmt: skip


def gemma2() -> torch.nn.Module:
    config = Gemma2Config(**TINY, head_dim=8, final_logit_softcapping=5.0, tie_word_embeddings=False)
    return Gemma2ForCausalLM._from_config(config, attn_implementation="eager")


def cohere() -> torch.nn.Module:
    return CohereForCausalLM(CohereConfig(**TINY, logit_scale=0.25, tie_word_embeddings=False))


def tied() -> torch.nn.Module:
    return LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True))


def resized() -> torch.nn.Module:
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.resize_token_embeddings(71)
    return model


def of(kind: str, **setting: Any) -> Any:
    """What builds a model of this type, with an output head of its own."""

    def build() -> torch.nn.Module:
        config = CONFIG_MAPPING[kind](**(TINY | {"tie_word_embeddings": False} | setting))
        # the fused product of experts knows no float64
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")

    return build


MODELS = {
    "llama": of("llama"), "qwen3": of("qwen3", head_dim=8), "gemma2": gemma2, "cohere": cohere,
    "gemma3": of("gemma3_text", head_dim=8, final_logit_softcapping=4.0), "granite": of("granite", logits_scaling=3.0),
    "mixtral": of("mixtral", num_local_experts=2), "biased": of("phi"), "tied": tied, "resized": resized,
    "falcon_h1": of("falcon_h1", lm_head_multiplier=0.3, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8),
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 5, 64, 1000])
@pytest.mark.parametrize("name", list(MODELS))
def test_loss_and_gradients_equal_whole_logits_in_float64(name, rows):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with torch.no_grad():
        output_head(model).weight.mul_(20)
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, :3] = labels[1, 4] = IGNORE
    whole = model(input_ids=ids, use_cache=False).logits[:, :-1].flatten(0, 1)
    plain = torch.nn.functional.cross_entropy(whole, labels[:, 1:].flatten(), reduction="sum")
    expected = torch.autograd.grad(plain, list(model.parameters()), allow_unused=True)
    attach_head(model, ChunkedHead(transform_of(model), budget=rows * whole.shape[-1] * 8))
    loss = model(input_ids=ids, head_call=lambda head, inner, hidden: head.loss_sum(inner, hidden, labels, NLL()))
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    torch.testing.assert_close(loss.double(), plain, rtol=1e-6, atol=0)
    for (parameter, _), mine, theirs in zip(model.named_parameters(), found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-8, msg=lambda text, p=parameter: f"{p}: {text}")


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("build", [gemma2, cohere, tied, resized], ids=lambda build: build.__name__)
def test_chunks_equal_the_plain_path(build, rows):
    """18 tokens, four labels masked, a head with weights large enough for a scale or a cap to matter."""
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, :3] = labels[1, 4] = IGNORE
    vocabulary = model.lm_head.out_features

    def run(head: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        model.zero_grad()
        attach_head(model, head)
        loss = model(input_ids=ids, head_call=lambda head, inner, hidden: head.loss_sum(inner, hidden, labels, NLL()))
        (loss / 13).backward()
        return loss.detach() / 13, {name: p.grad.clone() for name, p in model.named_parameters()}

    loss, gradients = run(ChunkedHead(transform_of(model), budget=rows * vocabulary * 4))
    plain, expected = run(FullHead())
    torch.testing.assert_close(loss, plain, rtol=0, atol=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(
            gradients[name], gradient, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    if build in (gemma2, cohere):
        guessed, _ = run(ChunkedHead(HeadTransform(), budget=rows * vocabulary * 4))
        assert abs(guessed - plain) > 0.3, "what it costs to leave the transform out"


def test_an_unknown_architecture_is_refused():
    model = BertLMHeadModel(
        BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, is_decoder=True)
    )
    with pytest.raises(RunError, match="model type `bert` does to its logits is not known") as caught:
        transform_of(model)
    assert "loss.kernel=full" in caught.value.problems[0].fix


def test_a_head_whose_adapter_is_no_sum_of_products_is_refused():
    adapted = get_peft_model(tied(), IA3Config(target_modules=["lm_head"], feedforward_modules=[]))
    with pytest.raises(RunError, match="the output head is a `Linear` of `peft"):
        prove(adapted, transform_of(adapted))
    adapted = get_peft_model(tied(), LoraConfig(r=2, target_modules=["lm_head"], use_dora=True))
    with pytest.raises(RunError, match=r"adapter `default` is no plain LoRA \(DoraLinearVariant\)") as caught:
        output_layer(adapted)
    assert caught.value.problems[0].fix.startswith("peft.head=false")


def test_a_model_that_does_more_than_is_known_is_found_out():
    model = cohere()
    prove(model, HeadTransform(scale=0.25))
    with pytest.raises(RunError, match="does more to its logits than the kernel knows"):
        prove(model, HeadTransform())


def test_weights_that_are_not_there_prove_nothing():
    with torch.device("meta"):
        model = cohere()
    prove(model, HeadTransform())


def test_proving_leaves_the_random_state_alone():
    model, before = cohere(), torch.get_rng_state()
    prove(model, HeadTransform(scale=0.25))
    assert torch.equal(torch.get_rng_state(), before)
