"""Small proofs on the first step's micro-batches, in seconds, before the first update.

Each looks for one silent fault that a falling loss does not show: nothing supervised, documents of one row that see each
other, a distribution that is not in force, parameters that no optimizer moves, micro-batches that do not add up, logits
that are built whole after all. A failed canary is a `RunError` that names the option. The model, its gradients and every
random stream are left as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memcfg.batch import Documents
from memcfg.engine.forward import causal_model
from memcfg.engine.joining import Group
from memcfg.engine.ranks import ranks_of
from memcfg.engine.update import counted, entered
from memcfg.engine.vocabulary import embedding
from memcfg.errors import Problem, RunError
from memcfg.solver.expr import show

if TYPE_CHECKING:
    from accelerate import Accelerator

    from memcfg.batch import Batch
    from memcfg.engine.build import Run
    from memcfg.engine.trainer import EngineTrainer

TOLERANCE: Final = {torch.float32: 1e-4, torch.float64: 1e-8}
"""How far a hidden state may move, relative to the root mean square, when another document changes. It is zero wherever
rows of a matrix product do not depend on each other; a leak is of the order of one."""

LOW_PRECISION_TOLERANCE: Final = 3e-2

STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("NO",),
    "ddp": ("MULTI_GPU", "MULTI_CPU"),
    "fsdp2": ("FSDP",),
    "zero2": ("DEEPSPEED",),
    "zero3": ("DEEPSPEED",),
}
"""What Accelerate calls each `distributed.strategy` once it is in force."""


@dataclass(frozen=True)
class Subject:
    """What is looked at: the run, with the model and optimizer as the accelerator prepared them. `held`: the names of
    the parameters that the optimizer held before that."""

    run: Run
    model: torch.nn.Module
    optimizer: Any
    accelerator: Accelerator
    held: frozenset[str] = frozenset()

    @classmethod
    def of(cls, trainer: EngineTrainer) -> Subject:
        return cls(trainer.run, trainer.model_wrapped, trainer.optimizer, trainer.accelerator, trainer.held)

    @cached_property
    def batches(self) -> list[Batch]:
        """Micro-batches of the first step. With several processes those of the first one, for all: a sharded model runs
        only where each process does the same."""
        group = Group(self.accelerator.process_index, self.accelerator.num_processes)
        shared: list[Batch] = (
            group.shared([batch.to("cpu") for batch in self.run.first]) if group.size > 1 else self.run.first
        )
        return [batch.to(self.accelerator.device) for batch in shared]


def check(subject: Subject) -> dict[str, str]:
    """Run every canary; what each saw, by name. Raises `RunError` at the first that fails."""
    return {name: canary(subject) for name, canary in CANARIES.items()}


def supervised(subject: Subject) -> str:
    """The first step supervises something."""
    run = subject.run
    count = int(ranks_of(subject.accelerator).total(counted(run.objective, run.first)))
    if count == 0 and run.generation is not None:
        return "no target in the first step: every completion of it is masked"
    if count == 0:
        seen = f"{run.ledger.tokens_supervised} of {run.ledger.tokens_kept} prepared tokens are targets"
        raise RunError(Problem(f"the first step has no target: every label is masked ({seen})", key="data.source"))
    return f"{count} targets in the first step"


def strategy(subject: Subject) -> str:
    """As many processes as the plan says, under the strategy it says, on the device it says."""
    plan, accelerator = subject.run.plan, subject.accelerator
    world, asked = plan.get("world.size", 1), plan.get("distributed.strategy") or "none"
    if accelerator.num_processes != world:
        raise _differs("world.size", world, f"{accelerator.num_processes} processes")
    kind = accelerator.distributed_type.value
    if kind not in STRATEGIES.get(asked, (kind,)) or isinstance(subject.model, torch.nn.DataParallel):
        raise _differs("distributed.strategy", asked, f"`{kind}` ({type(subject.model).__name__})")
    if accelerator.device.type != plan.device:
        raise _differs("device.type", plan.device, f"`{accelerator.device.type}`")
    return f"{world} process(es), {kind}, {plan.device}"


def optimizer(subject: Subject) -> str:
    """Every parameter that requires a gradient is in the optimizer, and none twice."""
    for module in subject.model.modules():
        if callable(reshard := getattr(module, "reshard", None)):
            reshard()  # FSDP2 leaves its last shards gathered after a forward, and the optimizer holds shards
    held = [id(p) for group in subject.optimizer.param_groups for p in group["params"]]
    trainable = {id(p): name for name, p in subject.model.named_parameters() if p.requires_grad}
    missing = [name for key, name in trainable.items() if key not in set(held)]
    if len(missing) == len(trainable) and subject.held:  # flat shards took the parameters' place
        missing = [n for n, p in subject.run.model.named_parameters() if p.requires_grad and n not in subject.held]
    if not trainable:
        raise RunError(Problem("no parameter requires a gradient: there is nothing to train", key="optimizer.name"))
    if missing:
        names = ", ".join(f"`{name}`" for name in missing[:3]) + (", ..." if len(missing) > 3 else "")
        text = f"the optimizer leaves out {len(missing)} of {len(trainable)} trainable parameters: {names}"
        raise RunError(Problem(text, key="optimizer.name"))
    if len(held) != len(set(held)):
        raise RunError(Problem("the optimizer holds a parameter twice", key="optimizer.name"))
    return f"{len(trainable)} trainable parameters"


def isolation(subject: Subject) -> str:
    """Changing every other document of a row leaves the hidden states of the documents between them as they were."""
    batch = _shared_row(subject)
    if batch is None:
        return "no row holds two documents"
    for training in (True, False):
        moved, limit = _leak(subject, batch, training=training)
        if not moved <= limit:
            mode = "train" if training else "eval"
            implementation = subject.run.plan.get("attention.implementation")
            text = (
                f"documents that share a row see each other under `{show(implementation)}`: changing one moves another's "
                f"hidden states by {moved:.2g} of their size ({mode} mode, layout {batch.layout})"
            )
            raise RunError(
                Problem(text, key="attention.implementation", fix="choose another, or give each document a row")
            )
    return "documents that share a row do not see each other"


def accumulation(subject: Subject) -> str:
    """Two documents in one micro-batch have the loss and the count that they have in two."""
    documents = _two_documents(subject)
    if documents is None:
        return "not looked at: the trainer's rows hold more than tokens"
    together = _loss(subject, [documents])
    apart = _loss(subject, [_only(documents, index) for index in range(2)])
    if apart[1] != together[1]:
        text = f"two documents count {together[1]} in one micro-batch and {apart[1]} in two"
        raise RunError(Problem(text, key="run.accumulation"))
    if not abs(apart[0] - together[0]) <= _tolerance(subject.model) * max(abs(together[0]), 1.0):
        text = f"two documents have a loss of {together[0]:.6g} in one micro-batch and of {apart[0]:.6g} in two"
        raise RunError(Problem(text, key="run.accumulation"))
    return f"one micro-batch or two: the same loss over {together[1]} targets"


def logits(subject: Subject) -> str:
    """The loss never holds a tensor of tokens x vocabulary, unless its kernel is the plain one."""
    run = subject.run
    if run.loss is None or run.plan.get("loss.kernel") in (None, "full"):
        return "not looked at: the plan's loss builds whole logits"
    inner: Any = causal_model(run.model)
    vocabulary, width = inner.get_output_embeddings().weight.shape[0], embedding(inner).embedding_dim
    tokens = int(run.first[0].labels.numel())
    tokens += 2 * (tokens in (width, width + 1))  # the head's weight has width x vocabulary numbers, and is no logits
    if subject.accelerator.num_processes > 1 or 4 * tokens * vocabulary <= run.plan.get("loss.chunk_mib", 64) << 20:
        return "not looked at: all logits of a micro-batch fit into a chunk"
    hidden = torch.randn(1, tokens, width, device=run.first[0].labels.device, dtype=inner.dtype)
    labels = torch.zeros(1, tokens, dtype=torch.int64, device=hidden.device)
    with _same_randomness(run.device), torch.no_grad(), _Sizes() as seen:
        run.head.loss_sum(inner, hidden, labels, run.loss)
    if seen.sizes & {tokens * vocabulary, (tokens - 1) * vocabulary}:
        text = f"the loss held the logits of all {tokens:,} tokens x {vocabulary:,} words at once"
        raise RunError(Problem(text, key="loss.kernel"))
    return f"never {tokens:,} tokens x {vocabulary:,} words at once"


CANARIES: Final[Mapping[str, Callable[[Subject], str]]] = {
    "supervised": supervised,
    "strategy": strategy,
    "optimizer": optimizer,
    "isolation": isolation,
    "accumulation": accumulation,
    "logits": logits,
}


def held(optimizer: Any, model: torch.nn.Module) -> frozenset[str]:
    """The names of the parameters that an optimizer holds."""
    ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return frozenset(name for name, p in model.named_parameters() if id(p) in ids)


def _differs(key: str, asked: Any, found: str) -> RunError:
    return RunError(Problem(f"the plan says {show(asked)}, but what is in force is {found}", key=key))


# --------------------------------------------------------------------------------------------------- accumulation


def _two_documents(subject: Subject, length: int = 27) -> Documents | None:
    """Two short documents from the first tokens of the first step; None for a trainer with fields of its own."""
    first = subject.batches
    if not first or first[0].fields or subject.run.loss is None:
        return None
    limit = subject.run.plan.get("truncation.max_length")
    length = length if limit is None else min(length, limit + limit // 2)  # the longer one is two thirds
    tokens = first[0].input_ids.flatten()[:length].cpu()
    if len(tokens) < 5:
        return None
    parts = [part.clone() for part in tokens.split([len(tokens) - len(tokens) // 3, len(tokens) // 3])]
    return Documents(parts, [part.clone() for part in parts], [[0], [1]])


def _only(documents: Documents, index: int) -> Documents:
    return Documents([documents.input_ids[index]], [documents.labels[index]], [[0]])


def _loss(subject: Subject, groups: list[Documents]) -> tuple[float, int]:
    """The loss and the count, summed over one micro-batch for each of the groups."""
    run, ranks = subject.run, ranks_of(subject.accelerator)
    total, count = 0.0, 0
    surroundings = (ranks.accumulate(subject.model, False), *run.contexts, _same_randomness(run.device))
    with _mode(subject.model, False), torch.no_grad(), entered(surroundings):
        for group in groups:
            batch = run.layout(group).to(subject.batches[0].input_ids.device)
            total += float(run.objective.loss_sum(subject.model, batch))
            count += int(run.objective.count(batch))
    return total, count


def _tolerance(model: torch.nn.Module) -> float:
    return TOLERANCE.get(next(model.parameters()).dtype, LOW_PRECISION_TOLERANCE)


class _Sizes(TorchDispatchMode):
    """How many numbers the results of operations hold."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        several = result if isinstance(result, (tuple, list)) else (result,)
        self.sizes.update(tensor.numel() for tensor in several if isinstance(tensor, torch.Tensor))
        return result


