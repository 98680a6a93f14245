"""The loss as mathematics."""

import pytest
import torch
from memcfg_focal.hooks import FocalLoss

pytestmark = pytest.mark.torch

LOGPS = [-1e-300, -1e-30, -1e-9, -1e-3, -0.5, -3.0, -30.0, -700.0]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_the_derivative_is_that_of_the_value(gamma):
    logp = torch.tensor(LOGPS, dtype=torch.float64, requires_grad=True)
    loss = FocalLoss(gamma)
    loss.value(logp).sum().backward()
    torch.testing.assert_close(loss.derivative(logp.detach()), logp.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("logp", [0.0, 1e-7, -1e-40])
def test_a_certain_token_has_a_finite_derivative(gamma, logp):
    """Rounding puts log p at 0 or just above it."""
    derivative = FocalLoss(gamma).derivative(torch.tensor([logp]))
    assert derivative.isfinite().all()
    assert derivative.item() == pytest.approx(-1.0 if gamma == 0 else 0.0, abs=1e-6)


def test_without_focus_it_is_nll():
    logp = torch.tensor(LOGPS)
    torch.testing.assert_close(FocalLoss(0.0).value(logp), -logp, rtol=0, atol=0)
    torch.testing.assert_close(FocalLoss(0.0).derivative(logp), -torch.ones_like(logp), rtol=0, atol=0)


def test_a_value_by_hand():
    """p = 1/2 and gamma = 2: (1/2)^2 log 2."""
    half = torch.tensor([0.5], dtype=torch.float64).log()
    assert FocalLoss(2.0).value(half).item() == pytest.approx(0.25 * 0.6931471805599453)


def test_well_predicted_tokens_count_less():
    easy, hard = (torch.tensor([p]).log() for p in (0.9, 0.1))
    focal, plain = FocalLoss(2.0), FocalLoss(0.0)
    assert focal.value(easy) / focal.value(hard) < 0.1 * plain.value(easy) / plain.value(hard)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_shape_and_dtype_are_kept(shape):
    logp = -torch.rand(shape)
    for result in (FocalLoss(2.0).value(logp), FocalLoss(2.0).derivative(logp)):
        assert result.shape == logp.shape
        assert result.dtype == torch.float32
