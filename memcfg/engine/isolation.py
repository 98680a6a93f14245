"""The canary that looks whether documents of one row see each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from memcfg.batch import Documents
from memcfg.engine.ranks import ranks_of
from memcfg.engine.subject import Subject, same_randomness, tolerance
from memcfg.engine.update import entered, in_mode
from memcfg.engine.vocabulary import embedding
from memcfg.errors import Problem, RunError
from memcfg.solver.expr import show

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.engine.build import Run


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


def _shared_row(subject: Subject) -> Batch | None:
    """A micro-batch with two documents in a row: of the first step, or made of its first documents.

    A padded layout puts one document (or one stream, where documents may see each other) into each row: nothing to prove."""
    candidates = [b for b in subject.batches if b.layout != "padded"]
    for batch in candidates:
        if bool((batch.document_ids.amax(dim=1) > _first_document(batch.document_ids)).any()):
            return batch
    return probe(subject.run, candidates[0]) if candidates else None


def _first_document(document_ids: torch.Tensor) -> torch.Tensor:
    return document_ids.masked_fill(document_ids < 0, torch.iinfo(torch.int64).max).amin(dim=1)


def probe(run: Run, batch: Batch, length: int = 16) -> Batch:
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
    return moved / size, tolerance(clean.dtype)


def _place_in_row(document_ids: torch.Tensor) -> torch.Tensor:
    """At each position, how many documents of the row lie before it."""
    starts = document_ids[:, 1:] != document_ids[:, :-1]
    return torch.nn.functional.pad(starts.cumsum(dim=1), (1, 0))


def _hidden(subject: Subject, batch: Batch, training: bool) -> torch.Tensor:
    """The last hidden states, by the path that training (with gradients) or evaluation takes."""
    run, model, ranks = subject.run, subject.model, ranks_of(subject.accelerator)
    inputs = {**batch.inputs, **run.attention.inputs(batch)}
    surroundings = (ranks.accumulate(model, False), *run.contexts, same_randomness(run.device))
    with in_mode(model, training), torch.set_grad_enabled(training), entered(surroundings):
        hidden: torch.Tensor = model(**inputs, head_call=lambda head, model, hidden: hidden)
    return hidden.detach()
