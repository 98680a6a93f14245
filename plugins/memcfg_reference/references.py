"""The three places that a reference's log-probabilities come from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from datasets.fingerprint import Hasher

from memcfg import Problem, RunError, arrowfile
from memcfg.batch import Batch, Batches, Score
from memcfg.engine import companion
from memcfg.engine.pairs import SCORES

VERSION = 1
"""Part of the cache's fingerprint: raise it whenever what is kept changes."""


@dataclass(frozen=True)
class Sync:
    """How a reference follows: every `steps` steps it becomes `share` of the policy and the rest of itself."""

    share: float
    steps: int


@dataclass
class Live:
    """A second model, kept beside the policy."""

    model: torch.nn.Module
    sync: Sync | None = None
    mode: str = field(default="live", init=False)
    moved: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)

    @classmethod
    def of(cls, policy: torch.nn.Module, other: torch.nn.Module | None, sync: Sync | None) -> Live:
        """`other`, or else the policy as it is now."""
        return cls(other if other is not None else companion.copied(policy), sync)

    def scores(self, model: torch.nn.Module, batch: Batch, score: Score) -> torch.Tensor:
        follows = self.sync is not None  # an adapter then is what moves
        with companion.bare(self.model, adapter=follows) as reference:
            return score(reference, batch)

    def prepare(self, rows: Any, model: torch.nn.Module, score: Score, batches: Batches) -> Any:
        return rows

    def follow(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Move with the policy, if it does: after the optimizer's steps."""
        if self.sync is not None:
            optimizer.register_step_post_hook(lambda *_: self._step(model))

    def describe(self, run: Any) -> str:
        size = sum(p.numel() for p in self.model.parameters())
        return f"`{type(self.model).__name__}` of {size:,} frozen weights beside the policy"

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints: where it has moved to. One that does not move is made anew."""
        moved = {"steps": self._steps, "moved": self.moved, "weights": self.model.state_dict()}
        return moved if self.sync is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be where it was."""
        if self.sync is not None:
            self._steps, self.moved = state["steps"], state["moved"]
            self.model.load_state_dict(state["weights"])

    @torch.no_grad()
    def _step(self, policy: torch.nn.Module) -> None:
        assert self.sync is not None
        self._steps += 1
        if self._steps % self.sync.steps:
            return
        self.moved += 1
        for mine, its in zip(self.model.parameters(), policy.parameters(), strict=True):
            if its.requires_grad:  # what is frozen is the same in both, and may be packed
                mine.lerp_(its.to(mine.dtype), self.sync.share)


@dataclass
class AdapterOff:
    """The policy with its adapter switched off: the model that the adapter was put on."""

    mode: str = field(default="adapter", init=False)

    def scores(self, model: torch.nn.Module, batch: Batch, score: Score) -> torch.Tensor:
        with companion.bare(model) as reference:
            return score(reference, batch)

    def prepare(self, rows: Any, model: torch.nn.Module, score: Score, batches: Batches) -> Any:
        return rows

    def follow(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """It stays what it is."""

    def describe(self, run: Any) -> str:
        return f"`{type(run.model).__name__}` with its adapter off, no second model"


@dataclass
class Precomputed:
    """Computed once, before the first step, and kept with the rows (and, where those lie in files, in the cache folder).

    What is kept belongs to the rows, to what scores them and to the reference's weights: all of them are in its name."""

    other: torch.nn.Module | None
    size: int
    mode: str = field(default="precompute", init=False)
    known: int = field(default=0, init=False)

    def scores(self, model: torch.nn.Module, batch: Batch, score: Score) -> torch.Tensor:
        found = batch.fields.get(SCORES)
        if found is None:
            if batch.input_ids.is_meta:  # planning: how long they take to compute is no part of a step
                return torch.zeros(len(batch.lengths), device="meta")
            raise RunError(Problem("these rows have no precomputed log-probabilities", key="reference.mode"))
        scores: torch.Tensor = found
        return scores

    def prepare(self, rows: Any, model: torch.nn.Module, score: Score, batches: Batches) -> Any:
        """The rows with a column more. Of several processes on one host, one computes and the others read."""
        source = self.other if self.other is not None else model
        about = [VERSION, rows._fingerprint, _settings(score)]
        fingerprint = str(Hasher.hash([*about, weights(source)]))

        def made() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({SCORES: _lists(rows, self._scored(rows, source, score, batches))})

        schema = pa.schema([(SCORES, pa.list_(pa.float64()))])
        path = arrowfile.folder() / f"reference-{fingerprint}.arrow" if rows.cache_files else None
        with arrowfile.locked(path) if path is not None else nullcontext():
            found = arrowfile.cached(path, fingerprint=fingerprint) if path is not None else None
            if found is None:
                found = arrowfile.made(path, schema, made, fingerprint=fingerprint)
        self.known += len(rows)
        return datasets.concatenate_datasets([rows, found], axis=1)

    def _scored(self, rows: Any, source: torch.nn.Module, score: Score, batches: Batches) -> list[float]:
        scores: list[float] = []
        with companion.bare(source) as reference:
            for batch in batches(rows, self.size):
                scores += score(reference, batch).double().tolist()
        return scores

    def follow(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """It stays where it was; the model that it was computed with is no longer needed."""
        self.other = None

    def describe(self, run: Any) -> str:
        return f"known for {self.known:,} rows before the first step, no second model is kept"


def weights(model: torch.nn.Module) -> str:
    """A hash of a model's parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def _settings(score: Score) -> list[Any]:
    """What scores, and what it says its scores depend on beside the rows (`scored_by`)."""
    objective = getattr(score, "__self__", score)
    return [type(objective).__name__, getattr(objective, "scored_by", None)]


def _lists(rows: Any, scores: list[float]) -> pa.Array:
    """The scores of each row's documents."""
    counts = [len(sizes) for sizes in rows["seq_lengths"][:]]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(scores, pa.float64()))
