"""The compiled kernels on a GPU against float32 there, and heads of other packages against ours."""

import pytest
import torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
]

TRANSFORMS = {
    "plain": {},
    "scaled": {"scale": 0.25},
    "capped": {"softcap": 5.0},
    "both": {"scale": 3.0, "softcap": 2.0},
}


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    error = float((found.float() - expected.float()).norm() / expected.float().norm())
    assert error < tolerance, error


@pytest.mark.parametrize("vocabulary", [50_257, 32_000, 151_936])
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("ask", ["nll", "dft", "logprobs", "shaped", "entropies"])
def test_equals_float32(vocabulary, name, ask):
    """A vocabulary that is no multiple of sixteen among them; several chunks, the last of them short."""
    from memcfg_loss.fused.autograd import distributions, logprobs, loss_sum
    from memcfg_loss.fused.score import Score
    from memcfg_loss.tokens import DFT, NLL

    from memcfg.head import HeadTransform

    torch.manual_seed(0)
    transform, make = HeadTransform(**TRANSFORMS[name]), {"device": "cuda", "dtype": torch.bfloat16}
    hidden, weight = torch.randn(700, 128, **make), torch.randn(vocabulary, 128, **make) * 0.2
    ids, factors = torch.randint(vocabulary, (700,), device="cuda"), torch.randn(700, device="cuda")
    loss = {"nll": NLL(), "dft": DFT(), "shaped": NLL(0.1, 0.001)}.get(ask)
    found = []
    for kernel, dtype in (("triton", torch.bfloat16), ("torch", torch.float32)):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in (hidden, weight)]
        score = Score(transform, kernel, "cuda", loss, 256 * vocabulary * dtype.itemsize)
        if ask == "entropies":
            value = (torch.stack(distributions(*leaves, ids, score)) * torch.stack([factors, factors.cos()])).sum()
        else:
            value = (logprobs(*leaves, ids, score) * factors).sum() if loss is None else loss_sum(*leaves, ids, score)
        (value / 699).backward()
        found.append((value.detach(), *(leaf.grad for leaf in leaves)))
    # few likely targets make up most of dft's sum: the rounding of their logits does not average out
    close(found[0][0], found[1][0], 0.05 if loss is None else 0.01 if ask == "dft" else 0.003)
    close(found[0][1], found[1][1], 0.03)
    close(found[0][2], found[1][2], 0.03)


@pytest.mark.parametrize("kernel", ["triton", "torch"])
def test_a_float32_head_of_bfloat16_weights(kernel):
    """Against float64 from the same rounded numbers: nothing but the gradients' one rounding is left."""
    from memcfg_loss.fused.autograd import distributions
    from memcfg_loss.fused.score import Score

    from memcfg.head import HeadTransform

    torch.manual_seed(0)
    vocabulary, make = 32_000, {"device": "cuda", "dtype": torch.bfloat16}
    hidden, weight = torch.randn(300, 128, **make), torch.randn(vocabulary, 128, **make) * 0.2
    ids, factors = torch.randint(vocabulary, (300,), device="cuda"), torch.randn(2, 300, device="cuda")
    leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
    score = Score(HeadTransform(), kernel, "cuda", None, 64 << 20, float32=True)
    found = torch.stack(distributions(*leaves, ids, score))
    (found * factors).sum().backward()
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    scored = (exact[0] @ exact[1].T).log_softmax(-1)
    wanted = torch.stack([scored.gather(1, ids[:, None]).squeeze(1), -(scored.exp() * scored).sum(1)])
    (wanted * factors).sum().backward()
    assert float((found.double() - wanted).abs().max().detach()) < 1e-3
    for mine, theirs in zip(leaves, exact, strict=True):
        close(mine.grad, theirs.grad.float(), 0.004)


@pytest.mark.parametrize("kernel", ["liger", "cce"])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_heads_of_other_packages_agree(kernel, softcap):
    pytest.importorskip({"liger": "liger_kernel", "cce": "cut_cross_entropy"}[kernel])
    from memcfg_cce.head import ForeignHead
    from memcfg_liger.head import LigerHead
    from memcfg_loss.chunked import ChunkedHead
    from memcfg_loss.tokens import NLL

    from memcfg.head import HeadTransform

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = torch.nn.Linear(128, 32_000, bias=False, device="cuda", dtype=torch.bfloat16)

        def get_output_embeddings(self) -> torch.nn.Module:
            return self.lm_head

    torch.manual_seed(0)
    model, transform = Model(), HeadTransform(softcap=softcap)
    other = LigerHead(transform) if kernel == "liger" else ForeignHead(transform, "cce")
    labels = torch.randint(32_000, (2, 257), device="cuda")
    found = []
    for head in (other, ChunkedHead(transform, None, "cuda", "triton")):
        model.zero_grad()
        torch.manual_seed(1)
        hidden = torch.randn(2, 257, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        value = head.loss_sum(model, hidden, labels, NLL())
        value.backward()
        found.append((value.detach(), hidden.grad, model.lm_head.weight.grad.clone()))
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs, 0.05)
