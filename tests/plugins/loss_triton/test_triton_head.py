"""The Triton head against whole logits in float64: every transform, bias or none, trained or frozen, any chunk."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = pathlib.Path(__file__).with_name("interpreted.py")
NAMES = ("losses", "dft", "logprobs", "entropies", "kernels_agree", "ties", "weight_sum", "shapes_only")


def ran(python: str, *words: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run([python, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def interpreted(interpreting_python: str) -> Callable[[str], dict[str, Any]]:
    """What the function of a name found. All are run in one process."""
    found = ran(interpreting_python, *NAMES)

    def of(name: str) -> dict[str, Any]:
        assert "error" not in found[name], found[name]["error"]
        return found[name]

    return of


def within(found: dict[str, float]) -> None:
    assert found
    for dtype, tolerance in {"torch.float32": 1e-5, "torch.bfloat16": 0.02, "torch.float16": 0.003}.items():
        assert found.get(dtype, 0.0) < tolerance, found


@pytest.mark.parametrize("ask", ["losses", "dft", "logprobs", "entropies"])
def test_equals_whole_logits(ask, interpreted):
    within(interpreted(ask))


def test_triton_does_what_torch_does(interpreted):
    assert interpreted("kernels_agree")["worst"] < 1e-4


@pytest.mark.soak
def test_every_combination_of_options(interpreting_python):
    found = ran(interpreting_python, "--every", "losses", "dft", "logprobs", "entropies", "kernels_agree")
    assert found.pop("kernels_agree")["worst"] < 1e-4
    for of_one in found.values():
        within(of_one)


def test_the_first_of_equal_maxima_counts(interpreted):
    assert interpreted("ties")["hit"] == [0.0, 1.0, 0.0, 0.0]


def test_the_weight_gradient_adds_up_in_float32(interpreted):
    """In bfloat16 a sum of ones stops at 256, and adding 1 to 1024 does nothing."""
    assert interpreted("weight_sum")["first"] == pytest.approx(-(1024 + 60) * (1 - 1 / 50), rel=0.01)


def test_kernels_have_fake_implementations(interpreted):
    assert interpreted("shapes_only") == {
        "loss": ["torch.float32", []], "logp": ["torch.float32", [300]], "grads": [[300, 64], "torch.bfloat16"],
    }  # fmt: skip
