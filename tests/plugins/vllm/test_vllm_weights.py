"""What vLLM is given: the names of a checkpoint, an adapter's change added, and a trained model that nothing is done to."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
from memcfg_vllm.weights import check, current, described, version
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.engine.forward import causal_model

pytestmark = pytest.mark.torch

CONFIGS = {
    "lora": lambda: peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]),
    "dora": lambda: peft.LoraConfig(r=2, target_modules=["v_proj"], use_dora=True),
    "rslora": lambda: peft.LoraConfig(r=2, target_modules=["o_proj"], use_rslora=True),
    "head": lambda: peft.LoraConfig(r=2, target_modules=["q_proj", "lm_head"]),
    "head trained whole": lambda: peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=["q_proj"]),
    "lokr": lambda: peft.LoKrConfig(r=2, target_modules=["up_proj"]),
    "ia3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "oft": lambda: peft.OFTConfig(r=2, oft_block_size=0, target_modules=["q_proj"]),
    "vera": lambda: peft.VeraConfig(r=2, target_modules=["q_proj"]),
}  # fmt: skip


def adapted(bench: Any, kind: str) -> Any:
    """A model whose adapter does something: its weights are drawn, and not zero."""
    model = peft.get_peft_model(bench.model(0).float(), CONFIGS[kind]())
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model


def test_a_whole_model_is_given_as_it_is(bench: Any) -> None:
    model = bench.model(0)
    found = dict(current(model))
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(tensor.requires_grad for tensor in found.values())
    wrapped = torch.nn.Module()
    wrapped.module = model
    assert dict(current(wrapped)).keys() == found.keys()


def test_a_shared_weight_comes_once(bench: Any) -> None:
    model = bench.model(0)
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    names = [name for name, _ in current(model)]
    assert "lm_head.weight" not in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", CONFIGS)
def test_an_adapted_model_is_given_merged_and_stays_as_it_was(bench: Any, kind: str) -> None:
    model = adapted(bench, kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = dict(current(model))
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    expected = causal_model(bench.copy(model).merge_and_unload())
    assert found.keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.allclose(found[name], tensor, atol=1e-6), name
    plain = bench.model(0).float().state_dict()
    assert any(not torch.allclose(found[name], plain[name]) for name in found), "the adapter's change is missing"


def test_an_untied_head_may_be_adapted_and_a_tied_one_may_not(bench: Any) -> None:
    check(adapted(bench, "head"))
    for kind in ("head", "head trained whole"):
        model = adapted(bench, kind)
        causal_model(model).config.tie_word_embeddings = True
        with pytest.raises(RunError, match="only one of them is adapted"):
            check(model)


def test_trained_tokens_before_a_prompt_are_refused(bench: Any) -> None:
    model = peft.get_peft_model(bench.model(0), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(RunError, match="no weights that vLLM could take over"):
        check(model)


def test_the_version_moves_with_every_update(bench: Any) -> None:
    for model in (bench.model(0).float(), adapted(bench, "lora")):
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.1)
        seen = [version(model)]
        for _ in range(2):
            for parameter in trained:
                parameter.grad = torch.ones_like(parameter)
            dict(current(model))
            assert version(model) == seen[-1], "looking at the weights changes nothing"
            optimizer.step()
            seen.append(version(model))
        assert len(set(seen)) == 3


def tiny(*, bias: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 146, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, attention_bias=bias, mlp_bias=bias, **sizes)).train()


def quantised(mode: str, model: Any) -> Any:
    from memcfg_quantization.hooks import memcfg_patch_model

    values = {"quantization.mode": mode, "device.type": "cpu", "quantization.double": True}
    return memcfg_patch_model(
        plan=Plan({key: Decision(value, "default") for key, value in values.items()}), model=model
    )


@pytest.mark.parametrize(
    ("mode", "adapter"),
    [("nf4", None), ("nf4", "lora"), ("nf4", "dora"), ("nf4", "ia3"), ("int8", None), ("int8", "lora")],
)
def test_a_quantised_model_is_given_whole_and_stays_as_it_was(mode: str, adapter: str | None) -> None:
    """A plain model of these weights says what the quantised one does; merging would have packed the sum a second time."""
    bnb = pytest.importorskip("bitsandbytes")
    model: Any = quantised(mode, tiny(bias=adapter is None))
    if adapter is not None:
        model = peft.get_peft_model(model, CONFIGS[adapter]())
        torch.manual_seed(1)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data.add_(0.05 * torch.randn_like(parameter))
    modes = [m.training for m in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    found = dict(current(model))
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    plain: Any = tiny(bias=adapter is None)
    assert found.keys() == plain.state_dict().keys()
    assert plain.load_state_dict(found)
    ids = torch.arange(18).view(2, 9)
    with torch.no_grad():
        wanted, given = model.eval()(ids, use_cache=False).logits, plain.eval()(ids, use_cache=False).logits
    far = float((given - wanted).norm() / wanted.norm())
    assert far < (1e-5 if mode == "nf4" else 0.02), "eight-bit layers also round what flows into them"
    assert not hasattr(described(causal_model(model)), "quantization_config")
    assert any(isinstance(m, bnb.nn.Linear4bit | bnb.nn.Linear8bitLt) for m in model.modules())
