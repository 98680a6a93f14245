"""A bench for trainers that compare completions: a two-layer Llama in float64, rows of random tokens, and every layout.

Nothing here imports torch before a test asks for the bench."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

VOCABULARY = 40
PAIRS = ((4, 5, 3), (1, 2, 7), (6, 1, 1), (3, 6, 6))
"""Tokens of the prompt, of the better completion and of the worse one."""


class Bench:
    """`layout` is padded, rows or flat. Losses and log-probabilities are float64, so that two ways agree to 1e-9."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch

    def model(self, seed: int = 0, *, vocabulary: int = VOCABULARY, kernel: str = "torch") -> Any:
        """A model with a head attached."""
        from memcfg_loss.chunked import ChunkedHead
        from memcfg_loss.full import FullHead
        from transformers import LlamaConfig, LlamaForCausalLM

        from memcfg.engine.forward import attach_head
        from memcfg.head.transform import HeadTransform

        self.torch.manual_seed(seed)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = LlamaConfig(vocab_size=vocabulary, initializer_range=0.2, attn_implementation="sdpa", **sizes)
        model = LlamaForCausalLM(config).double().train()
        head = FullHead() if kernel == "full" else ChunkedHead(HeadTransform(), budget=VOCABULARY * 8 * 3)
        attach_head(model, head)
        return model

    def attention(self, model: Any) -> Any:
        from memcfg_attention.hooks import MaskedAttention

        return MaskedAttention("sdpa", model.config, model.dtype)

    def rows(self, pairs: Sequence[tuple[int, int, int]] = PAIRS, seed: int = 1) -> list[dict[str, Any]]:
        """Prepared rows of two documents each."""
        generator = self.torch.Generator().manual_seed(seed)
        draw = lambda n: self.torch.randint(3, VOCABULARY, (n,), generator=generator).tolist()  # noqa: E731
        found = []
        for before, better, worse in pairs:
            prompt, sides = draw(before), [draw(better), draw(worse)]
            ids = [prompt + side for side in sides]
            labels = [[-100] * before + side for side in sides]
            found.append(
                {"input_ids": sum(ids, []), "labels": sum(labels, []), "seq_lengths": [len(i) for i in ids]}  # noqa: RUF017
            )
        return found

    def marked(self, marks: Sequence[bool], seed: int = 1) -> list[dict[str, Any]]:
        """Prepared rows of one marked document each."""
        shapes = [(3 + i % 3, 2 + i % 4, 1) for i in range(len(marks))]
        singles = []
        for row, mark in zip(self.rows(shapes, seed), marks, strict=True):
            size = row["seq_lengths"][0]
            singles.append(
                {
                    "input_ids": row["input_ids"][:size],
                    "labels": row["labels"][:size],
                    "seq_lengths": [size],
                    "label": mark,
                }
            )
        return singles

    def batch(self, documents: Any, layout: str = "padded") -> Any:
        from memcfg_padding.hooks import PaddedLayout
        from memcfg_padding_free.hooks import FlatLayout, RowsLayout

        from memcfg.engine.layout import Paper, laid

        kinds: Any = {"padded": PaddedLayout, "rows": RowsLayout, "flat": FlatLayout}
        return laid(kinds[layout](Paper(pad_id=0)), documents)

    def gradients(self, model: Any) -> dict[str, Any]:
        """Gradients by name, which are then cleared."""
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        return found

    def documents(self, row: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
        """The ids and labels of each document of a row."""
        found, at = [], 0
        for size in row["seq_lengths"]:
            found.append((row["input_ids"][at : at + size], row["labels"][at : at + size]))
            at += size
        return found

    def token_logps(self, model: Any, ids: list[int], labels: list[int]) -> Any:
        """The log-probability of each target of one document alone, from whole logits: the obvious way."""
        torch = self.torch
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].double()
        logps = torch.log_softmax(logits, -1)
        kept = [(at, label) for at, label in enumerate(labels[1:]) if label != -100]
        return torch.stack([logps[at, label] for at, label in kept]), torch.stack([logps[at] for at, _ in kept])

    def same(self, one: dict[str, Any], other: dict[str, Any], tolerance: float = 1e-9) -> None:
        assert one
        assert one.keys() == other.keys()
        for name in one:
            assert self.torch.allclose(one[name], other[name], rtol=tolerance, atol=tolerance), name

    copy = staticmethod(copy.deepcopy)
    namespace = SimpleNamespace


@pytest.fixture
def bench() -> Bench:
    return Bench()
