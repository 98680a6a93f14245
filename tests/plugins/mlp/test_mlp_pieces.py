"""Pieces give what the whole gives, and take as many products as the whole under checkpointing."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_checkpointing.hooks import memcfg_patch_model as checkpointed
from memcfg_mlp.hooks import memcfg_evidence, memcfg_patch_model
from memcfg_mlp.layers import TILES, Tiles
from memcfg_mlp.pieces import in_pieces
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM, MixtralConfig, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import compare

pytestmark = pytest.mark.torch

SIZES: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SIZES), "qwen3": Qwen3Config(**SIZES),
    "gpt2": GPT2Config(vocab_size=32, n_embd=16, n_layer=3, n_head=2, resid_pdrop=0.3, embd_pdrop=0.0, attn_pdrop=0.0),
}  # fmt: skip


def plan(tiles: int | None = None, checkpointing: str = "none") -> Plan:
    values = {
        "mlp.mode": "tiled",
        "mlp.tiles": tiles,
        "checkpointing.mode": checkpointing,
        "checkpointing.reentrant": False,
    }
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def model(kind: str = "llama") -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[kind]).train()


def gradients(made: Any, length: int = 13) -> dict[str, torch.Tensor]:
    made.zero_grad(set_to_none=True)
    torch.manual_seed(2)
    ids = torch.arange(2 * length).view(2, length) % 32
    made(input_ids=ids, use_cache=False).logits.logsumexp(-1).sum().backward()
    return {n: p.grad for n, p in made.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("mode", ["none", "full"])
@pytest.mark.parametrize("tiles", [2, 5, 13, None])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_gradients_are_those_of_the_whole(kind: str, tiles: int | None, mode: str) -> None:
    asked = plan(tiles, mode)
    made = checkpointed(plan=asked, model=memcfg_patch_model(plan=asked, model=model(kind)))
    found, whole = gradients(made), gradients(model(kind))
    assert found.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("mode", ["none", "full"])
def test_dropout_falls_the_same_when_a_piece_is_computed_again(mode: str) -> None:
    asked = plan(3, mode)
    made = checkpointed(plan=asked, model=memcfg_patch_model(plan=asked, model=model("gpt2").double()))
    ids = torch.arange(26).view(2, 13) % 32
    weight = made.transformer.h[0].mlp.c_proj.bias

    def loss(shift: float) -> torch.Tensor:
        torch.manual_seed(2)
        with torch.no_grad():
            weight.add_(shift)
        value = made(input_ids=ids, use_cache=False).logits.logsumexp(-1).sum()
        with torch.no_grad():
            weight.sub_(shift)
        return value

    loss(0.0).backward()
    assert weight.grad is not None
    with torch.no_grad():
        difference = (loss(1e-5) - loss(-1e-5)) / 2e-5
    torch.testing.assert_close(weight.grad.sum(), difference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("mode", "times"), [("none", 2), ("full", 2)])
def test_each_position_goes_through_twice_whether_its_layer_is_checkpointed_or_not(mode: str, times: int) -> None:
    asked = plan(4, mode)
    made = checkpointed(plan=asked, model=memcfg_patch_model(plan=asked, model=model()))
    seen: list[int] = []
    made.model.layers[1].mlp.down_proj.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[1]))
    gradients(made)
    assert sum(seen) == times * 13


def test_a_frozen_layer_still_hands_gradients_on() -> None:
    asked, made, whole = plan(4), model(), model()
    for m in (made, whole):
        m.model.layers[1].mlp.requires_grad_(False)
    found, plain = gradients(memcfg_patch_model(plan=asked, model=made)), gradients(whole)
    torch.testing.assert_close(found["model.layers.0.mlp.up_proj.weight"], plain["model.layers.0.mlp.up_proj.weight"])


def test_bfloat16_gradients_are_added_up_in_float32() -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(8, 8).bfloat16(), torch.randn(1, 4096, 8).bfloat16()
    exact = copy.deepcopy(layer).double()
    exact(x.double()).sum().backward()
    in_pieces(layer, layer.forward, x, 512).sum().backward()
    assert layer.weight.grad is not None
    assert exact.weight.grad is not None
    error = (layer.weight.grad.double() - exact.weight.grad).norm() / exact.weight.grad.norm()
    assert error < 4e-3, "half of bfloat16's last bit; added up in bfloat16 it would be ten times that"


def test_a_short_sequence_has_fewer_pieces_and_none_without_a_second_token() -> None:
    assert [Tiles(8, 16, None).pieces(length) for length in (1, 5, 8, 100)] == [1, 5, 8, 8]
    assert [Tiles(None, 16, None).pieces(length) for length in (1, 16, 17, 160)] == [1, 1, 2, 10]


def test_evidence_tells_what_ran() -> None:
    asked, made = plan(4), model()
    memcfg_patch_model(plan=asked, model=made)
    run = SimpleNamespace(model=made)
    with pytest.raises(RunError, match=r"mlp\.mode"):
        compare(asked, memcfg_evidence(plan=asked, run=run, found=[]))
    gradients(made)
    (found,) = memcfg_evidence(plan=asked, run=run, found=[])
    assert (found.effective, found.evidence) == (
        "tiled",
        "10 of 10 feed-forward layers and norms ran in up to 4 pieces",
    )


def test_experts_are_left_alone_and_a_model_of_nothing_else_is_refused() -> None:
    config = MixtralConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1)
    with pytest.raises(RunError, match=r"`mlp\.mode`: no feed-forward layer is found in `MixtralForCausalLM`"):
        memcfg_patch_model(plan=plan(), model=AutoModelForCausalLM.from_config(config))


def test_a_layer_that_looks_at_other_positions_is_refused() -> None:
    made = model()

    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(16, 16))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden.cumsum(dim=1) @ self.weight

    made.model.layers[0].mlp = Mixing()
    with pytest.raises(RunError, match="does not send each position through by itself"):
        memcfg_patch_model(plan=plan(), model=made)


def test_a_copy_computes_with_its_own_weights() -> None:
    asked, made = plan(4), model()
    memcfg_patch_model(plan=asked, model=made)
    copied = copy.deepcopy(made)
    with torch.no_grad():
        made.model.layers[0].mlp.down_proj.weight.zero_()
    ids = torch.arange(9)[None]
    assert not torch.equal(made(ids).logits, copied(ids).logits)
    assert isinstance(getattr(copied.model.layers[0].mlp, TILES), Tiles)
    assert torch.equal(copied(ids).logits, memcfg_patch_model(plan=asked, model=model())(ids).logits)


@pytest.mark.parametrize(("targets", "trained"), [(["up_proj", "down_proj"], 12), (["down_proj", "embed_tokens"], 8)])
def test_an_adapter_in_a_layer_takes_part(targets: list[str], trained: int) -> None:
    """Also one on the embeddings, which are then no embedding layer to ask for the width."""
    import peft

    def adapted() -> Any:
        torch.manual_seed(0)
        made = LlamaForCausalLM(CONFIGS["llama"]).train()
        torch.manual_seed(1)
        config = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
        return peft.get_peft_model(made, config)

    found = gradients(memcfg_patch_model(plan=plan(3), model=adapted()))
    whole = gradients(adapted())
    assert len(found) == trained
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5, msg=name)
