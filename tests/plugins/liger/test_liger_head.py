"""Liger's fused linear cross-entropy as a head, interpreted, against whole logits in float64."""

import json
import subprocess

import pytest

pytest.importorskip("liger_kernel")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import itertools, json, warnings
warnings.filterwarnings("ignore")
import torch
from memcfg_liger.head import LigerHead
from memcfg.batch import IGNORE
from memcfg.head import HeadTransform

torch.set_num_threads(1)
class Model(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.lm_head = torch.nn.Linear(16, 50, bias=bias)
    def get_output_embeddings(self):
        return self.lm_head

worst = 0.0
transforms = [HeadTransform(), HeadTransform(scale=0.25), HeadTransform(scale=3.0)]  # the interpreter cannot run its soft cap
asks = ("nll", "dft", "logprobs")
for k, (bias, trained) in enumerate(itertools.product((False, True), (True, False))):
  for t, transform in enumerate(transforms):
    ask = asks[(t + k) % 3]  # each two values of any two options meet
    torch.manual_seed(0)
    model = Model(bias).requires_grad_(trained)
    hidden, labels = torch.randn(2, 9, 16, requires_grad=True), torch.randint(0, 50, (2, 9))
    labels[0, :3] = labels[1, 5] = IGNORE
    leaves = [x.detach().double().requires_grad_() for x in (hidden, *model.parameters())]
    logits = torch.nn.functional.linear(*leaves) * transform.scale
    if transform.softcap:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    temperature = 0.7 if ask == "logprobs" and transform.softcap is None else 1.0
    kept = labels[:, 1:] != IGNORE
    scores = (logits / temperature).log_softmax(-1)[:, :-1].gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1) * kept
    head = LigerHead(transform, scaled=ask == "dft")
    factors = torch.linspace(-1, 2, 18).view(2, 9)
    if ask == "logprobs":
        value, wanted = (head.logprobs(model, hidden, labels, temperature) * factors).sum(), (scores * factors[:, 1:]).sum()
    else:
        value = head.loss_sum(model, hidden, labels, None)
        wanted = -((scores.detach().exp() if ask == "dft" else 1) * scores * kept).sum()
    value.backward(); wanted.backward()
    pairs = [(value, wanted), (hidden.grad, leaves[0].grad)]
    pairs += [(p.grad, x.grad) for p, x in zip(model.parameters(), leaves[1:]) if trained]
    assert trained or all(p.grad is None for p in model.parameters())
    for found, expected in pairs:
        error = float((found.double() - expected).norm() / expected.norm())
        assert error < 1e-5, (transform, bias, trained, ask, error)
        worst = max(worst, error)
nothing = LigerHead(HeadTransform()).loss_sum(model, hidden, torch.full_like(labels, IGNORE), None)
nothing.backward()
print(json.dumps({"worst": worst, "nothing": nothing.item()}))
"""


def test_equals_whole_logits(interpreting_python):
    done = subprocess.run([interpreting_python, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["worst"] < 1e-5
    assert found["nothing"] == 0.0
