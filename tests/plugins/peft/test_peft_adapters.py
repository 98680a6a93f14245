"""Adapters: what is adapted is what was asked, gradients reach all of it, and what is saved is what was trained."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_checkpointing.hooks import memcfg_patch_model as checkpointed
from memcfg_peft import plugin
from memcfg_peft.adapter import trainable
from memcfg_peft.hooks import memcfg_evidence, memcfg_export, memcfg_patch_model
from memcfg_peft.layers import adapted_layers, per_leaf
from memcfg_peft.merging import merged
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from memcfg import Decision, Plan, RequestError, RunError
from memcfg.engine.evidence import compare
from memcfg.engine.forward import attach_head, causal_model
from memcfg.head.architectures import prove
from memcfg.head.layer import output_head
from memcfg.head.transform import HeadTransform

pytestmark = pytest.mark.torch

METHODS = ("lora", "loha", "lokr", "oft", "vera", "ia3", "prompt", "prefix", "p_tuning")


def plan(method: str = "lora", **overrides: Any) -> Plan:
    values: dict[str, Any] = {
        "peft.method": method, "peft.rank": 4, "peft.alpha": 8, "peft.dropout": 0.0, "peft.targets": ["q_proj", "v_proj"],
        "peft.head": False, "peft.modules_to_save": None, "peft.rslora": False, "peft.dora": False,
        "peft.virtual_tokens": 3, "peft.dtype": "float32", "peft.config": {}, "peft.merge": True, "run.seed": 0,
        "run.steps": 4, "checkpointing.mode": "full", "checkpointing.reentrant": False,
    }  # fmt: skip
    values |= {f"peft.{key}" if f"peft.{key}" in values else key: value for key, value in overrides.items()}
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model(tied: bool = True, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, tie_word_embeddings=tied, **sizes)).to(dtype).train()


IDS = torch.arange(18).view(2, 9)


def stir(made: torch.nn.Module) -> torch.nn.Module:
    """Give the adapter weights that change something."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainable(made):
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype), alpha=0.2)
    return made


def logits(made: Any) -> torch.Tensor:
    made.eval()
    with torch.no_grad():
        found: torch.Tensor = made(input_ids=IDS, use_cache=False).logits
    made.train()
    return found


def gradients(made: Any) -> list[torch.Tensor | None]:
    made.zero_grad(set_to_none=True)
    made(input_ids=IDS, use_cache=False).logits.logsumexp(-1).sum().backward()
    return [p.grad for p in trainable(made)]


@pytest.mark.parametrize(
    ("asked", "where", "because"),
    [
        (["q_proj", "v_proj"], "q_proj: 2, v_proj: 2", "names"),
        (["layers.1.self_attn.q_proj"], "q_proj: 1", "the end of a path"),
        (["mlp.down_proj"], "down_proj: 2", "with its parent"),
        (
            r".*\.0\..*_proj",
            "down_proj: 1, gate_proj: 1, k_proj: 1, o_proj: 1, q_proj: 1, up_proj: 1, v_proj: 1",
            "a pattern",
        ),
        (
            "all-linear",
            "down_proj: 2, gate_proj: 2, k_proj: 2, o_proj: 2, q_proj: 2, up_proj: 2, v_proj: 2",
            "not the head",
        ),
        (None, "q_proj: 2, v_proj: 2", "peft's own choice for this architecture"),
    ],
)
def test_what_is_adapted_is_what_was_asked(asked: Any, where: str, because: str) -> None:
    made = memcfg_patch_model(plan=plan(targets=asked), model=model())
    assert per_leaf(adapted_layers(made)) == where, because
    assert all("lora_" in n for n, p in made.named_parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (
            {"targets": ["q_proj", "quary_proj"]},
            "peft.targets",
            "`quary_proj` matches no layer of the model; did you mean `q_proj`",
        ),
        ({"targets": ["proj"]}, "peft.targets", "`proj` matches no layer"),
        ({"targets": r"layers\.9\..*"}, "peft.targets", "matches no layer of the model"),
        ({"modules_to_save": ["scor"]}, "peft.modules_to_save", "`scor` matches no layer"),
        ({"modules_to_save": ["lm_haed"]}, "peft.modules_to_save", "did you mean `lm_head`"),
    ],
)
def test_a_name_that_matches_nothing_is_refused_with_what_is_near(
    overrides: dict[str, Any], key: str, text: str
) -> None:
    made = model()
    with pytest.raises(RunError) as caught:
        memcfg_patch_model(plan=plan(**overrides), model=made)
    assert caught.value.problems[0].key == key
    assert text in str(caught.value)
    assert not hasattr(made, "peft_config"), "nothing has been done to the model"


