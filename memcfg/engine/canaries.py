"""Small proofs on the first step's micro-batches, in seconds, before the first update.

Each looks for one silent fault that a falling loss does not show: nothing supervised, documents of one row that see each
other, a distribution that is not in force, parameters that no optimizer moves, micro-batches that do not add up, logits
that are built whole after all. A failed canary is a `RunError` that names the option. The model, its gradients and every
random stream are left as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memcfg.batch import Documents
from memcfg.engine.forward import causal_model
from memcfg.engine.isolation import isolation
from memcfg.engine.ranks import ranks_of
from memcfg.engine.subject import Subject, same_randomness, tolerance
from memcfg.engine.update import counted, entered, in_mode
from memcfg.engine.vocabulary import embedding
from memcfg.errors import Problem, RunError
from memcfg.solver.expr import show

STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("NO",),
    "ddp": ("MULTI_GPU", "MULTI_CPU"),
    "fsdp2": ("FSDP",),
    "zero2": ("DEEPSPEED",),
    "zero3": ("DEEPSPEED",),
}
"""What Accelerate calls each `distributed.strategy` once it is in force."""


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
    if not abs(apart[0] - together[0]) <= tolerance(next(subject.model.parameters()).dtype) * max(
        abs(together[0]), 1.0
    ):
        text = f"two documents have a loss of {together[0]:.6g} in one micro-batch and of {apart[0]:.6g} in two"
        raise RunError(Problem(text, key="run.accumulation"))
    return f"one micro-batch or two: the same loss over {together[1]} targets"


def logits(subject: Subject) -> str:
    """The loss never holds a tensor of tokens x vocabulary, unless its kernel is the plain one."""
    run = subject.run
    if run.loss is None or run.plan.get("loss.kernel") in (None, "full"):
        return "not looked at: the plan's loss builds whole logits"
    inner: Any = causal_model(run.model)
    weight, width = inner.get_output_embeddings().weight, embedding(inner).embedding_dim
    vocabulary = weight.shape[0]
    tokens = int(run.first[0].labels.numel())
    tokens += 2 * (tokens in (width, width + 1))  # the head's weight has width x vocabulary numbers, and is no logits
    mib = run.plan.get("loss.chunk_mib", 64)
    # a kernel that chooses for itself may take as much as the weight has, and two bytes for a logit
    room = max(1 << 30, weight.nbytes) if mib is None else mib << 20
    if subject.accelerator.num_processes > 1 or 2 * tokens * vocabulary <= room:
        return "not looked at: all logits of a micro-batch fit into a chunk"
    hidden = torch.randn(1, tokens, width, device=run.first[0].labels.device, dtype=inner.dtype)
    labels = torch.zeros(1, tokens, dtype=torch.int64, device=hidden.device)
    with same_randomness(run.device), torch.no_grad(), _Sizes() as seen:
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
    surroundings = (ranks.accumulate(subject.model, False), *run.contexts, same_randomness(run.device))
    with in_mode(subject.model, False), torch.no_grad(), entered(surroundings):
        for group in groups:
            batch = run.layout(group).to(subject.batches[0].input_ids.device)
            total += float(run.objective.loss_sum(subject.model, batch))
            count += int(run.objective.count(batch))
    return total, count


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
