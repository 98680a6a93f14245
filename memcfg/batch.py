"""The forms that data and losses take on the way through a step, and the protocols that implementations fulfil.

Prepared rows (what `memcfg_prepare_dataset` hands on) have these columns, all lists of equal length within a row:

- `input_ids`: token ids.
- `labels`: the same ids, -100 where the token is no target. Not shifted: `labels[t]` is the target of position `t - 1`.
- `seq_lengths` (only packed rows): lengths of the documents in the row, summing to `len(input_ids)`. A row without it is
  one document.
- further columns belong to the trainer that made them.

    rows --collator--> Documents --layout--> Batch --attention.inputs--> model(**batch.inputs)

Shapes: B rows, L positions in a row, N supervised targets, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

IGNORE = -100
"""The label of a position that is no target."""


@dataclass
class Documents:
    """One micro-batch as ragged documents, before any padding.

    `input_ids` and `labels` hold one 1-D int64 tensor for each document. `rows` lists, for each row of the prepared data
    set, the indices of its documents in order: packed rows have several. `fields` are the trainer's own values: tensors or
    lists with one entry for each document (for example which pair a document belongs to)."""

    input_ids: list[torch.Tensor]
    labels: list[torch.Tensor]
    rows: list[list[int]]
    fields: dict[str, Any] = field(default_factory=dict)
    aside: Documents | None = None
    """Documents that the objective looks at and nothing is learned from. They are laid out by themselves."""

    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.input_ids]


@dataclass(frozen=True)
class Source:
    """What a micro-batch was made of: prepared `rows`, and their `numbers` (in the data set, or in this pass of a stream).
    `counted` is false where all its labels were masked."""

    rows: Sequence[Any]
    numbers: Sequence[int]
    counted: bool = True


@dataclass
class Batch:
    """One micro-batch as tensors.

    `input_ids`, `labels`, `position_ids`, `document_ids`: int64 [B, L]. `labels` is -100 at padding and at the first
    token of every document, so that shifting by one never pairs two documents. `document_ids` is the index of the
    document in `Documents` at each position, -1 at padding. `layout` is padded, rows or flat. `lengths` are the lengths
    of all documents in the order in which they lie in the rows. `fields` are the trainer's values as tensors or lists.
    `inputs` are the keyword arguments of the model's forward that do not depend on the attention implementation
    (`input_ids`, `position_ids`); `attention.inputs(batch)` gives the rest."""

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    document_ids: torch.Tensor
    layout: str
    lengths: list[int]
    fields: dict[str, Any] = field(default_factory=dict)
    aside: Batch | None = None
    source: Source | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        return {"input_ids": self.input_ids, "position_ids": self.position_ids}

    def to(self, device: Any) -> Batch:
        """The batch on a device; the copy does not block."""
        move = lambda x: x.to(device, non_blocking=True) if hasattr(x, "to") else x  # noqa: E731
        return replace(
            self,
            input_ids=move(self.input_ids),
            labels=move(self.labels),
            position_ids=move(self.position_ids),
            document_ids=move(self.document_ids),
            fields={k: move(v) for k, v in self.fields.items()},
            aside=None if self.aside is None else self.aside.to(device),
        )


class Layout(Protocol):
    """Lays ragged documents into tensors."""

    def __call__(self, documents: Documents) -> Batch: ...


class Grouping(Protocol):
    """Which rows make a micro-batch, where that is not simply `run.batch_size` of them."""

    def __call__(self, order: Sequence[int], rows: Any) -> list[Sequence[int]]:
        """The indices in `order`, which name prepared rows, in groups. The same order gives the same groups. Raises
        `DataError` for a row that fits in none."""
        ...


class Attention(Protocol):
    """An attention implementation. `name` is what Transformers calls it (`model.set_attn_implementation(name)`)."""

    name: str

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Further keyword arguments of the model's forward: masks, cumulative lengths. Never a 2-D mask over several
        documents: Transformers then stops separating them."""
        ...


class TokenLoss(Protocol):
    """A loss that is a function of the target's log-probability alone (nll, dft, focal).

    `value(logp)` and `derivative(logp)` take and give float32 tensors of any shape: the loss of each token and its
    derivative with respect to `logp`. Both are called without gradient."""

    def value(self, logp: torch.Tensor) -> torch.Tensor: ...

    def derivative(self, logp: torch.Tensor) -> torch.Tensor: ...


