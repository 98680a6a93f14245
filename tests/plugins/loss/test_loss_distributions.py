"""Log-probabilities with the entropy of what each token was drawn from, against whole logits in float64; and a head that
computes in float32 whatever the model's type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.fused.autograd import distributions, logprobs
from memcfg_loss.fused.score import Score

from memcfg.batch import IGNORE, Informed
from memcfg.head.transform import HeadTransform

pytestmark = pytest.mark.torch
VOCABULARY, WIDTH, RANK, TEMPERATURE = 40, 12, 3, 0.7
TRANSFORMS = {
    "plain": HeadTransform(), "scaled": HeadTransform(scale=0.25), "capped": HeadTransform(softcap=5.0),
    "both": HeadTransform(scale=3.0, softcap=2.0),
}  # fmt: skip
NAMES = ("hidden", "weight", "bias", "low", "up")


def leaves(dtype: torch.dtype = torch.float64, rows: int = 9, **without: None) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    shapes = {
        "hidden": (rows, WIDTH), "weight": (VOCABULARY, WIDTH), "bias": (VOCABULARY,), "low": (rows, RANK),
        "up": (VOCABULARY, RANK),
    }  # fmt: skip
    made = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    return {name: made[name].requires_grad_() for name in NAMES} | without


def whole(given: dict[str, Any], ids: torch.Tensor, transform: HeadTransform) -> tuple[torch.Tensor, torch.Tensor]:
    """From all logits, in float64."""
    hidden, weight, bias, low, up = (None if given[n] is None else given[n].double() for n in NAMES)
    raw = hidden @ weight.T + (0 if bias is None else bias) + (0 if low is None else low @ up.T)
    logits = raw * transform.scale
    if transform.softcap:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    scored = (logits / TEMPERATURE).log_softmax(-1)
    return scored.gather(1, ids[:, None]).squeeze(1), -(scored.exp() * scored).sum(1)


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("without", [{}, {"bias": None}, {"low": None, "up": None}], ids=lambda w: "no-" + "-".join(w))
def test_values_and_gradients_equal_whole_logits(chunk: int, name: str, without: dict[str, None]) -> None:
    transform, ids = TRANSFORMS[name], torch.arange(9) * 4
    score = Score(transform.tempered(TEMPERATURE), budget=chunk * VOCABULARY * 8)
    factors = torch.linspace(-1, 2, 18, dtype=torch.float64).view(2, 9)
    found = []
    for ask in (lambda g: distributions(ids=ids, score=score, **g), lambda g: whole(g, ids, transform)):
        given = leaves(**without)
        values = torch.stack(ask(given))
        (values * factors).sum().backward()
        found.append([values.detach(), *(g.grad for g in given.values() if g is not None)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "frozen", [("weight", "bias", "up"), ("hidden", "low"), ()], ids=lambda f: "-".join(f) or "all"
)
@pytest.mark.parametrize("read", [(True, True), (True, False), (False, True)], ids=["both", "logp", "entropy"])
def test_what_is_frozen_or_not_learned_from_changes_nothing(frozen: Any, read: Any) -> None:
    ids, score = torch.arange(9), Score(HeadTransform(temperature=TEMPERATURE), budget=4 * VOCABULARY * 8)
    found = []
    for ask in (lambda g: distributions(ids=ids, score=score, **g), lambda g: whole(g, ids, HeadTransform())):
        given = leaves()
        for one in frozen:
            given[one].requires_grad_(False)
        sum(value.sin().sum() for value, wanted in zip(ask(given), read, strict=True) if wanted).backward()
        found.append({name: g.grad for name, g in given.items()})
    assert {name for name, gradient in found[0].items() if gradient is None} == set(frozen)
    for name in set(NAMES) - set(frozen):
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-9, atol=1e-9)


def test_without_gradient_the_values_are_the_same() -> None:
    ids, score, given = torch.arange(9), Score(HeadTransform(), budget=4 * VOCABULARY * 8), leaves()
    with torch.no_grad():
        still = distributions(ids=ids, score=score, **given)
    torch.testing.assert_close(torch.stack(still), torch.stack(distributions(ids=ids, score=score, **given)).detach())


def test_without_an_entropy_to_learn_from_it_is_log_probabilities() -> None:
    ids, score = torch.arange(9), Score(HeadTransform(softcap=3.0), budget=4 * VOCABULARY * 8)
    one, other = leaves(), leaves()
    logp, entropy = distributions(ids=ids, score=score, **one)
    (logp.sin() + entropy.detach()).sum().backward()
    logprobs(ids=ids, score=score, **other).sin().sum().backward()
    for name in NAMES:
        torch.testing.assert_close(one[name].grad, other[name].grad, rtol=0, atol=0)


class Model(torch.nn.Module):
    """Nothing but a head."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        with torch.no_grad():
            self.lm_head.weight.normal_(generator=torch.Generator().manual_seed(3))
        self.to(dtype)

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head


