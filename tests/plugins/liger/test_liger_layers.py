"""Liger's kernels in a model's layers: counted, undone outside of steps, refused where there are none."""

import pytest
from liger_kernel.transformers import monkey_patch
from memcfg_liger.layers import patch_layers
from transformers import BertConfig, BertLMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama

from memcfg import RunError

pytestmark = pytest.mark.torch
TINY = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def test_patched_modules_are_counted():
    """Qwen3 has four norms in a layer and one at the end; Llama two and one."""
    assert patch_layers(Qwen3ForCausalLM(Qwen3Config(**TINY, head_dim=8))).modules == {
        "LigerRMSNorm": 9, "LigerSwiGLUMLP": 2,
    }  # fmt: skip
    patched = patch_layers(LlamaForCausalLM(LlamaConfig(**TINY)))
    assert patched.modules == {"LigerRMSNorm": 5, "LigerSwiGLUMLP": 2}
    assert patched.describe() == (
        "patched modules: 5 LigerRMSNorm, 2 LigerSwiGLUMLP; during a step: apply_rotary_pos_emb"
    )


def test_no_other_model_is_touched():
    own = {name: thing for name, thing in vars(modeling_llama).items() if not name.startswith("__")}
    bystander = LlamaForCausalLM(LlamaConfig(**TINY))
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    forward = model.forward
    patched = patch_layers(model)
    assert model.forward == forward, "the head is not Liger's business here"
    assert all(vars(modeling_llama)[name] is thing for name, thing in own.items())
    assert not any("forward" in module.__dict__ for module in bystander.modules())
    with patched:
        with patched:
            pass
        assert modeling_llama.apply_rotary_pos_emb is not own["apply_rotary_pos_emb"], "still inside the outer step"
    assert modeling_llama.apply_rotary_pos_emb is own["apply_rotary_pos_emb"]


def test_a_step_that_fails_leaves_nothing_behind():
    own = modeling_llama.apply_rotary_pos_emb
    with pytest.raises(ZeroDivisionError), patch_layers(LlamaForCausalLM(LlamaConfig(**TINY))):
        raise ZeroDivisionError
    assert modeling_llama.apply_rotary_pos_emb is own


def test_an_architecture_that_liger_does_not_know_is_refused():
    config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, is_decoder=True)
    with pytest.raises(
        RunError, match=r"Liger has no kernels for model type `bert`; it has some for .*llama"
    ) as caught:
        patch_layers(BertLMHeadModel(config))
    assert caught.value.problems[0].fix.startswith("liger.layers=false")


def test_no_patched_module_is_an_error(monkeypatch):
    """What a release of Liger would do that no longer finds the layers of an architecture that it says it knows."""
    monkeypatch.setitem(monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN, "llama", lambda model: None)
    with pytest.raises(RunError, match="Liger patched no module of `LlamaForCausalLM`"):
        patch_layers(LlamaForCausalLM(LlamaConfig(**TINY)))
