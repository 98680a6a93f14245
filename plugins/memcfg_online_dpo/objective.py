"""Preference loss on pairs that the policy sampled and a reward or a judge told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from memcfg import Problem, RequestError, prompts
from memcfg.batch import Batch
from memcfg.engine import documents
from memcfg.engine.policy import REFERENCE, Sampled, SampledPolicy
from memcfg.judging import JUDGE_OPTION, Judge, by_name, preferred
from memcfg.rollouts import Round

Tensor = torch.Tensor


@dataclass(frozen=True)
class Settings:
    """What the objective reads of the plan. `judge`: the name of a pairwise judge that stands in for rewards; `penalty`: what
    a completion that does not end loses of its reward."""

    loss: str = "sigmoid"
    beta: float = 0.1
    judge: str | None = None
    penalty: float | None = None


class SampledPairs(SampledPolicy):
    """Two completions of each prompt: documents 2i and 2i + 1 of a batch are the better and the worse one of pair i.

    A pair of equal worth tells nothing: its labels are masked, so that it counts nothing."""

    per_row = 2
    nothing = "both completions of every prompt are worth the same"

    def __init__(self, sampled: Sampled, settings: Settings) -> None:
        super().__init__(sampled)
        self.settings = settings
        self.judge: Judge | None = None

    def judged_by(self, tokenizer: Any, found: Sequence[Any]) -> None:
        """The judge where one is named, else the reward functions. Raises `RequestError` for names that none has."""
        if self.settings.judge is None:
            super().judged_by(tokenizer, found)
            return
        judges = by_name(found, Judge)
        if self.settings.judge not in judges:
            names = ", ".join(f"`{name}`" for name in judges)
            text = f"there is no judge `{self.settings.judge}`: {f'there are {names}' if names else 'no plugin brings one'}"
            raise RequestError(Problem(text, key=JUDGE_OPTION, fix=f"{JUDGE_OPTION}=null  # the rewards judge"))
        self.tokenizer, self.judge = tokenizer, judges[self.settings.judge]

    def values(self, sampled: Round) -> tuple[Tensor, list[str]]:
        """Rewards; or 1 for the completion that the judge prefers and 0 for the other. One that does not end loses the
        penalty, as a column of its own."""
        if self.judge is None:
            values, names = super().values(sampled)
        else:
            better = torch.tensor(preferred(self.judge, sampled, self.tokenizer))
            values, names = torch.stack([1 - better, better], 1).double().view(-1, 1), [self.judge.name]
        if self.settings.penalty is None:
            return values, names
        lost = torch.tensor([[0.0 if s.finished else -self.settings.penalty] for s in sampled.samples])
        return torch.cat([values, lost.double()], 1), [*names, "missing_eos"]

    def total(self, values: Tensor) -> Tensor:
        """Weighted rewards, less the penalty."""
        own = values if self.settings.penalty is None else values[:, :-1]
        worth = own[:, 0] if self.judge is not None else super().total(own)
        return worth if self.settings.penalty is None else worth + values[:, -1]

    def rows(
        self, sampled: Round, total: Tensor, masked: Sequence[bool]
    ) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """One row for each pair, its better completion first."""
        worth = total[sampled.mine].view(-1, 2).tolist()
        rows = []
        for at, (one, other) in enumerate(worth):
            first = 2 * at + (other > one)
            pair = [sampled.samples[first], sampled.samples[4 * at + 1 - first]]
            rows.append(prompts.completed(sampled.prompts[2 * at], pair, masked=[one == other] * 2))
        whole = total.view(-1, 2)
        gap = (whole[:, 0] - whole[:, 1]).abs()
        return rows, {"rewards/gap": float(gap.mean()), "ties": float((gap == 0).double().mean())}

    def count(self, batch: Batch) -> Tensor:
        """Pairs that are told apart: int64 scalar."""
        return self._counted(batch).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The loss summed over pairs: float32 scalar with gradient."""
        logp = self.score(model, batch)
        ratio = documents.summed(batch, logp) - documents.summed(batch, batch.fields[REFERENCE].to(logp))
        chosen, rejected = ratio.view(-1, 2).unbind(1)
        beta, margin, counted = self.settings.beta, chosen - rejected, self._counted(batch)
        each = -logsigmoid(beta * margin) if self.settings.loss == "sigmoid" else (margin - 1 / (2 * beta)).square()
        self.log_tokens(
            model, documents.learned(batch), {"entropy": -logp, "kl": logp - batch.fields[REFERENCE].to(logp)}
        )
        values = {
            "rewards/chosen": beta * chosen, "rewards/rejected": beta * rejected, "rewards/margins": beta * margin,
            "rewards/accuracies": 0.5 * (1 + torch.sign(margin)),
        }  # fmt: skip
        self._means.add(model.training, counted.sum(), {name: (v * counted).sum() for name, v in values.items()})
        return torch.where(counted, each, torch.zeros_like(each)).sum()

    def _counted(self, batch: Batch) -> Tensor:
        return documents.targets(batch).view(-1, 2).amin(1) > 0
