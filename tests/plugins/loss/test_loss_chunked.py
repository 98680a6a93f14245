"""The chunked head against whole logits in float64: the same loss and gradients, whatever the chunk."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.tokens import DFT, NLL

from memcfg import RunError
from memcfg.batch import IGNORE
from memcfg.head.transform import HeadTransform

pytestmark = pytest.mark.torch
VOCABULARY, WIDTH = 64, 16
CHUNKS = [1, 5, 64]
TRANSFORMS = {
    "plain": HeadTransform(),
    "scaled": HeadTransform(scale=0.25),
    "capped": HeadTransform(softcap=5.0),
    "both": HeadTransform(scale=3.0, softcap=2.0),
}


class Model(torch.nn.Module):
    """Nothing but a head."""

    def __init__(self, bias: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias).to(dtype)
        with torch.no_grad():
            for parameter in self.lm_head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head


@dataclass
class Case:
    hidden: torch.Tensor
    labels: torch.Tensor


@pytest.fixture
def case() -> Case:
    """Two rows of nine positions, four of the labels masked."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(0, VOCABULARY, (2, 9), generator=generator)
    labels[0, :3] = labels[1, 5] = IGNORE
    return Case(torch.randn(2, 9, WIDTH, generator=generator), labels)


def chunks(rows: int, transform: HeadTransform = HeadTransform()) -> ChunkedHead:  # noqa: B008
    return ChunkedHead(transform, budget=rows * VOCABULARY * 4)


def oracle(case: Case, model: Model, transform: HeadTransform = HeadTransform()) -> SimpleNamespace:  # noqa: B008
    """Log-probabilities [2, 9] from whole logits in float64, with the leaves that they were made of."""
    hidden = case.hidden.double().requires_grad_()
    weight, bias = (
        None if p is None else p.detach().double().requires_grad_() for p in (model.lm_head.weight, model.lm_head.bias)
    )
    logits = torch.nn.functional.linear(hidden, weight, bias) * transform.scale
    if transform.softcap:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    scored = (logits / transform.temperature).log_softmax(-1)[:, :-1]
    chosen = scored.gather(-1, case.labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1)
    logp = torch.nn.functional.pad(chosen * (case.labels[:, 1:] != IGNORE), (1, 0))
    return SimpleNamespace(logp=logp, hidden=hidden, weight=weight, bias=bias)


def compare(
    loss: torch.Tensor, expected: torch.Tensor, leaves: Any, hidden: torch.Tensor, model: Model, **tolerance: float
) -> None:
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(loss.double(), expected, **tolerance)
    loss.sum().backward()
    expected.sum().backward()
    for mine, theirs in (
        (hidden, leaves.hidden),
        (model.lm_head.weight, leaves.weight),
        (model.lm_head.bias, leaves.bias),
    ):
        if mine is not None:
            torch.testing.assert_close(mine.grad.double(), theirs.grad, **tolerance)


@pytest.mark.parametrize("rows", CHUNKS)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_equals_whole_logits(case, rows, name, bias):
    model, hidden = Model(bias), case.hidden.clone().requires_grad_()
    leaves = oracle(case, model, TRANSFORMS[name])
    loss = chunks(rows, TRANSFORMS[name]).loss_sum(model, hidden, case.labels, NLL())
    assert loss.dtype == torch.float32
    compare(loss, -leaves.logp.sum(), leaves, hidden, model)


@pytest.mark.parametrize("rows", CHUNKS)
def test_dft_equals_whole_logits(case, rows):
    model, hidden = Model(), case.hidden.clone().requires_grad_()
    leaves = oracle(case, model)
    loss = chunks(rows).loss_sum(model, hidden, case.labels, DFT())
    compare(loss, -(leaves.logp.detach().exp() * leaves.logp).sum(), leaves, hidden, model)


