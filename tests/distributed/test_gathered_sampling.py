"""Two processes under ZeRO-3 that sample between steps: they train as if they had not, also after a round that failed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]

SCRIPT = """
import json, os, sys, warnings
warnings.filterwarnings("ignore")
os.environ["DS_ACCELERATOR"] = "cpu"
import torch, deepspeed, deepspeed.ops
from transformers import LlamaConfig, LlamaForCausalLM
from memcfg_distributed.sampling import Gathered

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.set_num_threads(1)
deepspeed.init_distributed("gloo")
rank = torch.distributed.get_rank()
CONFIG = {
    "train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}

def losses(sample):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    found = []
    for step in range(3):
        if sample:
            sampled(engine, fail=step == 1)
        ids = torch.randint(0, 40, (2, 6), generator=torch.Generator().manual_seed(2 * step + rank))
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        found.append(float(loss))
    return found, engine

def sampled(engine, fail):
    if fail:
        try:
            with Gathered.of(engine):
                raise KeyError
        except KeyError:
            pass
    with Gathered.of(engine), torch.no_grad():  # the processes stop at different lengths, and none waits for the other
        engine.eval()
        engine.module.generate(torch.arange(4)[None] + rank, max_new_tokens=2 + 3 * rank, do_sample=False, synced_gpus=False)
        engine.train()

plain, _ = losses(sample=False)
found, engine = losses(sample=True)
made = Gathered.of(engine)
sharded = sum(p.numel() == 0 for p in engine.parameters())
text = json.dumps({
    "same": plain == found, "moved": found[0] != found[1], "rounds": made.rounds, "whole": made.whole, "sharded": sharded,
    "parameters": len(list(engine.parameters())),
})
open(f"{sys.argv[1]}/{rank}.json", "w").write(text)
"""


def test_sampling_from_whole_weights_changes_nothing(warm_python: str, by_two: Callable[..., list[Any]]) -> None:
    for found in by_two(SCRIPT, warm_python, timeout=240):
        count = found.pop("parameters")
        assert found == {"same": True, "moved": True, "rounds": 4, "whole": True, "sharded": count}
