"""What the chunked head costs beside whole logits, on a CPU at a vocabulary of 32 k."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MEASURE = """
import json, resource, sys, time, types
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from memcfg.head.transform import HeadTransform

class Model(torch.nn.Module):
    base_model_prefix = "model"
    def __init__(self):
        super().__init__()
        self.model, self.lm_head = torch.nn.Identity(), torch.nn.Linear(128, 32_768, bias=False)
    def get_output_embeddings(self):
        return self.lm_head
    def forward(self, input_ids, use_cache):
        return types.SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))

torch.set_num_threads(1)
torch.manual_seed(0)
model, hidden = Model(), torch.randn(4, 512, 128, requires_grad=True)
labels = torch.randint(0, 32_768, (4, 512))
head = {"full": FullHead(), "torch": ChunkedHead(HeadTransform(), budget=64 << 20)}[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for _ in range(3):
    start = time.process_time()
    loss = head.loss_sum(model, hidden, labels, NLL())
    loss.backward()
    times.append(time.process_time() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"seconds": min(times), "kib": peak, "loss": loss.item()}))
"""


def measured(kernel: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", MEASURE, kernel], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_half_the_memory_of_whole_logits():
    chunked, full = measured("torch"), measured("full")
    assert chunked["loss"] == pytest.approx(full["loss"], rel=1e-6)
    assert chunked["kib"] <= full["kib"] / 2
