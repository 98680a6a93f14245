"""A simulation leaves the process as it was: models that are loaded after it are the saved ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

PROGRAM = """
import sys, torch
from transformers import AutoModelForCausalLM, LlamaConfig
from memcfg.compose import resolve
from memcfg.planner.simulate import simulate
from memcfg.registry import load

registry = load()
plan = resolve(["assume.device=h100", "model=tiny", "truncation.max_length=16"], registry=registry)
simulate(plan, registry.hooks(plan))
config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
made = AutoModelForCausalLM.from_config(config)
made.save_pretrained(sys.argv[1])
loaded = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert torch.equal(loaded.model.rotary_emb.inv_freq, made.model.rotary_emb.inv_freq), loaded.model.rotary_emb.inv_freq
"""


def test_a_model_loaded_after_a_simulation_has_all_its_buffers(tmp_path) -> None:
    """In a process of its own, in which nothing was loaded before: torch keeps what it finds out the first time."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
