"""The Triton head against whole logits in float64: every transform, bias or none, trained or frozen, any chunk."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = pathlib.Path(__file__).with_name("interpreted.py")


def interpreted(name: str) -> dict:
    done = subprocess.run([sys.executable, str(SCRIPT), name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "ask",
    [
        "losses",
        pytest.param("dft", marks=pytest.mark.soak),
        "logprobs",
        pytest.param("entropies", marks=pytest.mark.soak),
    ],
)
def test_equals_whole_logits(ask):
    found = interpreted(ask)
    for dtype, tolerance in {"torch.float32": 1e-5, "torch.bfloat16": 0.02, "torch.float16": 0.003}.items():
        assert found.get(dtype, 0.0) < tolerance, found


def test_triton_does_what_torch_does():
    assert interpreted("kernels_agree")["worst"] < 1e-4


def test_the_first_of_equal_maxima_counts():
    assert interpreted("ties")["hit"] == [0.0, 1.0, 0.0, 0.0]


def test_the_weight_gradient_adds_up_in_float32():
    """In bfloat16 a sum of ones stops at 256."""
    assert interpreted("weight_sum")["first"] == pytest.approx(-400 * (1 - 1 / 50), rel=0.01)


def test_kernels_have_fake_implementations():
    assert interpreted("shapes_only") == {
        "loss": ["torch.float32", []], "logp": ["torch.float32", [300]], "grads": [[300, 64], "torch.bfloat16"],
    }  # fmt: skip
