"""The tiny model: what the settings say, the same weights every time, and nothing of the caller's changed."""

import pytest
import torch
from memcfg_model.hooks import memcfg_load_model, memcfg_load_tokenizer

from memcfg import Decision, Plan

pytestmark = pytest.mark.torch

SETTINGS = {
    "model.source": "tiny", "model.hidden": 64, "model.layers": 1, "model.heads": 4, "model.kv_heads": 2,
    "model.intermediate": None, "model.tied": True, "model.dtype": "float32", "run.seed": 0,
}  # fmt: skip


def plan(**settings) -> Plan:
    values = SETTINGS | {key.replace("_", ".", 1): value for key, value in settings.items()}
    return Plan({key: Decision(value, "default") for key, value in values.items()})


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten().float() for p in model.parameters()])


def test_the_model_has_the_tokenizers_vocabulary():
    tokenizer, model = memcfg_load_tokenizer(plan()), memcfg_load_model(plan(), "cpu")
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == 2048
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.training


@pytest.mark.parametrize(
    ("settings", "reads", "expected"),
    [
        ({"model_layers": 3}, lambda m: m.config.num_hidden_layers, 3),
        ({"model_hidden": 32}, lambda m: m.config.hidden_size, 32),
        ({"model_hidden": 32}, lambda m: m.config.intermediate_size, 96),
        ({"model_intermediate": 48}, lambda m: m.config.intermediate_size, 48),
        ({"model_heads": 8}, lambda m: m.config.head_dim, 8),
        ({"model_kv_heads": 1}, lambda m: m.config.num_key_value_heads, 1),
        ({"model_tied": True}, lambda m: m.lm_head.weight is m.model.embed_tokens.weight, True),
        ({"model_tied": False}, lambda m: m.lm_head.weight is m.model.embed_tokens.weight, False),
        ({"model_dtype": "bfloat16"}, lambda m: m.dtype, torch.bfloat16),
    ],
)
def test_settings_shape_it(settings, reads, expected):
    assert reads(memcfg_load_model(plan(**settings), "cpu")) == expected


def test_layers_add_little_at_first_but_enough_for_attention_to_show():
    model = memcfg_load_model(plan(model_layers=2), "cpu")
    ids = torch.arange(4, 20)[None]
    embedded = model.model.norm(model.model.embed_tokens(ids))
    hidden = lambda tokens: model.model(input_ids=tokens, use_cache=False).last_hidden_state  # noqa: E731
    assert (hidden(ids) - embedded).norm() < 0.5 * embedded.norm()
    other = ids.clone()
    other[0, 0] = 99
    assert (hidden(other) - hidden(ids))[:, 1:].norm() > 0.01 * embedded.norm()


def test_a_seed_decides_the_weights_whatever_ran_before():
    first = weights(memcfg_load_model(plan(), "cpu"))
    torch.rand(5)
    assert torch.equal(weights(memcfg_load_model(plan(), "cpu")), first)
    assert not torch.equal(weights(memcfg_load_model(plan(run_seed=1), "cpu")), first)


def test_the_callers_random_state_stays():
    before = torch.get_rng_state()
    memcfg_load_model(plan(), "cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_on_meta_it_has_a_shape_and_no_storage():
    model = memcfg_load_model(plan(model_dtype="bfloat16"), "meta")
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) == len(weights(memcfg_load_model(plan(), "cpu")))


def test_positions_stay_exact_in_low_precision():
    model = memcfg_load_model(plan(model_dtype="bfloat16"), "cpu")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
