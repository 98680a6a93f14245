"""Layers are computed again, gradients stay what they were, and the evidence counts what really happened."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_checkpointing import plugin
from memcfg_checkpointing.hooks import Recomputed, enable, flagged, memcfg_evidence, memcfg_patch_model
from memcfg_checkpointing.selective import Selection, context_function
from torch.utils.checkpoint import checkpoint
from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, PreTrainedModel, Qwen3Config
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import compare

pytestmark = pytest.mark.torch

SIZES: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SIZES), "qwen3": Qwen3Config(**SIZES), "mistral": MistralConfig(**SIZES),
    "gemma3": Gemma3TextConfig(**SIZES), "gpt2": GPT2Config(vocab_size=32, n_embd=16, n_layer=3, n_head=2),
}  # fmt: skip


def plan(mode: str = "full", reentrant: bool = False, every: int = 1) -> Plan:
    values = {"checkpointing.mode": mode, "checkpointing.reentrant": reentrant, "checkpointing.every": every}
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model(kind: str = "llama") -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[kind]).train()


def backward(made: torch.nn.Module) -> float:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 32, (2, 9), generator=generator)
    torch.manual_seed(2)  # dropout must fall the same when a layer runs again
    logits = made(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    return float(loss.detach())


def calls_of(module: torch.nn.Module) -> list[int]:
    seen: list[int] = []
    module.register_forward_hook(lambda *_: seen.append(1))
    return seen


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", list(CONFIGS))
def test_loss_and_gradients_are_those_without(kind: str, reentrant: bool) -> None:
    plain, patched = model(kind), model(kind)
    memcfg_patch_model(plan=plan("none"), model=plain)
    memcfg_patch_model(plan=plan("full", reentrant), model=patched)
    assert backward(plain) == pytest.approx(backward(patched), abs=1e-7)
    for (name, p), q in zip(plain.named_parameters(), patched.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None and q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize(("mode", "times"), [("full", 2), ("none", 1)])
@pytest.mark.parametrize("reentrant", [False, True])
def test_every_layer_runs_twice_with_it_and_once_without(mode: str, times: int, reentrant: bool) -> None:
    made = model()
    memcfg_patch_model(plan=plan(mode, reentrant and mode == "full"), model=made)
    calls = [calls_of(layer.self_attn.q_proj) for layer in made.model.layers]
    backward(made)
    assert [len(c) for c in calls] == [times] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_above_frozen_embeddings_still_get_gradients(reentrant: bool) -> None:
    made = model()
    made.requires_grad_(False)
    for layer in made.model.layers:
        layer.self_attn.q_proj.weight.requires_grad_(True)
    memcfg_patch_model(plan=plan("full", reentrant), model=made)
    backward(made)
    grads = [layer.self_attn.q_proj.weight.grad for layer in made.model.layers]
    assert all(g is not None and bool(g.abs().sum() > 0) for g in grads)


@pytest.mark.parametrize(("mode", "reentrant"), [("full", False), ("full", True), ("none", False)])
@pytest.mark.parametrize("kind", list(CONFIGS))
def test_evidence_agrees_with_the_plan(kind: str, mode: str, reentrant: bool) -> None:
    made, asked = model(kind), plan(mode, reentrant)
    memcfg_patch_model(plan=asked, model=made)
    made(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False)  # a forward alone computes nothing again
    backward(made)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    compare(asked, found)
    assert found[0].evidence == f"{3 if mode == 'full' else 0} of 3 layers computed again in a step"


@pytest.mark.parametrize(
    ("broken", "effective", "because"),
    [
        (lambda m: m.gradient_checkpointing_disable(), "none", "something switched it off"),
        (
            lambda m: setattr(m.model.layers[1], "gradient_checkpointing", False),
            "2 of 3 layers",
            "one layer is left out",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_disable.*:FutureWarning")
def test_evidence_tells_when_it_did_not_happen(broken: Any, effective: str, because: str) -> None:
    made, asked = model(), plan()
    memcfg_patch_model(plan=asked, model=made)
    broken(made)
    backward(made)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    assert found[0].effective == effective, because
    with pytest.raises(RunError, match=r"checkpointing\.mode"):
        compare(asked, found)


def test_a_model_that_comes_with_it_on_has_it_off_when_asked() -> None:
    made = model()
    memcfg_patch_model(plan=plan("full"), model=made)
    memcfg_patch_model(plan=plan("none"), model=made)
    assert not list(flagged(made))


def test_watching_ends_with_the_first_evidence() -> None:
    made = model()
    memcfg_patch_model(plan=plan(), model=made)
    watched = sum(len(m._forward_pre_hooks) for m in made.modules())
    memcfg_evidence(plan=plan(), run=SimpleNamespace(model=made), found=[])
    assert watched > 0
    assert sum(len(m._forward_pre_hooks) for m in made.modules()) == 0


def test_a_patched_model_can_be_copied() -> None:
    made = model()
    memcfg_patch_model(plan=plan(), model=made)
    copied = copy.deepcopy(made)
    assert backward(copied) == backward(made)


def test_a_model_without_support_is_refused_and_left_alone() -> None:
    made = model()
    made.supports_gradient_checkpointing = False
    with pytest.raises(RunError, match=r"`checkpointing.mode`: `LlamaForCausalLM` cannot compute its layers again"):
        memcfg_patch_model(plan=plan(), model=made)
    assert not list(flagged(made))


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("reentrant", [False, True])
def test_every_nth_layer_is_computed_again(every: int, reentrant: bool) -> None:
    made, asked = model(), plan("full", reentrant, every=every)
    memcfg_patch_model(plan=asked, model=made)
    calls = [calls_of(layer.self_attn.q_proj) for layer in made.model.layers]
    plain = model()
    assert backward(made) == pytest.approx(backward(plain), abs=1e-7)
    assert [len(c) for c in calls] == [2 if index % every == 0 else 1 for index in range(3)]
    for p, q in zip(made.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-6)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    compare(asked, found)
    assert found[0].evidence == f"{len(range(0, 3, every))} of 3 layers computed again in a step"


@pytest.mark.parametrize(
    ("seen", "layers", "every"),
    [
        ([0, 1, 2], 3, 1), ([0, 2], 3, 2), ([0, 2], 4, 2), ([0, 3], 5, 3), ([0], 1, 1), ([0], 3, 3),
        ([1, 3], 4, [1, 3]), ([0, 1], 4, [0, 1]), ([0, 2], 6, [0, 2]),
    ],
)  # fmt: skip
def test_which_layers_ran_again_is_read_off_them(seen: list[int], layers: int, every: int | list[int]) -> None:
    watch = Recomputed([torch.nn.Identity() for _ in range(layers)], wanted=len(seen))
    watch.seen = set(seen)
    assert watch.every() == every


def test_as_many_layers_as_planned_but_others_are_told() -> None:
    made, asked = model(), plan(every=2)
    memcfg_patch_model(plan=asked, model=made)
    for layer, on in zip(made.model.layers, (True, True, False), strict=True):
        layer.gradient_checkpointing = on
    backward(made)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    assert {e.key: e.effective for e in found}["checkpointing.every"] == [0, 1]


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_more_than_there_are_layers_is_refused_and_the_model_left_alone(mode: str) -> None:
    made = model()
    with pytest.raises(RunError) as caught:
        memcfg_patch_model(plan=plan(mode, every=4), model=made)
    assert str(caught.value) == (
        "`checkpointing.every`: 4 is more than the model has layers that can be computed again (3)\n"
        "  at most `checkpointing.every=3`"
    )
    assert not list(flagged(made))
    memcfg_patch_model(plan=plan("none", every=4), model=made)


def test_a_layer_too_few_is_told() -> None:
    made, asked = model(), plan("full", every=2)
    memcfg_patch_model(plan=asked, model=made)
    made.model.layers[2].gradient_checkpointing = False
    backward(made)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    assert found[0].effective == "1 of 3 layers"


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gemma3"])
def test_selective_computes_layers_again_but_not_their_attention(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append(str(func))
            return func(*args, **(kwargs or {}))

    made, asked, plain = model(kind), plan("selective"), model(kind)
    memcfg_patch_model(plan=asked, model=made)
    calls = calls_of(made.model.layers[1].self_attn.q_proj)
    with Watch():
        loss = backward(made)
    assert loss == pytest.approx(backward(plain), abs=1e-7)
    assert len(calls) == 2
    assert sum("scaled_dot_product" in name and "backward" not in name for name in ran) == 3, "once for each layer"
    for p, q in zip(made.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-6)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    compare(asked, found)
    assert found[0].evidence == "3 of 3 layers computed again in a step; 3 results of attention kept"


def test_operations_outside_of_attention_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one that is costs the host as much as launching it."""
    asked: list[str] = []
    policy = Selection._policy

    def listening(self: Selection, context: Any, operation: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(str(operation))
        return policy(self, context, operation, *args, **kwargs)

    monkeypatch.setattr(Selection, "_policy", listening)
    made = model("qwen3")
    memcfg_patch_model(plan=plan("selective"), model=made)
    backward(made)
    assert sum("scaled_dot_product" in name for name in asked) >= 3
    assert not [name for name in asked if any(part in name for part in ("mm", "silu", "embedding", "rsqrt"))]


def test_layers_that_look_up_no_attention_are_looked_at_whole() -> None:
    made, plain, selection = model(), model(), Selection("flex_attention")  # they look up sdpa
    enable(made, reentrant=False, selection=selection)
    for _ in range(2):
        assert backward(made) == pytest.approx(backward(plain), abs=1e-7)
    assert selection.name is None
    assert selection.kept == 2 + 3, "all but the first layer of the first step"
    for p, q in zip(made.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-6)


def attend_twice(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
    module = torch.nn.Module()
    module.is_causal = True  # type: ignore[assignment]
    once = attention(module, first, second, second, None)[0].transpose(1, 2)
    return attention(module, once, second, second, None)[0].sin()


def test_two_attentions_in_one_layer_each_keep_their_own() -> None:
    given = [torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(2)]
    selection = Selection("sdpa")
    made = checkpoint(attend_twice, *given, use_reentrant=False, context_fn=context_function(selection))
    found = torch.autograd.grad(made.sum(), given)
    expected = torch.autograd.grad(attend_twice(*given).sum(), given)
    assert selection.kept == 2
    for mine, its in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, its)


def test_what_layers_look_up_is_as_it_was_after_an_error_too() -> None:
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    made = model()
    memcfg_patch_model(plan=plan("selective"), model=made)
    handle = made.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        backward(made)
    handle.remove()
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
    backward(made)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
    assert "sdpa" not in ALL_ATTENTION_FUNCTIONS._local_mapping


def test_selective_without_anything_to_keep_is_told() -> None:
    made, asked = model(), plan("selective")
    made.set_attn_implementation("eager")
    memcfg_patch_model(plan=asked, model=made)
    backward(made)
    found = memcfg_evidence(plan=asked, run=SimpleNamespace(model=made), found=[])
    with pytest.raises(RunError, match=r"checkpointing\.mode"):
        compare(asked, found)


def test_nothing_is_declared_not_yet() -> None:
    assert not plugin.not_yet


def test_every_rule_says_why() -> None:
    assert all(rule.because and rule.id.startswith("checkpointing.") for rule in plugin.rules)
