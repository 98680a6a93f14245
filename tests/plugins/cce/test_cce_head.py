"""torch's own linear cross-entropy as a head, against whole logits in float64, and what the packages have no form for."""

import itertools

import pytest
import torch
from memcfg_cce.head import ForeignHead, check

from memcfg import RunError
from memcfg.batch import IGNORE
from memcfg.head import HeadTransform, OutputLayer

pytestmark = pytest.mark.torch
needs_torch = pytest.mark.skipif(
    not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="this torch has no linear_cross_entropy"
)


class Model(torch.nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.lm_head = torch.nn.Linear(16, 50, bias=bias)

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head


@needs_torch
@pytest.mark.parametrize("ask", ["loss_sum", "logprobs"])
@pytest.mark.parametrize(("bias", "trained"), itertools.product([False, True], [False, True]))
def test_equals_whole_logits(ask, bias, trained):
    torch.manual_seed(0)
    model, transform = Model(bias).requires_grad_(trained), HeadTransform(scale=0.5)
    hidden, labels = torch.randn(2, 9, 16, requires_grad=True), torch.randint(0, 50, (2, 9))
    labels[0, :3] = labels[1, 5] = IGNORE
    leaves = [x.detach().double().requires_grad_() for x in (hidden, *model.parameters())]
    logits = torch.nn.functional.linear(*leaves) * transform.scale
    temperature = 0.7 if ask == "logprobs" else 1.0
    kept = labels[:, 1:] != IGNORE
    chosen = (logits / temperature).log_softmax(-1)[:, :-1].gather(-1, labels[:, 1:].clamp(min=0)[..., None])
    scores = chosen.squeeze(-1) * kept
    head, factors = ForeignHead(transform, "torch_linear"), torch.linspace(-1, 2, 18).view(2, 9)
    if ask == "logprobs":
        value, wanted = head.logprobs(model, hidden, labels, temperature) * factors, scores * factors[:, 1:]
    else:
        value, wanted = head.loss_sum(model, hidden, labels, None), -scores
    value.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(value.sum().double(), wanted.sum(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), leaves[0].grad, rtol=1e-4, atol=1e-5)
    for parameter, leaf in zip(model.parameters(), leaves[1:], strict=True):
        if trained:
            torch.testing.assert_close(parameter.grad.double(), leaf.grad, rtol=1e-4, atol=1e-5)
        else:
            assert parameter.grad is None


@pytest.mark.parametrize("kernel", ["cce", "torch_linear"])
def test_a_batch_without_a_target_gives_zero(kernel):
    model, hidden = Model(False), torch.randn(1, 4, 16, requires_grad=True)
    zero = ForeignHead(HeadTransform(), kernel).loss_sum(model, hidden, torch.full((1, 4), IGNORE), None)
    zero.backward()
    assert zero.item() == 0.0
    assert torch.equal(model.lm_head.weight.grad, torch.zeros_like(model.lm_head.weight))


@pytest.mark.parametrize(
    ("kernel", "bias", "transform", "what"),
    [("cce", True, HeadTransform(), "a bias"), ("torch_linear", False, HeadTransform(softcap=5.0), "a soft cap")],
)
def test_a_head_without_a_form_is_refused(kernel, bias, transform, what):
    layer = OutputLayer(torch.zeros(5, 3), torch.zeros(5) if bias else None)
    with pytest.raises(RunError, match=f"`{kernel}` has no form for a head with {what}") as caught:
        check(layer, transform, kernel)
    assert caught.value.problems[0].fix == "loss.kernel=triton"