@pytest.mark.parametrize("rows", CHUNKS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_log_probabilities_with_gradients_of_their_own(case, rows, name):
    model, hidden = Model(bias=True), case.hidden.clone().requires_grad_()
    leaves = oracle(case, model, TRANSFORMS[name].tempered(0.7))
    factors = torch.linspace(-1, 2, 18).view(2, 9)
    logp = chunks(rows, TRANSFORMS[name]).logprobs(model, hidden, case.labels, temperature=0.7)
    assert logp.shape == (2, 9)
    assert (logp[case.labels == IGNORE] == 0).all()
    assert (logp[:, 0] == 0).all()
    compare(logp * factors, leaves.logp * factors, leaves, hidden, model)


@pytest.mark.parametrize("rows", CHUNKS)
def test_a_frozen_head_gets_no_gradient_and_leaves_the_rest_as_it_is(case, rows):
    frozen, trained = Model(), Model()
    frozen.requires_grad_(False)
    found = []
    for model in (frozen, trained):
        hidden = case.hidden.clone().requires_grad_()
        chunks(rows).loss_sum(model, hidden, case.labels, NLL()).backward()
        found.append(hidden.grad)
    assert torch.equal(*found)
    assert frozen.lm_head.weight.grad is None
    assert trained.lm_head.weight.grad is not None


def test_without_gradient_nothing_is_kept(case):
    model = Model()
    with torch.no_grad():
        loss = chunks(5).loss_sum(model, case.hidden, case.labels, NLL())
    assert not loss.requires_grad
    torch.testing.assert_close(loss.double(), -oracle(case, model).logp.sum().detach())


@pytest.mark.parametrize("ask", ["loss_sum", "logprobs"])
@pytest.mark.parametrize("poison", [1.0, float("inf")], ids=["finite", "overflowed"])
def test_a_batch_without_a_target_gives_zero_gradients_to_all(case, ask, poison):
    model, hidden = Model(bias=True), (case.hidden * poison).requires_grad_()
    labels = torch.full_like(case.labels, IGNORE)
    labels[:, 0] = 3  # nothing precedes the first position: it is no target either
    extra = (NLL(),) if ask == "loss_sum" else ()
    zero = getattr(chunks(5), ask)(model, hidden, labels, *extra).sum()
    zero.backward()
    assert zero.item() == 0.0
    for leaf in (hidden, model.lm_head.weight, model.lm_head.bias):
        assert torch.equal(leaf.grad, torch.zeros_like(leaf))


def test_a_chunk_without_a_target_changes_nothing(case):
    labels = case.labels.clone()
    labels[0] = IGNORE
    model, hidden = Model(), case.hidden.clone().requires_grad_()
    leaves = oracle(Case(case.hidden, labels), model)
    compare(chunks(1).loss_sum(model, hidden, labels, NLL()), -leaves.logp.sum(), leaves, hidden, model)


@pytest.mark.parametrize("rows", CHUNKS)
def test_bfloat16_is_as_near_as_its_products_allow(case, rows):
    model = Model(dtype=torch.bfloat16)
    hidden = case.hidden.bfloat16().requires_grad_()
    rounded = Case(hidden.detach().float(), case.labels)
    leaves = oracle(rounded, model)
    loss = chunks(rows).loss_sum(model, hidden, case.labels, NLL())
    assert loss.dtype == torch.float32
    compare(loss, -leaves.logp.sum(), leaves, hidden, model, rtol=0.03, atol=0.05)
    assert model.lm_head.weight.grad.dtype == torch.bfloat16


def test_the_weight_gradient_adds_up_in_float32():
    """2,000 equal contributions, one to a chunk: a sum in bfloat16 stops growing after 256 of them."""
    model = Model(dtype=torch.bfloat16)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    hidden = torch.ones(1, 2001, WIDTH, dtype=torch.bfloat16)
    labels = torch.zeros(1, 2001, dtype=torch.long)
    chunks(1).loss_sum(model, hidden, labels, NLL()).backward()
    assert model.lm_head.weight.grad[0, 0].item() == pytest.approx(-2000 * (1 - 1 / VOCABULARY), rel=0.01)


def test_autocast_rounds_products_and_nothing_else(case):
    model, hidden = Model(), case.hidden.clone().requires_grad_()
    leaves = oracle(case, model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunks(5).loss_sum(model, hidden, case.labels, NLL())
    assert loss.dtype == hidden.dtype == torch.float32
    compare(loss, -leaves.logp.sum(), leaves, hidden, model, rtol=0.03, atol=0.05)
    assert model.lm_head.weight.grad.dtype == torch.float32


def test_a_second_backward_is_an_error_not_a_wrong_gradient(case):
    hidden = case.hidden.clone().requires_grad_()
    loss = chunks(5).loss_sum(Model(), hidden, case.labels, NLL())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


@pytest.mark.parametrize("bad", [VOCABULARY, -1])
def test_a_label_outside_the_vocabulary_is_named(case, bad):
    case.labels[1, 4] = bad
    with pytest.raises(RunError, match=rf"label {bad} at position 4 of row 1 .* vocabulary of 64"):
        chunks(5).loss_sum(Model(), case.hidden, case.labels, NLL())


def test_a_budget_below_one_row_is_refused():
    with pytest.raises(RunError, match="do not hold one row") as caught:
        ChunkedHead(HeadTransform(), budget=1 << 20).rows(300_000)
    assert caught.value.problems[0].fix == "loss.chunk_mib=2"
    assert ChunkedHead(HeadTransform(), budget=2 << 20).rows(300_000) == 1


def test_no_more_logits_are_alive_than_the_budget_says(widest):
    """The largest tensor that the head makes, over forward and backward."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 50, WIDTH, generator=generator).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (4, 50), generator=generator)
    with widest(VOCABULARY) as seen:
        chunks(20).loss_sum(Model(), hidden, labels, NLL()).backward()
    assert seen.rows == 20, "196 targets in ten chunks"
