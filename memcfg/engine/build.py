"""From a plan and its hooks to everything a run needs, in one order: data first, the model only once the data is good.

The same function builds the model on `meta` for the memory simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from memcfg.arriving import arrive
from memcfg.batch import Compared, Taught
from memcfg.engine import companion, vocabulary
from memcfg.engine.forward import attach_head
from memcfg.engine.joining import spreads
from memcfg.engine.ledger import Ledger
from memcfg.engine.loader import MicroBatches
from memcfg.errors import DataError, Problem
from memcfg.judging import Bench
from memcfg.rollouts import Renewing, Sampling

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from memcfg.batch import Attention, Batch, Grouping, Head, Layout, Objective, Reference, TokenLoss
    from memcfg.engine.kept import Stateful
    from memcfg.engine.loader import Collator
    from memcfg.engine.spread import Spread
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks
    from memcfg.rollouts import Generation


@dataclass
class Run:
    """A built run. `train` and `eval` are prepared rows (`None` where there are none; `train` may be a stream); `device`
    is `cpu`, `cuda` or `meta`.

    `ledger` accounts for the training rows, `eval_ledger` for the held-out ones. `first` holds the micro-batches of the
    first step as soon as training begins, for the canaries and for `memcfg_evidence`. `grouping` says which rows make a
    micro-batch, where that is not `run.batch_size` of them. `spread` is how several processes share the run, None for one;
    `wrapped` is the model as Accelerate prepared it, once it has."""

    plan: Plan
    hooks: Hooks
    device: str
    tokenizer: PreTrainedTokenizerBase | None
    train: Any
    eval: Any
    collator: Collator | None
    layout: Layout
    model: torch.nn.Module
    attention: Attention
    loss: TokenLoss | None
    head: Head
    objective: Objective
    optimizer: torch.optim.Optimizer
    contexts: list[AbstractContextManager[Any]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    eval_ledger: Ledger = field(default_factory=Ledger)
    first: list[Batch] = field(default_factory=list)
    grouping: Grouping | None = None
    reference: Reference | None = None
    spread: Spread | None = None
    wrapped: torch.nn.Module | None = None
    kept: dict[str, Stateful] = field(default_factory=dict)
    """What checkpoints hold besides model, optimizer, schedule and random streams, by name: whatever has a state."""
    generation: Generation | None = None
    """What samples completions, where the objective learns from those."""


NEEDED = (
    "load_tokenizer", "load_dataset", "collator", "layout", "load_model", "attention", "head", "objective", "optimizer",
)  # fmt: skip
"""The exclusive hooks that every run calls; `loss` is called where the plan sets `loss.type`, `reference` where it sets
`reference.mode`."""


def build(plan: Plan, hooks: Hooks, *, device: str | None = None, data: bool = True) -> Run:
    """Build what the plan says, on `device` (the plan's own by default). `data=False` leaves the rows out.

    Raises `DataError` for data that cannot be used, before any weight is loaded, and `PluginError` for a value that no
    plugin implements."""
    device = device or plan.device
    scored = plan.get("loss.type") is not None
    compared = plan.get("reference.mode") is not None
    spread: Spread | None = hooks.spread(plan=plan) if spreads(plan) and device != "meta" else None
    hooks.require(*NEEDED, *(["loss"] if scored else []), *(["reference"] if compared else []))
    tokenizer = hooks.load_tokenizer(plan=plan)
    ledgers = {"train": Ledger(), "eval": Ledger()}
    found = {split: _rows(plan, hooks, tokenizer, split, ledgers[split]) if data else Rows() for split in ledgers}
    rows = {split: prepared.rows for split, prepared in found.items()}
    if data and rows["eval"] is None and plan.get("run.eval_steps"):
        left = f" is left of {read}" if (read := ledgers["eval"].rows_in) else " is there"
        raise DataError(
            Problem(f"no evaluation row{left}", key="run.eval_steps", fix="leave it out: `~run.eval_steps`")
        )
    collator = hooks.collator(plan=plan, tokenizer=tokenizer) if data else None
    layout = hooks.layout(plan=plan, tokenizer=tokenizer)
    model, attention, head = _model(plan, hooks, device if spread is None else spread.load_on)
    if collator is not None:
        collator = _known(found, tokenizer, model, collator)
    objective, loss = hooks.objective(plan=plan), hooks.loss(plan=plan) if scored else None
    objective.bind(loss, attention)
    load = partial(companion.loaded, plan, hooks, device, attention)
    compared = compared and getattr(objective, "compares", True)  # a penalty of weight zero needs no second model
    known = partial(companion.alike, load, tokenizer, "reference")
    reference: Reference | None = hooks.reference(plan=plan, model=model, load=known) if compared else None
    generation = None
    if isinstance(objective, Sampling) and data:
        objective.judged_by(tokenizer, hooks.rewards(plan=plan, found=[], bench=_bench(plan, hooks, device, tokenizer)))
        generation = hooks.generate(plan=plan, model=model, tokenizer=tokenizer)
    if isinstance(objective, Taught):
        objective.learn_from(load, model, tokenizer)
    if isinstance(objective, Renewing) and objective.renews and data:
        generation = hooks.generate(plan=plan, model=model, tokenizer=tokenizer)
    if reference is not None and isinstance(objective, Compared):
        objective.refer(reference)
        for split, prepared in rows.items():
            if prepared is not None and collator is not None:
                batches = partial(_batches, collator, layout, device)
                rows[split] = reference.prepare(prepared, model, objective.score, batches)
    optimizer = hooks.optimizer(plan=plan, model=model)
    if reference is not None:
        reference.follow(model, optimizer)
    return Run(
        plan, hooks, device, tokenizer, rows["train"], rows["eval"], collator, layout, model, attention, loss, head,
        objective, optimizer, reference=reference, spread=spread, generation=generation,
        contexts=list(hooks.step_context(plan=plan, model=model, contexts=[])),
        ledger=ledgers["train"], eval_ledger=ledgers["eval"], grouping=hooks.grouping(plan=plan, grouping=None),
    )  # fmt: skip


def _bench(plan: Plan, hooks: Hooks, device: str, tokenizer: Any) -> Bench:
    """What models that judge completions are run with."""
    return Bench(
        device, tokenizer, lambda tokenizer: hooks.layout(plan=plan, tokenizer=tokenizer),
        lambda model: hooks.attention(plan=plan, model=model),
    )  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """The prepared rows of one split (None where the source has no held-out ones), and the columns that they came with."""

    rows: Any = None
    columns: tuple[str, ...] = ()


def _known(found: dict[str, Rows], tokenizer: Any, model: torch.nn.Module, collator: Collator) -> Collator:
    """The collator, which refuses ids that the model does not know where the rows are a stream that may hold some. Raises
    `DataError` for held rows that do."""
    known = vocabulary.size(model)
    for split, prepared in found.items():
        if prepared.rows is None or vocabulary.trusted(prepared.columns, tokenizer, known):
            continue
        if hasattr(prepared.rows, "__len__"):
            vocabulary.check(prepared.rows, split, known)
        else:
            collator = vocabulary.checked(collator, known)
    return collator


def _rows(plan: Plan, hooks: Hooks, tokenizer: Any, split: str, ledger: Ledger) -> Rows:
    """The prepared rows of one split."""
    raw = hooks.load_dataset(plan=plan, split=split, ledger=ledger)
    if raw is None and split == "eval":
        return Rows()
    if raw is None:
        raise DataError(Problem("the source has no training rows", key="data.source"))
    rows = hooks.prepare_dataset(plan=plan, dataset=raw, tokenizer=tokenizer, ledger=ledger, split=split)
    if not hasattr(rows, "__len__"):
        if split == "train":
            ledger.notes.append("the rows are a stream: these are counts of what was read of it")
            return Rows(rows, _columns(raw))  # what is wrong with it shows as it is read
        raise DataError(Problem("evaluation rows must all be there, and these are a stream", key="data.source"))
    if len(rows) == 0 and split == "train":
        reasons = f" ({told})" if (told := ledger.told()) else ""
        raise DataError(Problem(f"no training row is left of {ledger.rows_in}{reasons}", key="data.source"))
    ledger.check(split)
    return Rows(rows if len(rows) else None, _columns(raw))


def _columns(raw: Any) -> tuple[str, ...]:
    """The columns of rows; of a stream that does not say, those that it would be worst to miss."""
    named = getattr(raw, "column_names", None)
    return vocabulary.COLUMNS if named is None else tuple(named)


def _batches(collator: Collator, layout: Layout, device: str, rows: Any, size: int) -> Iterator[Batch]:
    return (batch.to(device) for batch in MicroBatches(rows, collator, layout, size).of(range(len(rows))))


def _model(plan: Plan, hooks: Hooks, device: str) -> tuple[torch.nn.Module, Attention, Head]:
    """The model with its attention, the techniques' patches and the head in place."""
    loaded = hooks.load_model(plan=plan, device=device)
    attention = hooks.attention(plan=plan, model=loaded)
    loaded.set_attn_implementation(attention.name)
    model = hooks.patch_model(plan=plan, model=loaded)
    arrive(loaded)  # where nobody who changes weights asked for them
    head = hooks.head(plan=plan, model=model)
    attach_head(model, head)
    return model, attention, head