@pytest.mark.parametrize(
    ("targets", "whole", "where", "seen"),
    [
        (None, ["q_proj"], "v_proj: 2", "q_proj: 2"),
        (None, ["layers.0.self_attn.q_proj"], "q_proj: 1, v_proj: 2", "layers.0.self_attn.q_proj: 1"),
        ("all-linear", ["mlp"], "k_proj: 2, o_proj: 2, q_proj: 2, v_proj: 2", "mlp: 2"),
        (["q_proj"], ["v_proj", "lm_head"], "q_proj: 2", "v_proj: 2, lm_head: 1"),
    ],
)
def test_layers_that_are_trained_whole_have_no_adapter(targets: Any, whole: list[str], where: str, seen: str) -> None:
    asked = plan(targets=targets, modules_to_save=whole)
    made = memcfg_patch_model(plan=asked, model=model(tied=False))
    assert per_leaf(adapted_layers(made)) == where
    run = SimpleNamespace(model=made, optimizer=torch.optim.AdamW(trainable(made)))
    found = {e.key: e for e in memcfg_evidence(plan=asked, run=run, found=[])}
    assert found["peft.modules_to_save"].effective == whole
    assert found["peft.modules_to_save"].evidence == f"{seen} trained whole, without an adapter"
    other = plan(targets=targets, modules_to_save=[*whole, "norm"])
    missing = {e.key: e for e in memcfg_evidence(plan=other, run=run, found=[])}["peft.modules_to_save"]
    assert missing.effective == whole


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"targets": ["self_attn.q_proj"], "modules_to_save": ["q_proj"]},
            "`peft.modules_to_save`: `q_proj` is trained whole, and `peft.targets` gives `model.layers.0.self_attn.q_proj` "
            "an adapter\n  leave it in one of the two",
        ),
        (
            {"targets": r".*\.1\..*q_proj", "modules_to_save": ["self_attn"]},
            "`peft.modules_to_save`: `self_attn` is trained whole, and `peft.targets` gives `model.layers.1.self_attn.q_proj` "
            "an adapter\n  leave it in one of the two",
        ),
        (
            {"targets": None, "modules_to_save": ["q_proj", "v_proj"]},
            "`peft.modules_to_save`: every layer that would have an adapter is trained whole\n  name other layers in "
            "`peft.targets`, or leave some out",
        ),
        (
            {"head": True, "modules_to_save": ["lm_head"]},
            "`peft.modules_to_save`: `lm_head` is the output head, which `peft.head=true` adapts\n  leave `lm_head` out, or "
            "`peft.head=false`",
        ),
    ],
)
def test_an_adapter_on_a_layer_that_is_trained_whole_is_refused(overrides: dict[str, Any], message: str) -> None:
    made = model()
    with pytest.raises(RunError) as caught:
        memcfg_patch_model(plan=plan(**overrides), model=made)
    assert str(caught.value) == message
    assert not hasattr(made, "peft_config"), "nothing has been done to the model"


def test_a_pattern_that_is_none_and_fields_that_peft_does_not_know() -> None:
    with pytest.raises(RequestError, match=r"`peft\.targets`: `\*_proj` is no pattern"):
        memcfg_patch_model(plan=plan(targets="*_proj"), model=model())
    with pytest.raises(RequestError, match=r"`peft\.config`: `LoraConfig` has no field `lora_alfa`"):
        memcfg_patch_model(plan=plan(config={"lora_alfa": 3}), model=model())