@runtime_checkable
class Head(Protocol):
    """The language-model head, applied to the backbone's last hidden states inside the wrapped model's own forward.

    `hidden` [B, L, H] and `labels` [B, L] (unshifted) arrive as the batch has them; the head shifts. With `shifted` the
    labels are so already, as where a sequence is spread over devices: `labels[:, t]` is what `hidden[:, t]` predicts. A
    head never keeps a tensor of tokens x vocabulary alive unless it is the plain one (`loss.kernel=full`)."""

    def loss_sum(
        self,
        model: torch.nn.Module,
        hidden: torch.Tensor,
        labels: torch.Tensor,
        loss: TokenLoss,
        *,
        shifted: bool = False,
    ) -> torch.Tensor:
        """Sum of the loss over the N supervised targets: float32 scalar with gradient (zero, with gradient, if N = 0)."""
        ...

    def logprobs(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0, *,
        shifted: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """Log-probability of each target: float32 [B, L], zero where `labels` (after the shift) is -100. Entry `t` is the
        log-probability of `labels[:, t]` given what precedes it; column 0 is zero. With gradient."""
        ...


@runtime_checkable
class Informed(Protocol):
    """A head that also gives the entropy of the distribution that each target was drawn from."""

    def distributions(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0, *,
        shifted: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """What `logprobs` gives, and entropies in nats at the same temperature: float32 [B, L] both, zero where there is no
        target, both with gradient."""
        ...


@runtime_checkable
class Distilling(Protocol):
    """A head that can also compare the model with a teacher of the same vocabulary."""

    def divergence_sum(
        self, model: torch.nn.Module, hidden: torch.Tensor, teacher: torch.nn.Module, states: torch.Tensor,
        labels: torch.Tensor, beta: float,
    ) -> torch.Tensor:  # fmt: skip
        """The generalised Jensen-Shannon divergence from the teacher, summed over the targets of `labels` (unshifted): a scalar
        with gradient for the model alone. `states` [B, L, J] are the teacher's last hidden states. `beta` lies between the
        forward KL divergence (0) and the reverse one (1)."""
        ...


HeadCall = Callable[[Head, "torch.nn.Module", "torch.Tensor"], Any]
"""What an objective asks of the head: `lambda head, model, hidden: head.loss_sum(model, hidden, labels, loss)`. It is
passed to the model as `model(**inputs, head_call=call)` and its result is what the model returns."""


class Objective(Protocol):
    """What a trainer minimises. The engine divides the sum of `loss_sum` over all micro-batches and ranks once by the
    sum of `count`."""

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """Given once at build: the token loss (trainers other than SFT get None) and the attention."""
        ...

    def count(self, batch: Batch) -> int | torch.Tensor:
        """The number that normalises the loss: supervised targets after the shift (SFT), pairs (DPO)."""
        ...

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """The loss summed over what `count` counts: a float32 scalar with gradient."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """What to log beside the loss, over the micro-batches since the last call; then it starts anew."""
        ...


Score = Callable[["torch.nn.Module", Batch], "torch.Tensor"]
"""Gives one number for each document of a batch: its summed log-probability under the model, float32 [D]."""


@runtime_checkable
class Compared(Protocol):
    """An objective that compares the model with a frozen reference. Where a plan has one, it is given at build."""

    def refer(self, reference: Reference) -> None:
        """Given once at build, after `bind`."""
        ...

    def score(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """What the reference is asked for, by the same function as the model: a `Score`."""
        ...


@runtime_checkable
class Taught(Protocol):
    """An objective that learns from another model."""

    def learn_from(self, load: Load, model: torch.nn.Module, tokenizer: Any) -> None:
        """Given once at build, after `bind`: what loads the other model, the trained one, and its tokenizer."""
        ...


Load = Callable[[str, str], tuple["torch.nn.Module", Any]]
"""Loads a frozen model and its tokenizer from a path; the second argument is the option that an error should name."""


@runtime_checkable
class Steered(Protocol):
    """An objective that changes from step to step."""

    def stepped(self) -> None:
        """Called by all processes once the gradients of a training step are there."""
        ...


@runtime_checkable
class Evaluated(Protocol):
    """An objective that has more to say of held-out rows than their loss."""

    def held_out(self) -> Mapping[str, float]:
        """What to log beside the held-out loss, over the micro-batches since the last call; then it starts anew."""
        ...


class Reference(Protocol):
    """The frozen model that a policy is compared with."""

    def scores(self, model: torch.nn.Module, batch: Batch, score: Score) -> torch.Tensor:
        """The reference's scores of the batch's documents, without gradient. `model` is the policy, as it is wrapped."""
        ...

    def prepare(self, rows: Any, model: torch.nn.Module, score: Score, batches: Batches) -> Any:
        """The rows, with what can be computed of them before training added; called once for each split at build.
        `batches(rows, n)` gives all rows as micro-batches of `n` on the model's device, in order."""
        ...

    def follow(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Called once at build, for a reference that moves with the policy."""
        ...


Batches = Callable[[Any, int], "Iterable[Batch]"]
