"""Token losses: what each is worth, and that the derivative it states is its derivative."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memcfg_loss.tokens import DFT, NLL

pytestmark = pytest.mark.torch
logps = st.lists(st.floats(-20, 0), min_size=1, max_size=8).map(lambda x: torch.tensor(x, dtype=torch.float32))


def test_values():
    logp = torch.tensor([0.5, 0.25]).log()
    torch.testing.assert_close(NLL().value(logp), -logp)
    torch.testing.assert_close(DFT().value(logp), -torch.tensor([0.5, 0.25]) * logp)


@given(logps)
def test_the_derivative_of_nll_is_its_derivative(logp):
    logp.requires_grad_()
    (slope,) = torch.autograd.grad(NLL().value(logp).sum(), logp)
    torch.testing.assert_close(NLL().derivative(logp.detach()), slope)


@given(logps)
def test_dft_holds_its_weight_constant(logp):
    weight = logp.exp()
    logp.requires_grad_()
    (slope,) = torch.autograd.grad((-weight * logp).sum(), logp)
    torch.testing.assert_close(DFT().derivative(logp.detach()), slope)
