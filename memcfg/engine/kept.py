"""What a checkpoint holds besides model, optimizer, schedule and random streams: everything with a state, by name.

The engine registers the place in the data and the ledger; objectives, references and rollouts that have a state of their
own are added to `Run.kept`. A state is written as JSON, or, where it holds tensors, in torch's format, of which only data
is read (`weights_only`): no code in a checkpoint is ever run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from memcfg.files import write_atomic


@runtime_checkable
class Stateful(Protocol):
    """Something that a run must continue with: plain data and tensors. Each process of a run saves its own."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


def save(kept: Mapping[str, Stateful], folder: Path, rank: int = 0) -> None:
    """Write the state of each. Raises `OSError` or `RunError` where the folder cannot be written."""
    for name, thing in kept.items():
        state, stem = thing.state_dict(), _stem(name, rank)
        text = _as_json(state)
        if text is not None:
            write_atomic(folder / f"{stem}.json", text)
        else:
            torch.save(state, folder / f"{stem}.pt")


def load(kept: Mapping[str, Stateful], folder: Path, rank: int = 0) -> list[str]:
    """Give each its state back; the names of those that the checkpoint has none for. Raises what they raise."""
    missing = []
    for name, thing in kept.items():
        stem = folder / _stem(name, rank)
        if (file := stem.with_name(f"{stem.name}.json")).is_file():
            thing.load_state_dict(json.loads(file.read_text(encoding="utf-8")))
        elif (file := stem.with_name(f"{stem.name}.pt")).is_file():
            thing.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        else:
            missing.append(name)
    return missing


def _stem(name: str, rank: int) -> str:
    return f"{name}_{rank}" if rank else name


def _as_json(state: dict[str, Any]) -> str | None:
    """The state as JSON, if nothing of it is lost by that: tensors, tuples and keys that are numbers would be."""
    try:
        text = json.dumps(state)
    except TypeError:
        return None
    return text if json.loads(text) == state else None