def test_further_fields_reach_peft() -> None:
    made: Any = memcfg_patch_model(plan=plan(config={"rank_pattern": {"q_proj": 2}}), model=model())
    assert {m.r["default"] for n, m in made.named_modules() if n.endswith("q_proj")} == {2}


def evidence(asked: Plan, made: Any) -> dict[str, Any]:
    run = SimpleNamespace(model=made, optimizer=torch.optim.AdamW(trainable(made)))
    found = memcfg_evidence(plan=asked, run=run, found=[])
    return {e.key: e.effective for e in found}


@pytest.mark.parametrize(
    "overrides",
    [
        {}, {"rslora": True}, {"dora": True}, {"alpha": 3, "rank": 7}, {"config": {"rank_pattern": {"q_proj": 2}}},
        {"targets": "all-linear", "head": True},
    ],
)  # fmt: skip
def test_scale_and_magnitudes_are_read_from_the_layers(overrides: dict[str, Any]) -> None:
    asked = plan(**overrides)
    made = memcfg_patch_model(plan=asked, model=model())
    found = evidence(asked, made)
    assert (found["peft.alpha"], found["peft.dora"]) == (asked["peft.alpha"], asked["peft.dora"])
    for layer in made.modules():
        if isinstance(getattr(layer, "scaling", None), dict):
            layer.scaling["default"] *= 2
    assert evidence(asked, made)["peft.alpha"] == 2 * asked["peft.alpha"]


def test_scales_that_differ_by_layer_are_left_to_those_who_set_them() -> None:
    asked = plan(config={"alpha_pattern": {"q_proj": 1}})
    found = evidence(asked, memcfg_patch_model(plan=asked, model=model()))
    assert "peft.alpha" not in found
    assert found["peft.dora"] is False


def test_a_scale_by_another_power_of_the_rank_is_told() -> None:
    made = memcfg_patch_model(plan=plan(rslora=False), model=model())
    assert evidence(plan(rslora=True), made)["peft.alpha"] == 8 / 4 * 4**0.5


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_all_of_its_adapter_and_nothing_else(method: str) -> None:
    asked = plan(method, targets=["q_proj", "down_proj"] if method == "ia3" else ["q_proj", "v_proj"])
    made = memcfg_patch_model(plan=asked, model=model())
    attach_head(made, SimpleNamespace())
    optimizer = torch.optim.AdamW(trainable(made), lr=1e-2)
    seen: list[torch.Size] = []
    before = copy.deepcopy({n: p.detach() for n, p in made.named_parameters() if not p.requires_grad})

    def head_call(head: Any, inner: Any, hidden: torch.Tensor) -> torch.Tensor:
        seen.append(hidden.shape)
        return inner.lm_head(hidden).logsumexp(-1).sum()

    for _ in range(2):
        made(input_ids=IDS, position_ids=torch.arange(9).expand(2, 9), head_call=head_call).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert set(seen) == {(2, 9, 16)}, "virtual tokens are not the head's business"
    compare(asked, memcfg_evidence(plan=asked, run=SimpleNamespace(model=made, optimizer=optimizer), found=[]))
    for name, value in made.named_parameters():
        if name in before:
            assert torch.equal(value, before[name]), f"{name} is frozen"


