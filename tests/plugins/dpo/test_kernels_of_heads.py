"""Preference losses with the heads of `loss.kernel=triton` and `liger`, interpreted, against the one of torch: the same
losses, gradients and metrics."""

import json
import subprocess

import pytest

pytest.importorskip("liger_kernel")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import json, sys, warnings
warnings.filterwarnings("ignore")
sys.path.insert(0, "tests/plugins")
import torch
from conftest import Bench
from memcfg.batch import Documents
from memcfg.engine.forward import attach_head
from memcfg.engine.pairs import collate
from memcfg.head.transform import HeadTransform
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_kto import objective as kto
from memcfg_kto.hooks import Collator
from memcfg_liger.head import LigerHead
from memcfg_loss.chunked import ChunkedHead
from memcfg_reference.references import Live

bench = Bench()
HEADS = {
    "torch": lambda: ChunkedHead(HeadTransform(), None),
    "triton": lambda: ChunkedHead(HeadTransform(), None, kernel="triton"),
    "liger": lambda: LigerHead(HeadTransform()),
}
OBJECTIVES = {
    "dpo": (lambda: PreferencePairs(Settings(), weighting=True), lambda: collate(bench.rows(((2, 3, 2), (3, 1, 2))))),
    "kto": (lambda: kto.MarkedCompletions(kto.Settings()), lambda: Collator(True, None)(bench.marked([True, False, True]))),
}

def step(name, kernel, layout):
    made, documents = OBJECTIVES[name]
    policy, reference = bench.model(0).float(), bench.model(1).float()
    for model in (policy, reference):
        attach_head(model, HEADS[kernel]())
    objective = made()
    objective.bind(None, bench.attention(policy))
    objective.refer(Live(reference.requires_grad_(False).eval()))
    loss = objective.loss_sum(policy, bench.batch(documents(), layout))
    loss.backward()
    return float(loss.detach()), bench.gradients(policy), objective.metrics()

worst = {"triton": 0.0, "liger": 0.0}
for name, layout in {"dpo": "flat", "kto": "padded"}.items():
    loss, gradients, metrics = step(name, "torch", layout)
    for kernel in worst:
        other, theirs, measured = step(name, kernel, layout)
        assert measured.keys() == metrics.keys() and gradients.keys() == theirs.keys()
        errors = [abs(loss - other) / abs(loss)]
        errors += [abs(measured[k] - metrics[k]) / max(1.0, abs(metrics[k])) for k in metrics]
        errors += [float((gradients[k] - theirs[k]).norm() / (gradients[k].norm() + 1e-6)) for k in gradients]
        worst[kernel] = max(worst[kernel], *errors)
print(json.dumps(worst))
"""


def test_every_kernel_scores_completions_alike(interpreting_python: str) -> None:
    done = subprocess.run([interpreting_python, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0 < found["triton"] < 1e-4
    assert 0 < found["liger"] < 1e-4
