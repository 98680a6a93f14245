"""What objectives that learn from sampled completions share: judging a round, log-probabilities of completion tokens at the
temperature of sampling, under the policy, under the policy that sampled (old) and under the reference.

A trainer's own objective derives from `SampledPolicy` and says what a round's rewards become (`rows`) and what is summed
(`loss_sum`, `count`). Labels are -100 on prompts, so only positions of completions ever reach the head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memcfg.batch import Attention, Batch, Informed, Reference, TokenLoss
from memcfg.engine import documents
from memcfg.engine.dropout import rates
from memcfg.engine.evidence import Effective
from memcfg.engine.means import Means
from memcfg.errors import Problem, RunError
from memcfg.judging import Rewards, chosen
from memcfg.prompts import LOGPROBS
from memcfg.rollouts import Learned, Round, Sample

if TYPE_CHECKING:
    from memcfg.plan import Plan

Tensor = torch.Tensor

OLD, REFERENCE, SAMPLED = "old_logprobs", "reference_logprobs", "sampled_logprobs"
"""Fields of a batch, float32 [B, L]: of the policy that sampled, of the reference, and of the sampler itself."""


@dataclass(frozen=True)
class Sampled:
    """What the trainers' options have in common. `rewards`: names of reward functions, `weights` one for each or None."""

    completions: int
    limit: int
    temperature: float
    rewards: Sequence[str]
    weights: Sequence[float] | None = None
    held_out: int | None = None
    updates: int = 1
    shuffle: bool = True
    mask_truncated: bool = False