@pytest.mark.parametrize("first", ["adapter", "checkpointing"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_under_checkpointing_every_adapter_gets_its_gradient(first: str, reentrant: bool) -> None:
    asked = plan(**{"checkpointing.reentrant": reentrant})
    steps = [memcfg_patch_model, checkpointed] if first == "adapter" else [checkpointed, memcfg_patch_model]
    made: Any = model()
    for step in steps:
        made = step(plan=asked, model=made)
    stir(made)
    plain = stir(memcfg_patch_model(plan=asked, model=model()))
    found, expected = gradients(made), gradients(plain)
    assert len(found) == 8
    for a, b in zip(found, expected, strict=True):
        assert a is not None
        assert b is not None
        assert float(a.abs().sum()) > 0
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_an_adapter_without_a_gradient_is_told() -> None:
    asked, made = plan(), memcfg_patch_model(plan=plan(), model=model())
    optimizer = torch.optim.AdamW(trainable(made), lr=1e-2)
    gradients(made)
    trainable(made)[3].grad = None
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(RunError, match="lora, of which 1 tensors got no gradient"):
        compare(asked, memcfg_evidence(plan=asked, run=SimpleNamespace(model=made, optimizer=optimizer), found=[]))


@pytest.mark.parametrize("base", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "base"])
def test_the_adapter_has_the_plans_dtype(dtype: str, base: torch.dtype) -> None:
    made = memcfg_patch_model(plan=plan(dtype=dtype), model=model(dtype=base))
    assert {p.dtype for p in trainable(made)} == {base if dtype == "base" else getattr(torch, dtype)}
    assert {p.dtype for p in made.parameters() if not p.requires_grad} == {base}
    assert all(g is not None for g in gradients(made))


def test_the_adapter_is_drawn_from_the_plans_seed_and_nothing_else() -> None:
    def drawn(seed: int, state: int) -> torch.Tensor:
        torch.manual_seed(state)
        made = memcfg_patch_model(plan=plan(**{"run.seed": seed}), model=model())
        return torch.cat([p.detach().flatten() for p in trainable(made)])

    assert torch.equal(drawn(3, 1), drawn(3, 2))
    assert not torch.equal(drawn(3, 1), drawn(4, 1))


def test_on_tensors_without_storage_it_has_the_same_shape() -> None:
    with torch.device("meta"):
        ghost = model()
    made, ghost = (
        memcfg_patch_model(plan=plan(dtype="bfloat16"), model=model()),
        memcfg_patch_model(plan=plan(dtype="bfloat16"), model=ghost),
    )
    shapes = [[(n, p.shape, p.dtype, p.requires_grad) for n, p in m.named_parameters()] for m in (made, ghost)]
    assert shapes[0] == shapes[1]
    assert all(p.is_meta for p in ghost.parameters())


SAVED = {
    "lora": {}, "rslora": {"rslora": True}, "dora": {"dora": True}, "all layers": {"targets": "all-linear"},
    "embeddings trained whole": {"modules_to_save": ["embed_tokens"]},
    "head trained whole": {"modules_to_save": ["lm_head"]}, "head adapted": {"head": True}, "loha": {"method": "loha"},
}  # fmt: skip


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", SAVED)
def test_what_is_saved_merged_says_what_the_trained_model_says(kind: str, tied: bool, tmp_path: Path) -> None:
    asked = plan(**SAVED[kind])
    made = stir(memcfg_patch_model(plan=asked, model=model(tied)))
    trained, plain = logits(made), logits(model(tied))
    exported = memcfg_export(plan=asked, model=made)
    exported.save_pretrained(tmp_path)  # type: ignore[operator]
    assert not any("lora" in n or "base_layer" in n for n, _ in exported.named_parameters())
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert float((trained - plain).abs().max()) > 1e-2, "the adapter changes something"
    torch.testing.assert_close(logits(loaded), trained, rtol=0, atol=2e-5)
    assert loaded.config.tie_word_embeddings is (
        tied and kind not in ("embeddings trained whole", "head trained whole", "head adapted")
    )


def test_without_merging_the_adapter_alone_is_saved(tmp_path: Path) -> None:
    import peft

    asked = plan(merge=False)
    made: Any = stir(memcfg_patch_model(plan=asked, model=model()))
    assert memcfg_export(plan=asked, model=made) is made
    trained = logits(made)
    made.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    torch.testing.assert_close(logits(peft.PeftModel.from_pretrained(model(), tmp_path)), trained)


def test_switched_off_the_adapter_leaves_the_reference() -> None:
    made: Any = stir(memcfg_patch_model(plan=plan(), model=model()))
    with made.disable_adapter():
        torch.testing.assert_close(logits(made), logits(model()))
    with pytest.raises(RuntimeError), made.disable_adapter():
        raise RuntimeError
    assert float((logits(made) - logits(model())).abs().max()) > 1e-2, "on again, after an error too"


def test_merging_detaches_the_head() -> None:
    made: Any = memcfg_patch_model(plan=plan(), model=model())
    attach_head(made, SimpleNamespace())
    assert "forward" not in merged(made).__dict__
    assert not hasattr(causal_model(made), "_memcfg_head")


def test_a_method_that_cannot_be_run_yet_is_declared() -> None:
    assert [str(n.when) for n in plugin.not_yet] == ["peft.method=adalora"]


def test_what_peft_would_change_by_itself_is_refused() -> None:
    with pytest.raises(RunError, match=r"`peft\.method`: peft cannot adapt .*Invalid `r` \(3\)! Adjusted `r`"):
        memcfg_patch_model(plan=plan("oft", rank=3), model=model())
    with pytest.raises(RunError, match=r"rank_pattern keys did not match any targeted module.*'nothing'"):
        memcfg_patch_model(plan=plan(config={"rank_pattern": {"nothing": 4}}), model=model())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"modules_to_save": ["embed_tokens"], "config": {"ensure_weight_tying": True}}, "no tied modules were found"),
        ({"config": {"loftq_config": {"loftq_bits": 4}}}, "`loftq_config` specified but will be ignored"),
        ({"config": {"exclude_modules": ["nothing"]}}, "no modules were excluded"),
        ({"config": {"runtime_config": {"ephemeral_gpu_offload": True}}}, "peft cannot adapt"),
        ({"config": {"bias": 3}}, "peft cannot adapt"),
    ],
)
def test_a_field_that_peft_leaves_out_or_trips_over_is_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        memcfg_patch_model(plan=plan(**overrides), model=model(tied=False))
    assert str(caught.value).startswith("`peft.config`: ")


