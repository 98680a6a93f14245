"""A ZeRO-3 model with all its weights in place while it samples, by DeepSpeed's own means."""

from __future__ import annotations

from typing import Any

import torch

GATHERED = "_memcfg_gathered"
"""Attribute of a DeepSpeed engine: its `Gathered`."""


class Gathered:
    """A context around each round of sampling. `rounds` counts them; `whole` says whether every weight was there each time."""

    def __init__(self, engine: torch.nn.Module) -> None:
        self.engine = engine
        self.rounds, self.whole = 0, True
        self._entered: Any = None

    @classmethod
    def of(cls, engine: Any) -> Gathered:
        """The one of this engine."""
        found = engine.__dict__.get(GATHERED)
        if found is None:
            found = engine.__dict__[GATHERED] = cls(engine)
        return found  # type: ignore[no-any-return]

    def __enter__(self) -> None:
        from deepspeed.runtime.zero import unwrap_model_for_generation

        self._entered = unwrap_model_for_generation(self.engine)
        self._entered.__enter__()
        self.rounds += 1
        self.whole &= all(p.numel() == getattr(p, "ds_numel", p.numel()) for p in self.engine.parameters())

    def __exit__(self, *_: object) -> None:
        # DeepSpeed's context puts its hooks back only where it is told of no error, and the error goes on by itself
        entered, self._entered = self._entered, None
        entered.__exit__(None, None, None)
