"""Label smoothing and z-loss, and the statistics that are there for the asking."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import NLL
from torch.nn.functional import cross_entropy

from memcfg.batch import IGNORE
from memcfg.head import HeadTransform

pytestmark = pytest.mark.torch
WIDTH, VOCABULARY = 16, 64


class Model(torch.nn.Module):
    base_model_prefix = "model"

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model, self.lm_head = torch.nn.Identity(), torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head

    def forward(self, input_ids: Any, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))


def case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, VOCABULARY, (2, 9), generator=generator)
    labels[0, :3] = labels[1, 5] = IGNORE
    return torch.randn(2, 9, WIDTH, generator=generator, requires_grad=True), labels


def heads() -> dict[str, Any]:
    chunked = {f"{rows} rows": ChunkedHead(HeadTransform(), budget=rows * VOCABULARY * 4) for rows in (1, 5, 64)}
    return {"whole": FullHead(), **chunked}


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.1, 0.0), (0.0, 0.01), (0.2, 0.01)])
def test_equals_torchs_own(name, smoothing, z_loss):
    model, (hidden, labels) = Model(), case()
    leaf, weight = (x.detach().double().requires_grad_() for x in (hidden, model.lm_head.weight))
    logits = (leaf @ weight.T)[:, :-1].reshape(-1, VOCABULARY)
    ids = labels[:, 1:].reshape(-1)
    wanted = cross_entropy(logits, ids, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    wanted = wanted + z_loss * (logits.logsumexp(1).square() * (ids != IGNORE)).sum()
    value = heads()[name].loss_sum(model, hidden, labels, NLL(smoothing, z_loss))
    value.backward()
    wanted.backward()
    torch.testing.assert_close(value.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), leaf.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.lm_head.weight.grad.double(), weight.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        again = heads()[name].loss_sum(model, hidden, labels, NLL(smoothing, z_loss))
    torch.testing.assert_close(again, value.detach())


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_statistics_on_request(rows):
    model, (hidden, labels) = Model(), case()
    labels[1, 3] = (hidden[1, 2] @ model.lm_head.weight.T).argmax()
    found = ChunkedHead(HeadTransform(), budget=rows * VOCABULARY * 4).statistics(
        model, hidden, labels, temperature=0.7
    )
    scores = ((hidden @ model.lm_head.weight.T) / 0.7).log_softmax(-1)[:, :-1].detach()
    kept = labels[:, 1:] != IGNORE
    chosen = scores.gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1)
    torch.testing.assert_close(found.logp[:, 1:], chosen * kept)
    torch.testing.assert_close(found.entropy[:, 1:], -(scores.exp() * scores).sum(-1) * kept)
    assert torch.equal(found.hit[:, 1:], (scores.argmax(-1) == labels[:, 1:]).float() * kept)
    assert found.hit[1, 3] == 1.0
    assert not any(values[:, 0].any() or values.requires_grad for values in found)