def test_an_adapter_that_cannot_be_merged_is_told_before_it_is_trained() -> None:
    asked = {"config": {"lora_bias": True}}
    with pytest.raises(RunError, match=r"`peft\.merge`: peft cannot merge the adapter into `.*q_proj`: .*no bias"):
        memcfg_patch_model(plan=plan(**asked), model=model())
    memcfg_patch_model(plan=plan(**asked, merge=False), model=model())


def test_tied_embeddings_stay_tied_where_peft_is_asked_to(tmp_path: Path) -> None:
    asked = plan(modules_to_save=["embed_tokens"], config={"ensure_weight_tying": True})
    made = stir(memcfg_patch_model(plan=asked, model=model()))
    assert output_head(made).weight.shape == (40, 16)
    prove(made, HeadTransform())
    wanted = logits(made)
    memcfg_export(plan=asked, model=made).save_pretrained(tmp_path)  # type: ignore[operator]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.tie_word_embeddings
    torch.testing.assert_close(logits(loaded), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "base", "actual", "found"),
    [
        ("base", "bfloat16", "bfloat16", "base"), ("base", "bfloat16", "float32", "float32"),
        ("base", "float32", "float32", "base"), ("bfloat16", "float32", "float32", "float32"),
    ],
)  # fmt: skip
def test_the_dtype_is_read_from_the_weights(chosen: str, base: str, actual: str, found: str) -> None:
    asked = plan(dtype=chosen)
    made = memcfg_patch_model(plan=asked, model=model(dtype=getattr(torch, base)))
    for parameter in trainable(made):
        parameter.data = parameter.data.to(getattr(torch, actual))
    assert evidence(asked, made)["peft.dtype"] == found


def test_a_vera_adapter_in_bfloat16_multiplies_in_bfloat16() -> None:
    made = memcfg_patch_model(plan=plan("vera", dtype="bfloat16"), model=model(dtype=torch.bfloat16))
    made(input_ids=IDS, use_cache=False).logits.sum().backward()
    assert all(p.grad is not None and p.dtype == torch.bfloat16 for p in trainable(made))


def test_all_linear_misspelt() -> None:
    with pytest.raises(RunError, match="did you mean `all-linear`"):
        memcfg_patch_model(plan=plan(targets="all_linear"), model=model())
