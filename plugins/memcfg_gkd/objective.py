"""The divergence of a student from its teacher over the tokens of given completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.batch import Attention, Batch, Distilling, Load, TokenLoss
from memcfg.engine import documents
from memcfg.engine.companion import bare, same_tokens
from memcfg.engine.forward import causal_model, model_logits
from memcfg.engine.means import Means
from memcfg.head.targets import nothing, supervised
from memcfg.rollouts import OWN
from memcfg_gkd.divergence import Divergence
from memcfg_gkd.resting import Resting

Tensor = torch.Tensor
KEY = "gkd.teacher"
TEACHER = "teacher"
"""The name of the teacher where it generates."""
WORK = 4
"""Tensors like a chunk of float32 logits that are alive at once: two of logits, one of probabilities, one of gradients."""


class TaughtTokens:
    """Counts supervised targets after the shift, like supervised fine-tuning. `beta` lies between the forward KL divergence
    (0) and the reverse one (1); `budget` is how many bytes of logits may be alive at once; `rests` keeps the teacher in host
    memory between its forwards.

    `own` is the share of steps whose completions the student samples; those of the others are given, or the teacher's where
    `sequences` says so. `limit`: the longest of them, in tokens."""

    def __init__(
        self, path: str, beta: float, budget: int, *, rests: bool = False, own: float = 0.0, sequences: bool = False,
        limit: int = 128,
    ) -> None:  # fmt: skip
        self.path, self.beta, self.budget, self.rests = path, beta, budget, rests
        self.own, self.sequences, self.limit = own, sequences, limit
        self.sampled = {OWN: 0, TEACHER: 0}
        self.teacher: torch.nn.Module | None = None
        self.resting: Resting | None = None
        self._attention: Attention | None = None
        self._means = Means()

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The attention, given once; there is no token loss."""
        self._attention = attention

    def learn_from(self, load: Load, model: torch.nn.Module, tokenizer: Any) -> None:
        """Load the teacher. Raises `RunError` where its tokens are not the student's."""
        teacher, its_tokenizer = load(self.path, KEY)
        check_vocabularies(causal_model(model), causal_model(teacher), tokenizer, its_tokenizer, self.path)
        self.teacher = teacher
        if self.rests:
            self.resting = Resting(teacher, causal_model(teacher).get_output_embeddings())  # type: ignore[operator]

    @property
    def renews(self) -> bool:
        return self.own > 0 or self.sequences

    def others(self) -> Mapping[str, tuple[torch.nn.Module, Sequence[Any]]]:
        """The teacher, where it generates."""
        if not self.sequences or self.teacher is None:
            return {}
        return {TEACHER: (self.teacher, [] if self.resting is None else [self.resting])}

    def source(self, drawn: float) -> str | None:
        """The student for a share of the steps; of the others the teacher, if it generates."""
        return OWN if drawn < self.own else TEACHER if self.sequences else None

    def renewed(self, name: str | None) -> None:
        """Count whose completions a step has."""
        if name is not None:
            self.sampled[name] += 1
        one = torch.ones(())
        self._means.add(True, one, {"own_completions": one * (name == OWN)})

    def count(self, batch: Batch) -> Tensor:
        """Targets after the shift: int64 scalar."""
        return documents.learned(batch).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Sum of the divergence over the targets: float32 scalar with gradient."""
        if self.teacher is None or self._attention is None:
            raise RuntimeError("the objective must be bound and taught before it is used")
        inputs = {**batch.inputs, **self._attention.inputs(batch)}
        with self.resting or nullcontext(), bare(self.teacher) as teacher:
            states: Tensor = teacher(**inputs, head_call=lambda head, inner, hidden: hidden)
        total: Tensor = model(
            **inputs, head_call=lambda head, inner, hidden: self._divergence(head, inner, hidden, states, batch.labels)
        )
        count = self.count(batch)
        self._means.add(model.training, count, {"divergence": total})
        return total

    def metrics(self) -> Mapping[str, float]:
        """The mean divergence over the targets of training since the last call."""
        return self._means.read(training=True)

    def held_out(self) -> Mapping[str, float]:
        """The same of held-out targets."""
        return self._means.read(training=False)

    def _divergence(
        self, mine: Any, student: torch.nn.Module, hidden: Tensor, states: Tensor, labels: Tensor
    ) -> Tensor:
        teacher = causal_model(self.teacher)  # type: ignore[arg-type]
        if isinstance(mine, Distilling):
            return mine.divergence_sum(student, hidden, teacher, states, labels, self.beta)
        head: Any = student.get_output_embeddings()  # type: ignore[operator]
        targets = supervised(labels, vocabulary(student))
        if not len(targets):
            return nothing(hidden, *head.parameters())
        rows = max(1, self.budget // (WORK * vocabulary(student) * 4))
        total: Tensor = Divergence.apply(
            targets.hidden(hidden), targets.hidden(states), lambda h: model_logits(student, h[None])[0],
            lambda h: model_logits(teacher, h[None])[0], self.beta, rows,
            *(p for p in head.parameters() if p.requires_grad),
        )  # fmt: skip
        return total


def vocabulary(model: Any) -> int:
    """How many logits a model gives."""
    return int(model.config.get_text_config().vocab_size)


def check_vocabularies(student: Any, teacher: Any, mine: Any, its: Any, path: str) -> None:
    """Raises `RunError` where a token of the student is not the same token of the teacher."""
    sizes = vocabulary(student), vocabulary(teacher)
    if sizes[0] != sizes[1]:
        text = f"the teacher `{path}` has a vocabulary of {sizes[1]:,}, the student one of {sizes[0]:,}"
        raise RunError(Problem(text, key=KEY, fix="take a teacher of the same family, with the same tokenizer"))
    same_tokens(mine, its, TEACHER, path, KEY)
