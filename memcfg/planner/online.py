"""Rounds of sampling in a simulated run: the engine's own `RolloutLoader` over prompts that nobody wrote.

A round is as large as the plan allows: all its prompts are as long as a prompt may be (every other one a token shorter, as
prompts differ and are padded), and no completion ends before its limit. Rewards are numbers, made on the host: what they are
does not matter, only that the completions of a group differ in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import datasets
import torch

from memcfg.batch import IGNORE
from memcfg.engine.forward import causal_model
from memcfg.engine.loader import MicroBatches
from memcfg.engine.renewed import renewed_loader
from memcfg.engine.rollouts import Place, RolloutLoader
from memcfg.engine.rounds import LONGEST, Order, Sizes
from memcfg.errors import Problem, RequestError
from memcfg.judging import JUDGE_OPTION, OPTION, Judge, Reward
from memcfg.planner.batches import Lengths, full_rows, micro_batches
from memcfg.planner.values import tensors
from memcfg.rollouts import Renewing, Sample, Sampling
from memcfg.simulated import GENERATION, RANK_VIEW, now, passed

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.engine.build import Run
    from memcfg.planner.tracker import Tracker

PROMPT: Final = 512
"""Tokens of a prompt where nothing says how long one may be."""
ALIKE: Final = 2
"""Micro-batches of a round that are scored or sampled; the others are like them."""


def sampled(
    run: Run, tracker: Tracker, stand_ins: dict[str, Any], lengths: Lengths | None
) -> Rounds | Renewals | None:  # fmt: skip
    """The steps of a run that was built without data and samples, which is given what samples and what judges; None for one
    that does not sample.

    Raises `RequestError` for a backend that does not say how its sampling is simulated, and for shards."""
    objective: Any = run.objective
    renews = isinstance(objective, Renewing) and objective.renews
    if not renews and not isinstance(objective, Sampling):
        return None
    view = stand_ins.get(RANK_VIEW)
    if view is not None and view.units is not None:
        text = "how shards are gathered while completions are sampled is not simulated"
        raise RequestError(Problem(text, key="distributed.strategy", fix="predict `distributed.strategy=ddp` instead"))
    generation(run, stand_ins)
    if renews:
        return Renewals(run, tracker, stand_ins, lengths, objective.limit)
    objective.judged_by(run.tokenizer, _judging(run.plan))
    return Rounds(run, tracker, lengths)


def generation(run: Run, stand_ins: dict[str, Any]) -> None:
    """Give the run what samples in a simulation."""
    plan, simulated = run.plan, stand_ins.get(GENERATION)
    if simulated is None:
        text = f"what `{plan['generation.backend']}` does to sample is not simulated"
        raise RequestError(Problem(text, key="generation.backend", fix="generation.backend=transformers"))
    run.generation = simulated(run.hooks.generate(plan=plan, model=run.model, tokenizer=run.tokenizer))


def _judging(plan: Any) -> list[Any]:
    """Rewards and a judge by the names that the plan has."""
    judge = plan.get(JUDGE_OPTION)
    found: list[Any] = [Reward(name, _numbered) for name in dict.fromkeys(plan[OPTION])]
    return found if judge is None else [*found, Judge(judge, lambda prompts: [0] * len(prompts))]


def _numbered(completion_ids: Sequence[Any]) -> list[float]:
    return [float(number) for number in range(len(completion_ids))]


class Rounds(RolloutLoader):
    """Steps of a run that was built without data. `lengths`: prompt and completion of each of the completions that are sampled
    at a time, in their order; by default as long as they may be."""

    def __init__(self, run: Run, tracker: Tracker, lengths: Lengths | None = None) -> None:
        plan, world = run.plan, run.plan.get("world.size") or 1
        objective: Any = run.objective
        prompts, self.ends = expected(run) if lengths is None else ([p for p, _ in lengths], [c for _, c in lengths])
        collator = run.hooks.collator(plan=plan, tokenizer=run.tokenizer)
        rows = _rows(prompts[:: objective.completions])
        batches = MicroBatches(rows, collator, run.layout, plan["run.batch_size"], world=world)
        super().__init__(run, batches, _place(run, world))
        self.order = Order(len(rows), self.seed, shuffle=False)
        self.tracker, self.number = tracker, 0
        self.step: list[Batch] = []
        self.steps = self.sizes.steps
        self.assumed = () if lengths is not None else told(run)
        self._scores, self._took = 0, 0.0
        self._like: dict[str, torch.Tensor] = {}

    def fresh(self, number: int) -> list[Batch]:
        """The micro-batches of step `number`, whose round is sampled now; the largest come first."""
        self.number, self._made, self._scores = number, None, 0
        self.tracker.enter(number, "generation")
        found = self.at(self.epoch, self.position)
        self.step = sorted(found, key=lambda batch: -batch.input_ids.numel())
        return self.step

    def _round(self, rows: Sequence[Any], samples: Sequence[Sample], group: int) -> Any:
        """Completions end where they are said to."""
        self._name_states()
        ended = [Sample(s.ids[:end], end < len(s.ids)) for s, end in zip(samples, self.ends, strict=True)]
        return super()._round(rows, ended, group)

    def _scored(self, batch: Batch, *, several: bool) -> Batch:
        """The first ones are scored, the others get what has the same shape, in the same time."""
        self.tracker.enter(self.number, "scoring")
        self._scores += 1
        if self._scores <= ALIKE:
            began, own = now(), set(batch.fields)
            found = super()._scored(batch, several=several)
            self._like = {k: v for k, v in found.fields.items() if k not in own}
            self._took = now() - began
            return found
        passed(self._took)
        batch.fields |= {name: value.new_zeros(batch.labels.shape) for name, value in self._like.items()}
        return batch

    def _name_states(self) -> None:
        """What was laid aside while sampling was born again."""
        for parameter in self.run.model.parameters():
            if parameter.grad is not None:
                self.tracker.name(parameter.grad, "gradients")
            state = self.run.optimizer.state.get(parameter, {})
            for tensor in tensors(list(state.values()) if isinstance(state, dict) else []):
                self.tracker.name(tensor, "optimizer")


class Renewals:
    """Steps of given rows, whose completions are sampled anew: by each model that may do so, one after the other. The update is
    that of the longer ones. `lengths`: the documents of each row, by default rows as long as they may be."""

    steps = 1

    def __init__(
        self, run: Run, tracker: Tracker, stand_ins: dict[str, Any], lengths: Lengths | None, limit: int
    ) -> None:
        plan = run.plan
        rows = full_rows(plan) if lengths is None else lengths
        self.given = micro_batches(plan, run.hooks, run.tokenizer, run.layout, stand_ins, rows)
        prompts = [max(1, sum(row) - limit) for row in rows]
        self.assumed: tuple[str, ...] = ()
        if lengths is None:
            longest = min(plan.get(LONGEST) or max(prompts), max(prompts))
            prompts = [max(1, longest - n % 2) for n in range(len(rows))]
            self.assumed = _renewed_told(plan, longest, limit, len(rows))
        collator = run.hooks.collator(plan=plan, tokenizer=run.tokenizer)
        batches = MicroBatches(_begun(prompts), collator, run.layout, plan["run.batch_size"])
        self.loader = renewed_loader(run, batches, _place(run, 1))
        self.tracker, self.step = tracker, self.given

    def fresh(self, number: int) -> list[Batch]:
        """The micro-batches of step `number`, whose completions are sampled now."""
        self.tracker.enter(number, "generation")
        given = next(self.loader.batches.of(range(len(self.loader.batches.rows))))
        found = self.given if self.loader.objective.source(ALMOST_ONE) is None else []
        for name in dict.fromkeys(map(self.loader.objective.source, (0.0, ALMOST_ONE))):
            if name is not None:
                sampled = self._sampled(given, name)
                found = max(found, sampled, key=lambda step: max((b.input_ids.numel() for b in step), default=0))
        self.step = found
        return found

    def _sampled(self, given: Batch, name: str) -> list[Batch]:
        """As many micro-batches as a step has; those beyond the second are not sampled, in the same time."""
        count = len(self.given)
        began, taken = now(), min(count, ALIKE)
        sampled = self.loader.renewed([given] * taken, self.loader.samplers[name], 0, 0)
        passed((now() - began) / taken * (count - taken))
        return sampled + sampled[-1:] * (count - taken)


ALMOST_ONE: Final = 1 - 1e-9


def _renewed_told(plan: Any, longest: int, limit: int, count: int) -> tuple[str, ...]:
    why = f"`{LONGEST}`" if plan.get(LONGEST) == longest else "`truncation.max_length` less the completion"
    return (
        f"a step whose completions are sampled: {count} at a time, none of which ends before {limit} tokens "
        f"(`generation.max_new_tokens`), of prompts of {longest} tokens ({why})",
    )


def _begun(prompts: Sequence[int]) -> datasets.Dataset:
    """Prepared rows that begin with prompts of these lengths, and one token to be sampled anew."""
    rows = [{"input_ids": [1] * (n + 1), "labels": [IGNORE] * n + [1], "seq_lengths": [n + 1]} for n in prompts]
    return datasets.Dataset.from_list(rows, features=datasets.Features(dict.fromkeys(rows[0], TOKENS)))


TOKENS: Final = datasets.List(datasets.Value("int32"))


def _place(run: Run, world: int) -> Place:
    return Place(
        lambda: run.model, lambda: run.optimizer, run.device, 0, world, lambda values: torch.cat([values] * world)
    )


def expected(run: Run) -> tuple[list[int], list[int]]:
    """Prompt and completion of each completion that is sampled at a time, as long as they may be."""
    objective: Any = run.objective
    sizes = Sizes.of(run.plan, objective.updates, run.plan.get("world.size") or 1)
    count = sizes.sampled * run.plan["run.batch_size"] * objective.per_row
    longest = longest_prompt(run.plan, run.model, objective.limit)[0]
    prompts = [max(1, longest - (n // objective.completions) % 2) for n in range(count)]
    return prompts, [objective.limit] * count


def told(run: Run) -> tuple[str, ...]:
    """What the sizes of a round are, and what says so."""
    objective: Any = run.objective
    longest, why = longest_prompt(run.plan, run.model, objective.limit)
    count = len(expected(run)[0])
    return (
        f"{count} completions sampled at a time, none of which ends before {objective.limit} tokens "
        f"(`generation.max_new_tokens`), of prompts of {longest} tokens ({why})",
    )


def longest_prompt(plan: Any, model: Any, limit: int) -> tuple[int, str]:
    """The longest prompt in tokens, and what says so, as a clause."""
    stated, whole = plan.get(LONGEST), plan.get("truncation.max_length")
    if stated is not None:
        return stated, f"`{LONGEST}`"
    if whole is not None:
        return max(1, whole - limit), f"`truncation.max_length={whole}` less the completion"
    positions = getattr(causal_model(model).config.get_text_config(), "max_position_embeddings", None)  # type: ignore[union-attr, operator]
    room = positions - limit if isinstance(positions, int) else PROMPT
    return max(1, min(PROMPT, room)), f"assumed, as nothing bounds it: `{LONGEST}=N` does"


def _rows(lengths: Sequence[int]) -> datasets.Dataset:
    """Prepared prompts of these lengths."""
    return datasets.Dataset.from_dict({"input_ids": [[1] * n for n in lengths], "about": ["{}"] * len(lengths)})
