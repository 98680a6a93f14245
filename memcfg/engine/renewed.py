"""Optimizer steps of given rows, some of which get other completions than those given: sampled from a model as the step is made.

Which steps, and from which model, follows from the seed and the place in the data alone, and so do the samples, given the
weights: a run that is resumed makes the same steps, and no random state is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memcfg import rows as prepared
from memcfg.batch import IGNORE
from memcfg.engine.loader import MicroBatches, StepLoader
from memcfg.engine.rounds import Sampler, has_room, refuse_longer, seed_of
from memcfg.errors import Problem, RunError
from memcfg.rollouts import OWN, Renewing, Sample

if TYPE_CHECKING:
    import torch

    from memcfg.batch import Batch, Source
    from memcfg.engine.build import Run
    from memcfg.engine.rollouts import Place


def renewed_loader(run: Run, batches: MicroBatches, place: Place) -> RenewedLoader:
    """The loader of a run whose objective replaces completions. Raises `RunError` for prompts that leave no room for one."""
    objective: Any = run.objective
    if run.generation is None:
        raise ValueError("a run that samples completions needs what samples them")
    longest = longest_prompt(batches.rows)
    has_room(longest, run.model, objective.limit)
    refuse_longer(longest, run.plan)
    fits_row(longest, objective.limit, run.plan.get("truncation.max_length"))

    def around() -> Sequence[Any]:
        given = {"model": place.model(), "optimizer": place.optimizer(), "contexts": []}
        found: Sequence[Any] = run.hooks.sampling_context(plan=run.plan, **given)
        return found

    samplers = {OWN: Sampler(run.generation, place.model, around, objective.limit)}
    for name, (model, contexts) in objective.others().items():
        samplers[name] = _other(run.generation, model, contexts, objective.limit)
    about = {"accumulation": run.plan["run.accumulation"], "seed": run.plan["run.seed"]}
    return RenewedLoader(batches, objective, samplers, **about)


def _other(generation: Any, model: torch.nn.Module, contexts: Sequence[Any], limit: int) -> Sampler:
    return Sampler(generation, lambda: model, lambda: contexts, limit)


class RenewedLoader(StepLoader):
    """`samplers`: by name, what samples from which model. The objective names one for each step, or none."""

    def __init__(
        self,
        batches: MicroBatches,
        objective: Renewing,
        samplers: Mapping[str, Sampler],
        *,
        accumulation: int,
        seed: int,
    ) -> None:
        super().__init__(batches, accumulation=accumulation, seed=seed)
        self.objective, self.samplers = objective, samplers

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of one step. Where it is sampled, from the weights as they are now."""
        given = super().at(epoch, position)
        name = self.whose(epoch, position)
        return given if name is None else self.renewed(given, self.samplers[name], epoch, position)

    def __iter__(self) -> Iterator[list[Batch]]:
        steps = super().__iter__()
        while True:
            name = self.whose(self.epoch, self.position)
            step = next(steps)
            self.objective.renewed(name)
            yield step

    def whose(self, epoch: int, position: int) -> str | None:
        """The sampler of this step, the same on every process."""
        return self.objective.source(seed_of(self.seed, "whose", epoch, position) / 2**63)

    def renewed(self, given: Sequence[Batch], sampler: Sampler, epoch: int, position: int) -> list[Batch]:
        """These micro-batches with completions that are sampled now."""
        sources: list[Any] = [batch.source for batch in given]
        prompts = [[prompt_of(row) for row in source.rows] for source in sources]
        seeds = [seed_of(self.seed, epoch, position, part, self.batches.rank) for part in range(len(sources))]
        sampled = sampler(prompts, seeds)
        return [self._made(*each) for each in zip(sources, prompts, sampled, strict=True)]

    def _made(self, source: Source, prompts: Sequence[list[int]], samples: Sequence[Sample]) -> Batch:
        rows = [completed(prompt, sample) for prompt, sample in zip(prompts, samples, strict=True)]
        return self.batches.made(replace(source, rows=rows))


def fits_row(longest: int, limit: int, most: int | None) -> None:
    """Raises `RunError` where a prompt and its completion are longer than a row may be."""
    if most is not None and longest + limit > most:
        text = (
            f"a prompt of {longest:,} tokens and {limit:,} sampled ones are longer than a row may be, {most:,} tokens"
        )
        fix = f"truncation.max_length={longest + limit}"
        raise RunError(Problem(text, key="generation.max_new_tokens", fix=fix))


def prompt_of(row: Mapping[str, Any]) -> list[int]:
    """The tokens of a prepared row before its first target."""
    labels = [int(label) for label in row["labels"]]
    begin = next((place for place, label in enumerate(labels) if label != IGNORE), len(labels))
    return [int(token) for token in row["input_ids"][:begin]]


def completed(prompt: Sequence[int], sample: Sample) -> dict[str, Any]:
    """A prepared row of one document, of which the sampled tokens are targets."""
    ids = [*prompt, *sample.ids]
    return {"input_ids": ids, "labels": [IGNORE] * len(prompt) + list(sample.ids), "seq_lengths": [len(ids)]}


def longest_prompt(rows: Any) -> int:
    """In tokens, over prepared rows whose completions are their targets."""
    return int((prepared.lengths(rows) - prepared.targets(rows)).max())
