"""Weights in few bits: real products of bitsandbytes on the CPU, adapters trained through them, models that are refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_model.saved import refuse_otherwise_quantised, stored_quantisation
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import compare

pytest.importorskip("bitsandbytes")

from memcfg_quantization.hooks import memcfg_evidence, memcfg_patch_model
from memcfg_quantization.layers import already, mode_of

pytestmark = pytest.mark.torch

MODES = ("nf4", "fp4", "int8")


def plan(mode: str, **more: Any) -> Plan:
    values = {"quantization.mode": mode, "device.type": "cpu", **more}
    if mode != "int8":
        values |= {
            "quantization.double": False,
            "quantization.compute_dtype": None,
            "quantization.storage": None,
        } | more
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model(width: int = 48, bias: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "intermediate_size": 3 * width + 2, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, attention_bias=bias, mlp_bias=bias, **sizes)).train()


def error(made: Any, whole: Any) -> float:
    ids = torch.arange(18).view(2, 9)
    with torch.no_grad():
        found, expected = made(ids, use_cache=False).logits, whole(ids, use_cache=False).logits
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("mode", "limit"), [("nf4", 0.4), ("fp4", 0.5), ("int8", 0.03)])
def test_the_model_says_nearly_the_same_with_a_fraction_of_the_bytes(
    mode: str, limit: float, double: bool, bias: bool
) -> None:
    more = {} if mode == "int8" else {"quantization.double": double}
    asked, whole = plan(mode, **more), model(bias=bias)
    made = memcfg_patch_model(plan=asked, model=model(bias=bias))
    assert 0 < error(made, whole) < limit
    assert {mode_of(layer) for layer in already(made)} == {mode}
    assert len(already(made)) == 2 * 7
    bits = sum(layer.weight.numel() * layer.weight.element_size() for layer in already(made)) * 8
    assert bits / sum(p.numel() for p in whole.model.layers.parameters() if p.dim() == 2) < (
        8.1 if mode == "int8" else 4.1
    )
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    compare(asked, found)


def test_the_head_and_the_embeddings_stay_whole() -> None:
    made = memcfg_patch_model(plan=plan("nf4"), model=model())
    assert type(made.lm_head) is torch.nn.Linear
    assert made.lm_head.weight.dtype == torch.float32
    assert not any(p.requires_grad for p in made.parameters())


@pytest.mark.parametrize("mode", MODES)
def test_an_adapter_learns_through_them_after_an_evaluation_too(mode: str) -> None:
    import peft

    made = memcfg_patch_model(plan=plan(mode), model=model())
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(made, config, autocast_adapter_dtype=False)
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-2)
    ids = torch.arange(18).view(2, 9)
    losses = []
    for _ in range(6):
        adapted.eval()
        with torch.no_grad():
            adapted(input_ids=ids, use_cache=False)
        adapted.train()
        loss = adapted(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("mode", MODES)
def test_it_says_the_same_in_train_and_in_eval_mode(mode: str) -> None:
    """A reference is looked at in eval mode and the policy in train mode: before the first update they are one model."""
    made = memcfg_patch_model(plan=plan(mode), model=model())
    ids = torch.arange(18).view(2, 9)
    said = []
    for training in (True, False, True):
        with torch.no_grad():
            said.append(copy.deepcopy(made).train(training)(input_ids=ids, use_cache=False).logits)
    assert torch.equal(said[0], said[1])
    assert torch.equal(said[0], said[2])


def test_a_model_that_is_quantised_otherwise_is_refused() -> None:
    made = memcfg_patch_model(plan=plan("nf4"), model=model())
    with pytest.raises(RunError, match=r"`quantization\.mode`: the model's weights are `nf4` already"):
        memcfg_patch_model(plan=plan("int8"), model=made)
    assert memcfg_patch_model(plan=plan("nf4"), model=made) is made


def test_packed_layers_are_not_trained_whole() -> None:
    from memcfg_peft.configs import trained_whole

    made = memcfg_patch_model(plan=plan("nf4", **{"quantization.storage": "float32"}), model=model())
    for entry in ("q_proj", "mlp"):
        with pytest.raises(RunError) as caught:
            trained_whole(plan("nf4", **{"peft.modules_to_save": [entry]}), made)
        assert str(caught.value) == (
            f"`peft.modules_to_save`: the weights of `{entry}` are packed into few bits, and cannot be trained whole\n"
            f"  leave `{entry}` out, or `quantization.mode=none`"
        )
    assert trained_whole(plan("nf4", **{"peft.modules_to_save": ["lm_head", "norm"]}), made) == ["lm_head", "norm"]


def test_a_model_without_linear_layers_is_refused() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with pytest.raises(RunError, match="has no linear layer that could be quantised"):
        memcfg_patch_model(
            plan=plan("nf4"), model=GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2))
        )


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (None, None),
        ({"load_in_8bit": True}, "int8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
    ],
)
def test_how_a_saved_model_is_quantised_is_read_before_it_is_loaded(
    tmp_path: Path, stored: Any, name: str | None
) -> None:
    config = {"model_type": "llama"} | ({} if stored is None else {"quantization_config": stored})
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert stored_quantisation(tmp_path) == name
    refuse_otherwise_quantised(tmp_path, name or "none")
    if name is not None:
        with pytest.raises(RunError, match=f"quantised as `{name}` already"):
            refuse_otherwise_quantised(tmp_path, "none")


def test_weights_that_are_not_packed_as_their_folder_says() -> None:
    made = memcfg_patch_model(plan=plan("int8"), model=model())
    layer = made.model.layers[0].mlp.up_proj
    layer.weight = torch.nn.Parameter(torch.zeros(layer.out_features, layer.in_features), requires_grad=False)
    with pytest.raises(
        RunError, match=r"its weights are quantised, and those of `model\.layers\.0\.mlp\.up_proj` are not"
    ):
        memcfg_patch_model(plan=plan("int8"), model=made)


@pytest.mark.parametrize("storage", [None, "uint8", "bfloat16", "float32"])
@pytest.mark.parametrize("compute", [None, "bfloat16", "float16"])
def test_the_dtypes_of_four_bit_layers_are_read_from_them(compute: str | None, storage: str | None) -> None:
    asked = plan("nf4", **{"quantization.compute_dtype": compute, "quantization.storage": storage})
    made = memcfg_patch_model(plan=asked, model=model())
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    compare(asked, found)
    names = {"quantization.compute_dtype": compute, "quantization.storage": storage}
    assert {e.key: e.effective for e in found if e.key in names} == {k: v for k, v in names.items() if v is not None}
    already(made)[3].compute_dtype = torch.float64  # type: ignore[assignment]
    if compute is not None:
        with pytest.raises(RunError, match=r"quantization\.compute_dtype"):
            compare(asked, memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[]))


def test_evidence_of_a_model_that_is_not() -> None:
    with pytest.raises(RunError, match="no layer has quantised weights"):
        compare(plan("nf4"), memcfg_evidence(plan=plan("nf4"), run=SimpleNamespace(model=model()), found=[]))


@pytest.mark.parametrize("mode", MODES)
def test_on_tensors_without_storage_the_weights_take_what_they_take(mode: str) -> None:
    with torch.device("meta"):
        ghost = model()
    made, ghost = memcfg_patch_model(plan=plan(mode), model=model()), memcfg_patch_model(plan=plan(mode), model=ghost)
    sizes = [{n: (p.shape, p.dtype) for n, p in m.named_parameters()} for m in (made, ghost)]
    assert sizes[0] == sizes[1]
    assert all(p.is_meta for p in ghost.parameters())
    x = torch.randn(1, 5, 48, device="meta", requires_grad=True)
    ghost.model.layers[0].mlp(x).sum().backward()
    assert x.grad is not None
