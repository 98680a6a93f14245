"""Kernels of the hub: nothing is fetched unless the user said so by name, and then Transformers is asked for exactly that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_attention import hooks, lengths

from memcfg import RunError
from memcfg.batch import Batch

pytestmark = pytest.mark.torch

NAME = "kernels-community/flash-attn2"
PLAN = {
    "attention.implementation": "kernels", "attention.repository": NAME, "attention.trust_remote_code": True,
}  # fmt: skip


class Model(torch.nn.Module):
    """Remembers what it is asked for."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refusal = refusal
        text = SimpleNamespace(_attn_implementation="sdpa")
        self.config: Any = SimpleNamespace(get_text_config=lambda: text, model_type="llama")

    def set_attn_implementation(self, name: str) -> None:
        self.asked.append(name)
        if self.refusal is not None:
            raise self.refusal
        self.config.get_text_config()._attn_implementation = name


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_transformers_is_asked_for_the_repository() -> None:
    model = Model()
    attention = hooks.memcfg_attention(plan=PLAN, model=model)
    assert model.asked == [NAME]
    assert attention == lengths.LengthsAttention(NAME)
    ids = torch.zeros(1, 5, dtype=torch.int64)
    inputs = attention.inputs(Batch(ids, ids, ids, ids, layout="flat", lengths=[3, 2]))
    assert inputs["cu_seq_lens_q"].tolist() == [0, 3, 5]
    (found,) = hooks.memcfg_evidence(plan=PLAN, run=SimpleNamespace(model=model, contexts=[]), found=[])
    assert (found.key, found.effective) == ("attention.implementation", "kernels")


@pytest.mark.parametrize("trust", [False, None])
def test_a_plan_that_does_not_trust_the_code_asks_for_nothing(trust: bool | None) -> None:
    model = Model()
    with pytest.raises(RunError, match=f"`attention.trust_remote_code`: the code of `{NAME}` would be downloaded"):
        hooks.memcfg_attention(plan={**PLAN, "attention.trust_remote_code": trust}, model=model)
    assert model.asked == []


def test_what_transformers_refuses_is_one_message() -> None:
    with pytest.raises(RunError, match="cannot use the attention `kernels`: nobody vouches for it") as caught:
        hooks.memcfg_attention(plan=PLAN, model=Model(ValueError("nobody vouches for it")))
    assert len(caught.value.problems) == 1