class SampledPolicy(ABC):
    """The common part of an objective that fulfils `memcfg.rollouts.Sampling`."""

    per_row = 1
    nothing = "each of them hit `generation.max_new_tokens` and is left out"

    def __init__(self, sampled: Sampled) -> None:
        self.sampled = sampled
        self.completions, self.limit = sampled.completions, sampled.limit
        self.held_out_completions = sampled.held_out or sampled.completions
        self.updates, self.shuffle = sampled.updates, sampled.shuffle
        self.rewards: Rewards | None = None
        self.tokenizer: Any = None
        self._attention: Attention | None = None
        self._reference: Reference | None = None
        self._means = Means()

    # ------------------------------------------------------------------------------------------- given at build

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The attention, given once; there is no token loss."""
        self._attention = attention

    def refer(self, reference: Reference) -> None:
        """The reference, given once where there is one."""
        self._reference = reference

    def judged_by(self, tokenizer: Any, found: Sequence[Any]) -> None:
        """The tokenizer, and the reward functions that there are. Raises `RequestError` for names that none has."""
        self.tokenizer = tokenizer
        self.rewards = chosen(found, self.sampled.rewards, self.sampled.weights, tokenizer)

    # ------------------------------------------------------------------------------------------------ a round

    def learn(self, sampled: Round) -> Learned:
        """The rows of a round, judged over all processes together."""
        values, weighed = self.values(sampled)
        numbers = sampled.gather(torch.cat([values, _facts(sampled.samples)], 1))
        everyone, facts = numbers[:, :-2], numbers[:, -2:]
        total = self.total(everyone)
        masked = [self.sampled.mask_truncated and not sample.finished for sample in sampled.samples]
        rows, figures = self.rows(sampled, total, masked)
        figures = {**weighed_figures(weighed, everyone), **described(total, sampled.group), **lengths(facts), **figures}
        return Learned(rows, figures, self._records(sampled, weighed, values, total[sampled.mine]))

    def values(self, sampled: Round) -> tuple[Tensor, list[str]]:
        """What this process's completions are worth, float64 [n, functions], and the functions' names."""
        if self.rewards is None:
            raise RuntimeError("the objective must be given its rewards before it is used")
        return self.rewards(sampled), self.rewards.names

    def total(self, values: Tensor) -> Tensor:
        """The reward of each completion: float64 [n]."""
        assert self.rewards is not None
        return self.rewards.total(values)

    @abstractmethod
    def rows(
        self, sampled: Round, total: Tensor, masked: Sequence[bool]
    ) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """This process's completed rows, and further figures. `total` [all] are the rewards of all processes' completions,
        whose groups lie together."""

    def _records(self, sampled: Round, names: Sequence[str], values: Tensor, total: Tensor) -> list[dict[str, Any]]:
        texts = self.tokenizer.batch_decode([sample.ids for sample in sampled.samples])
        return [
            {
                "prompt": about.get("prompt"), "completion": text, "tokens": len(sample.ids), "finished": sample.finished,
                "rewards": dict(zip(names, worth, strict=True)), "reward": reward,
            }
            for about, text, sample, worth, reward in zip(
                sampled.about, texts, sampled.samples, values.tolist(), total.tolist(), strict=True
            )
        ]  # fmt: skip

    def before(self, model: torch.nn.Module, batch: Batch, *, several: bool) -> None:
        """Keep the reference's log-probabilities, and the sampling policy's own where the policy will have moved."""
        if self._reference is not None:
            batch.fields[REFERENCE] = self._reference.scores(model, batch, self.score)
        if LOGPROBS in batch.fields:
            batch.fields[SAMPLED] = documents.placed(batch, batch.fields[LOGPROBS])
        if several or self.keeps_old:
            batch.fields[OLD] = self.score(model, batch)

    def settle(self, sampled: Round, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Nothing, unless what a completion is worth depends on log-probabilities."""
        return {}

    keeps_old = False
    """Whether the loss looks at the sampling policy even where it is the current one."""

    # ------------------------------------------------------------------------------------------------ scoring

    def score(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Log-probability of each completion token at the temperature of sampling: float32 [B, L], zero elsewhere."""
        if self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        labels, temperature = batch.labels, self.sampled.temperature
        found: Tensor = model(
            **batch.inputs, **self._attention.inputs(batch),
            head_call=lambda head, inner, hidden: head.logprobs(inner, hidden, labels, temperature),
        )  # fmt: skip
        return found

    def score_with_entropy(self, model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """What `score` gives, and the entropy (nats) of the distribution that each token was drawn from, likewise. Raises
        `RunError` where the head does not compute it."""
        if self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        labels, temperature = batch.labels, self.sampled.temperature

        def asked(head: Any, inner: torch.nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor]:
            if isinstance(head, Informed):
                return head.distributions(inner, hidden, labels, temperature)
            text = f"`{type(head).__name__}` computes no entropy"
            raise RunError(Problem(text, key="loss.kernel", fix="loss.kernel=torch"))

        found: tuple[Tensor, Tensor] = model(**batch.inputs, **self._attention.inputs(batch), head_call=asked)
        return found

    def metrics(self) -> Mapping[str, float]:
        """Means over what was trained on since the last call."""
        return self._means.read(training=True)

    def held_out(self) -> Mapping[str, float]:
        """The same of held-out prompts."""
        return self._means.read(training=False)

    def log_tokens(self, model: torch.nn.Module, mask: Tensor, values: Mapping[str, Tensor]) -> None:
        """Note values [B, L] by their means over the positions of `mask`."""
        sums = {name: (value.detach() * mask).sum() for name, value in values.items()}
        self._means.add(model.training, mask.sum(), sums)


# ------------------------------------------------------------------------------------------------------ functions


def spread(batch: Batch, values: Tensor) -> Tensor:
    """A number of each document [D] at each of its positions: [B, L]; zero at padding."""
    return torch.cat([values, values.new_zeros(1)])[documents.owners(batch)].view(batch.labels.shape)


def kl(policy: Tensor, reference: Tensor) -> Tensor:
    """An estimate of KL(policy || reference) from tokens that the policy sampled: exp(d) - d - 1 with d the difference
    of log-probabilities, never negative (http://joschu.net/blog/kl-approx.html, k3)."""
    difference = reference - policy
    return torch.exp(difference) - difference - 1


def weighed_figures(names: Sequence[str], values: Tensor) -> dict[str, float]:
    """Mean and deviation of each reward function."""
    found: dict[str, float] = {}
    for name, column in zip(names, values.unbind(1), strict=True):
        found |= {f"rewards/{name}/mean": float(column.mean()), f"rewards/{name}/std": deviation(column)}
    return found


def described(total: Tensor, group: int) -> dict[str, float]:
    """Mean and deviation of the reward, and the share of groups in which all completions are worth the same."""
    spreads = total.view(-1, group).std(1, correction=1) if group > 1 else torch.zeros_like(total)
    same = torch.isclose(spreads, torch.zeros_like(spreads)).double().mean()
    return {"reward": float(total.mean()), "reward_std": deviation(total), "frac_reward_zero_std": float(same)}


def lengths(facts: Tensor) -> dict[str, float]:
    """Tokens of completions [n, 2] (length, finished): all, and those that ended by themselves; the share that did not."""
    size, finished = facts[:, 0], facts[:, 1].bool()
    found = {
        "completions/mean_length": float(size.mean()), "completions/min": float(size.min()),
        "completions/max": float(size.max()), "completions/truncated": float((~finished).double().mean()),
    }  # fmt: skip
    return found | ({"completions/mean_finished_length": float(size[finished].mean())} if finished.any() else {})


def deviation(values: Tensor) -> float:
    """The sample deviation; zero of a single value."""
    return float(values.std(correction=1)) if len(values) > 1 else 0.0


def _facts(samples: Sequence[Sample]) -> Tensor:
    return torch.tensor([[len(s.ids), s.finished] for s in samples], dtype=torch.float64).view(-1, 2)


# ------------------------------------------------------------------------------------------- from a plan, and back


def sampled_of(plan: Plan, completions: int, **own: Any) -> Sampled:
    """What a trainer's options have in common with others': `own` are fields of `Sampled` that it has options for."""
    return Sampled(
        completions=completions, limit=plan["generation.max_new_tokens"], temperature=plan["generation.temperature"],
        rewards=[*plan["rewards.functions"], *plan["rewards.models"]], weights=plan["rewards.weights"], **own,
    )  # fmt: skip


def evidence(plan: Plan, run: Any, trainer: str, kind: type) -> list[Effective]:
    """The trainer from its objective, the group from the completions of the first step, dropout from the model."""
    objective = run.objective
    name = trainer if isinstance(objective, kind) else type(objective).__name__
    found = [Effective("trainer.name", name, f"the objective is {type(objective).__name__}")]
    if isinstance(objective, SampledPolicy) and f"{trainer}.num_generations" in plan:
        found.append(Effective(f"{trainer}.num_generations", objective.completions, "completions of each prompt"))
    left = rates(run.model)
    if plan[f"{trainer}.disable_dropout"]:
        text = f"{len(left)} dropout rates of the model are above zero"
        found.append(Effective(f"{trainer}.disable_dropout", not left, text))
    return found