def batch(*, masked: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(0, VOCABULARY, (2, 9), generator=generator)
    labels[0, :3] = labels[1, 5] = IGNORE
    hidden = torch.randn(2, 9, WIDTH, generator=generator)
    return hidden, torch.full_like(labels, IGNORE) if masked else labels


def test_entropies_lie_where_the_labels_do() -> None:
    hidden, labels = batch()
    head = ChunkedHead(HeadTransform(), budget=5 * VOCABULARY * 4)
    assert isinstance(head, Informed)
    assert isinstance(FullHead(), Informed)
    logp, entropy = head.distributions(Model(), hidden, labels, temperature=TEMPERATURE)
    assert entropy.shape == labels.shape
    assert (entropy[labels == IGNORE] == 0).all()
    assert (entropy[:, 0] == 0).all()
    torch.testing.assert_close(logp, head.logprobs(Model(), hidden, labels, TEMPERATURE))
    torch.testing.assert_close(entropy, head.statistics(Model(), hidden, labels, TEMPERATURE).entropy)


def test_a_batch_without_a_target_gives_zeros_to_all() -> None:
    model, (hidden, labels) = Model(), batch(masked=True)
    hidden.requires_grad_()
    logp, entropy = ChunkedHead(HeadTransform(), budget=1 << 20).distributions(model, hidden, labels)
    (logp + entropy).sum().backward()
    assert not hidden.grad.any()
    assert not model.lm_head.weight.grad.any()


# ---------------------------------------------------------------------------------------------------------- float32


def exact(model: Model, hidden: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Log-probabilities and gradients from the rounded weights and states, in float64 from there on."""
    weight, states = (x.detach().double().requires_grad_() for x in (model.lm_head.weight, hidden))
    scored = (states @ weight.T).log_softmax(-1)[:, :-1]
    logp = scored.gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1) * (labels[:, 1:] != IGNORE)
    logp.sin().sum().backward()
    return logp.detach(), states.grad, weight.grad


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16", "autocast"])
@pytest.mark.parametrize("float32", [False, True], ids=["", "float32"])
def test_a_float32_head_rounds_no_logit(autocast: bool, float32: bool) -> None:
    """Weights and states are bfloat16 (under autocast only the states are); products, logits and their gradients are not."""
    model, (hidden, labels) = Model(torch.float32 if autocast else torch.bfloat16), batch()
    hidden = hidden.bfloat16().requires_grad_()
    head = ChunkedHead(HeadTransform(), budget=5 * VOCABULARY * 4, float32=float32)
    wanted = exact(model, hidden, labels)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logp = head.logprobs(model, hidden, labels)
        assert head.dtype(hidden, model.lm_head.weight) == (torch.float32 if float32 else torch.bfloat16)
    logp.sin().sum().backward()
    error = float((logp.detach()[:, 1:].double() - wanted[0]).abs().max())
    assert (error < 1e-5) == float32
    assert error < 0.1
    assert hidden.grad.dtype == torch.bfloat16
    assert model.lm_head.weight.grad.dtype == model.lm_head.weight.dtype
    # one rounding of each gradient, to the type of what it is a gradient of
    if float32:
        torch.testing.assert_close(hidden.grad, wanted[1].bfloat16(), rtol=0.01, atol=1e-3)
        torch.testing.assert_close(
            model.lm_head.weight.grad, wanted[2].to(model.lm_head.weight.dtype), rtol=0.01, atol=1e-3
        )


def test_a_float32_head_says_so() -> None:
    assert ChunkedHead(HeadTransform(), 64 << 20, float32=True).describe() == (
        "chunks of at most 64 MiB, plain logits, in float32"
    )


def test_no_more_logits_are_alive_than_the_budget_says(widest: Any) -> None:
    """The largest tensor of rows of logits, over forward and backward, gradients of entropies among them."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 50, WIDTH, generator=generator).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (4, 50), generator=generator)
    head = ChunkedHead(HeadTransform(), budget=20 * VOCABULARY * 4)
    with widest(VOCABULARY) as seen:
        sum(value.sum() for value in head.distributions(Model(), hidden, labels)).backward()
    assert seen.rows == 20, "196 targets in ten chunks"
