"""Chunked against whole logits on a CPU, each in a process of its own: time and the growth of its resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

TOKENS, WIDTH, VOCABULARY = 2048, 256, 32_768

MEASURE = f"""
import json, resource, sys, time, types
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from memcfg.head import HeadTransform

class Model(torch.nn.Module):
    base_model_prefix = "model"
    def __init__(self):
        super().__init__()
        self.model, self.lm_head = torch.nn.Identity(), torch.nn.Linear({WIDTH}, {VOCABULARY}, bias=False)
    def get_output_embeddings(self):
        return self.lm_head
    def forward(self, input_ids, use_cache):
        return types.SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))

torch.manual_seed(0)
model = Model().requires_grad_(sys.argv[2] == "trained")
hidden = torch.randn(4, {TOKENS // 4}, {WIDTH}, requires_grad=True)
labels = torch.randint(0, {VOCABULARY}, (4, {TOKENS // 4}))
head = {{"full": FullHead(), "torch": ChunkedHead(HeadTransform(), budget=64 << 20)}}[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for _ in range(5):
    start = time.perf_counter()
    loss = head.loss_sum(model, hidden, labels, NLL())
    loss.backward()
    times.append(time.perf_counter() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({{"ms": 1000 * min(times), "peak_mib": peak / 1024, "loss": loss.item(), "threads": torch.get_num_threads()}}))
"""


def measure() -> list[dict[str, Any]]:
    results = []
    for mode in ("trained", "frozen"):
        rows = {kernel: _run(kernel, mode) for kernel in ("full", "torch")}
        results.append({"head": mode, "rows": rows})
        print(f"\n{TOKENS:,} tokens, hidden {WIDTH}, vocabulary {VOCABULARY:,}, {mode} head, float32, CPU\n")
        print("| kernel | ms | of whole logits | peak MiB | of whole logits |\n| --- | --- | --- | --- | --- |")
        for name, row in rows.items():
            time, memory = row["ms"] / rows["full"]["ms"], row["peak_mib"] / rows["full"]["peak_mib"]
            print(f"| {name} | {row['ms']:.0f} | {time:.2f} | {row['peak_mib']:.0f} | {memory:.2f} |")
    return results


def _run(kernel: str, mode: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", MEASURE, kernel, mode], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
