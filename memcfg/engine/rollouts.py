"""Optimizer steps made of completions that the model samples while it trains.

    prompts --Order--> a round's prompts, each repeated --Sampler--> Samples --objective.learn--> completed rows
            --collator, layout--> micro-batches --objective.before--> with what is kept of the model that sampled
            --> steps, which `update.gradients` trains on as on any others

`RolloutLoader` takes the place of the loader of rows: iterating it gives one step at a time, and a round is sampled when
its first step is asked for, which is after the last one's update. A round serves `Sizes.steps` steps: several, where more is
sampled at a time than a step takes or where a round is trained on more than once.

Over several processes each samples its own share of a round: completions lie in one order over all of them, the group of a
prompt together, and rewards are gathered before they are compared, so that a group may lie on two processes.

The place in the data is `state_dict()`: it names the prompts taken, the round and the steps trained on it, all plain numbers;
where a round is not over yet, its micro-batches are in it as tensors, as this process has them (`rank`), and its records.
Everything random in sampling follows from the run's seed, the round's number and the process, so no random state is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from memcfg import rows as prepared
from memcfg.batch import Source
from memcfg.engine import documents
from memcfg.engine.figures import Figures
from memcfg.engine.loader import MicroBatches, mine, parts
from memcfg.engine.memory import LargestPortion
from memcfg.engine.rounds import Order, Sampler, Sizes, has_room, refuse_longer, seed_of
from memcfg.engine.update import entered, evaluating
from memcfg.rollouts import Learned, Round

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.engine.build import Run


@dataclass(frozen=True)
class Place:
    """Where a run trains: the model and optimizer as they are wrapped now, the device, and this process among all."""

    model: Callable[[], torch.nn.Module]
    optimizer: Callable[[], Any]
    device: Any
    rank: int = 0
    world: int = 1
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda values: values


class RolloutLoader:
    """Optimizer steps without end, sampled as they are needed; `at` samples the next one early, before any update."""

    def __init__(self, run: Run, batches: MicroBatches, place: Place) -> None:
        objective: Any = run.objective
        if run.generation is None:
            raise ValueError("a run that samples completions needs what samples them")
        self.run, self.batches, self.place, self.objective = run, batches, place, objective
        self.sizes = Sizes.of(run.plan, objective.updates, place.world)
        self.seed = run.plan["run.seed"]
        self.order = Order(len(batches.rows), self.seed, shuffle=objective.shuffle)
        self.sampler = Sampler(run.generation, place.model, self._contexts, objective.limit)
        self.prompts, self.round, self.used = 0, 0, 0
        """Prompts taken by the rounds that are over; the number of the round; the steps of it that were trained on."""
        self.epoch, self.position = 0, 0
        self.figures, self.held_out_figures = Figures(), Figures()
        self.records: Sequence[Mapping[str, Any]] = ()
        """Of the completions of the step that was given last."""
        self._records: list[Mapping[str, Any]] = []
        self.say: Callable[[str], None] = lambda text: None
        self._said = False
        self._made: list[Batch] | None = None
        self._fresh: list[Learned] = []
        self.largest = LargestPortion()
        for rows in (batches.rows, run.eval):
            if rows is not None:
                fits(rows, run.model, objective.limit)
                refuse_longer(int(prepared.lengths(rows).max()), run.plan)

    @property
    def prompts_per_round(self) -> int:
        rows = self.sizes.whole * self.batches.batch_size * self.place.world
        return rows * self.objective.per_row // self.objective.completions

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of the next step, which stays the next. Raises `ValueError` for any other step."""
        if (epoch, position) != (self.epoch, self.position):
            raise ValueError("of what is sampled only the next step can be looked at")
        if self._made is None:
            self._made = self._sample()
        return self._made[self._within()]

    def _within(self, size: int = 1) -> slice:
        """Where the next step lies in its round, in parts of `size` to a micro-batch."""
        begin = self.used * self.sizes.step % self.sizes.whole
        return slice(begin * size, (begin + self.sizes.step) * size)

    def __iter__(self) -> Iterator[list[Batch]]:
        while True:
            step = self.at(self.epoch, self.position)
            for learned in self._fresh:
                self.figures.add(learned.figures)
            self._fresh = []
            self.records = self._records[self._within(self.batches.batch_size * self.objective.per_row)]
            self._advance()
            yield step

    def epochs(self) -> float:
        """How often the prompts have been sampled from so far."""
        part = self.used / self.sizes.steps
        return (self.prompts + part * self.prompts_per_round) / self.order.count

    def state_dict(self) -> dict[str, Any]:
        """The place among the prompts, and what is left of a round that is not over."""
        unfinished = self._made is not None and self.used > 0
        return {
            "sampled": True, "seed": self.seed, "rows": self.order.count, "rank": self.place.rank,
            "prompts": self.prompts, "round": self.round, "used": self.used,
            "epoch": self.epoch, "position": self.position,
            "batches": [packed(batch) for batch in self._made or ()] if unfinished else None,
            "records": self._records if unfinished else [],
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken. Raises `ValueError` where it belongs to other data, seed or process."""
        if "sampled" not in state:
            raise ValueError("the saved place in the data is that of given rows, this run samples its completions")
        for name, own in (("seed", self.seed), ("rows", self.order.count)):
            if state[name] != own:
                raise ValueError(f"the saved place in the data has {name} {state[name]}, this run {own}")
        if state["batches"] is not None and state["rank"] != self.place.rank:
            raise ValueError(f"the saved completions are those of process {state['rank']}, not of {self.place.rank}")
        self.prompts, self.round, self.used = state["prompts"], state["round"], state["used"]
        self.epoch, self.position = state["epoch"], state["position"]
        self._made = None if state["batches"] is None else [unpacked(batch) for batch in state["batches"]]
        self._records = list(state.get("records", []))

    def held_out(self, rows: Any) -> Iterator[Batch]:
        """This process's micro-batches of completions to these prompts, always sampled with the same seeds. Groups are whole
        on a process; one without a turn in the last round repeats another's, whose labels are masked."""
        times = self.objective.held_out_completions
        count = max(1, self.batches.batch_size * self.objective.per_row // times)
        indices = list(parts(range(len(rows)), count))
        for number, (chosen, counted) in enumerate(mine(indices, self.place.rank, self.place.world)):
            prompts = [rows[int(i)] for i in chosen for _ in range(times)]
            seed = seed_of(self.seed, "held out", number, self.place.rank)
            (samples,) = self.sampler([[p["input_ids"] for p in prompts]], [seed])
            sampled = replace(self._round(prompts, samples, times), training=False, gather=lambda v: v, rank=0)
            batches, learned = self._made_of(sampled, counted=counted, several=False)
            if counted:
                self.held_out_figures.add(learned.figures, weight=len(chosen))
            yield from batches

    # ------------------------------------------------------------------------------------------------- a round

    def _sample(self) -> list[Batch]:
        """The micro-batches of the round that begins here, on the CPU."""
        portions = self._portions()
        seeds = [seed_of(self.seed, self.round, part, self.place.rank) for part in range(len(portions))]
        before = self.sampler.seconds
        prompts = [[row["input_ids"] for row in portion] for portion in portions]
        self.largest.begins(prompts, self.objective.limit)
        sampled = self.sampler(prompts, seeds)
        self.largest.ends(sampled)
        rounds = [
            self._round(rows, samples, self.objective.completions)
            for rows, samples in zip(portions, sampled, strict=True)
        ]
        spent = {"sampling_seconds": self.sampler.seconds - before}
        found = [self._made_of(each, several=self.sizes.steps > 1) for each in rounds]
        self._fresh = [replace(learned, figures={**learned.figures, **spent}) for _, learned in found]
        self._records = [record for learned in self._fresh for record in learned.records]
        made = [batch for batches, _ in found for batch in batches]
        if not self._said and not any(bool(documents.learned(batch).any()) for batch in made):
            self._said = True
            self.say(f"nothing can be learned from the completions of step {self.round + 1}: {self.objective.nothing}")
        return made

    def _made_of(self, sampled: Round, *, counted: bool = True, several: bool) -> tuple[list[Batch], Learned]:
        """A round's micro-batches on the CPU, with what is kept of the model as it is now."""
        learned = self.objective.learn(sampled)
        groups = parts(learned.rows, self.batches.batch_size)
        made = (self.batches.made(Source(group, (), counted)) for group in groups)
        # what is kept of the model would be lost to halves of the rows: no source, so nobody takes them apart
        batches = [self._scored(replace(batch, source=None), several=several) for batch in made]
        settled = self.objective.settle(sampled, batches)
        return batches, replace(learned, figures={**learned.figures, **settled})

    def _portions(self) -> list[list[Any]]:
        """This process's prompts, each as often as it is completed, in portions that are sampled at a time."""
        size = self.sizes.sampled * self.batches.batch_size * self.objective.per_row
        first = self.place.rank * size
        found = []
        for part in range(self.sizes.whole // self.sizes.sampled):
            begin = self.prompts * self.objective.completions + part * size * self.place.world + first
            places = (slot // self.objective.completions for slot in range(begin, begin + size))
            found.append([self.batches.rows[self.order[place]] for place in places])
        return found

    def _round(self, rows: Sequence[Any], samples: Sequence[Any], group: int) -> Round:
        return Round(
            [row["input_ids"] for row in rows], [json.loads(row["about"]) for row in rows], samples, group,
            gather=self.place.gather, rank=self.place.rank,
        )  # fmt: skip

    @torch.no_grad()
    def _scored(self, batch: Batch, *, several: bool) -> Batch:
        """The batch with what the objective keeps of the model as it is now."""
        model = self.place.model()
        placed = batch.to(self.place.device)
        with evaluating(model), entered(self.run.contexts):
            self.objective.before(model, placed, several=several)
        kept = {name: value for name, value in placed.fields.items() if name not in batch.fields}
        batch.fields |= {name: value.cpu() for name, value in kept.items()}
        return batch

    def _advance(self) -> None:
        self.used += 1
        self.position += 1
        if self.used == self.sizes.steps:
            self.prompts, self.round, self.used = self.prompts + self.prompts_per_round, self.round + 1, 0
            self._made = None
        epoch = self.prompts // self.order.count
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def _contexts(self) -> Sequence[Any]:
        given = {"model": self.place.model(), "optimizer": self.place.optimizer(), "contexts": []}
        found: Sequence[Any] = self.run.hooks.sampling_context(plan=self.run.plan, **given)
        return found


def fits(rows: Any, model: torch.nn.Module, limit: int) -> None:
    """Raises `RunError` where the longest prompt and its completion need more positions than the model has."""
    has_room(int(prepared.lengths(rows).max()), model, limit)


def packed(batch: Batch) -> dict[str, Any]:
    """A batch as plain data and tensors."""
    return {**{name: getattr(batch, name) for name in PARTS}, "fields": dict(batch.fields)}


def unpacked(state: Mapping[str, Any]) -> Batch:
    """The batch that `packed` was given."""
    from memcfg.batch import Batch

    return Batch(**{name: state[name] for name in PARTS}, fields=dict(state["fields"]))


PARTS = ("input_ids", "labels", "position_ids", "document_ids", "layout", "lengths")