# ------------------------------------------------------------------------------------------------------ isolation


def _shared_row(subject: Subject) -> Batch | None:
    """A micro-batch with two documents in a row: of the first step, or made of its first documents.

    A padded layout puts one document (or one stream, where documents may see each other) into each row: nothing to prove."""
    candidates = [b for b in subject.batches if b.layout != "padded"]
    for batch in candidates:
        if bool((batch.document_ids.amax(dim=1) > _first_document(batch.document_ids)).any()):
            return batch
    return _probe(subject.run, candidates[0]) if candidates else None


def _first_document(document_ids: torch.Tensor) -> torch.Tensor:
    return document_ids.masked_fill(document_ids < 0, torch.iinfo(torch.int64).max).amin(dim=1)


def _probe(run: Run, batch: Batch, length: int = 16) -> Batch:
    """Two short documents in a row, cut from the first tokens of a batch."""
    length = min(length, run.plan.get("truncation.max_length") or length)
    tokens = batch.input_ids[0, : 2 * length].cpu()
    halves = [half.clone() for half in tokens.split(-(-len(tokens) // 2))]
    return run.layout(Documents(halves, [half.clone() for half in halves], [[*range(len(halves))]])).to(
        batch.input_ids.device
    )


def _leak(subject: Subject, batch: Batch, *, training: bool) -> tuple[float, float]:
    """The largest move of a hidden state whose own document did not change, and how far it might (both relative)."""
    known: int = embedding(subject.run.model).num_embeddings
    clean = _hidden(subject, batch, training)
    moved = 0.0
    for parity in (0, 1):
        changed = (batch.document_ids >= 0) & (_place_in_row(batch.document_ids) % 2 == parity)
        tokens = torch.where(changed, (batch.input_ids + 1) % known, batch.input_ids)
        other = _hidden(subject, replace(batch, input_ids=tokens), training)
        watched = (batch.document_ids >= 0) & ~changed
        if bool(watched.any()):
            moved = max(moved, float((other - clean).abs()[watched].amax()))
    size = float(clean[batch.document_ids >= 0].float().square().mean().sqrt()) or 1.0
    return moved / size, TOLERANCE.get(clean.dtype, LOW_PRECISION_TOLERANCE)


def _place_in_row(document_ids: torch.Tensor) -> torch.Tensor:
    """At each position, how many documents of the row lie before it."""
    starts = document_ids[:, 1:] != document_ids[:, :-1]
    return torch.nn.functional.pad(starts.cumsum(dim=1), (1, 0))


def _hidden(subject: Subject, batch: Batch, training: bool) -> torch.Tensor:
    """The last hidden states, by the path that training (with gradients) or evaluation takes."""
    run, model, ranks = subject.run, subject.model, ranks_of(subject.accelerator)
    inputs = {**batch.inputs, **run.attention.inputs(batch)}
    surroundings = (ranks.accumulate(model, False), *run.contexts, _same_randomness(run.device))
    with _mode(model, training), torch.set_grad_enabled(training), entered(surroundings):
        hidden: torch.Tensor = model(**inputs, head_call=lambda head, model, hidden: hidden)
    return hidden.detach()


@contextmanager
def _mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


@contextmanager
def _same_randomness(device: str) -> Iterator[None]:
    """The same dropout each time; every generator is put back afterwards."""
    devices: Sequence[int] = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield
