"""Implementations of the mlp plugin's hooks."""

from __future__ import annotations

from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg_mlp.layers import TILES, feed_forward, tile, width_of


@hookimpl(consumes=("quantized", "adapter"), produces="layers")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with every feed-forward layer computed piece by piece."""
    for layer in feed_forward(model):
        tile(layer, plan["mlp.tiles"], width_of(model))
    return model


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Feed-forward layers that have run in pieces, and in how many at most."""
    tiled = [t for m in run.model.modules() if (t := getattr(m, TILES, None)) is not None]
    ran = [t for t in tiled if t.most]
    most = max((t.most for t in ran), default=0)
    mode = "tiled" if ran and len(ran) == len(tiled) else "whole"
    text = f"{len(ran)} of {len(tiled)} feed-forward layers ran in up to {most} pieces"
    return [*found, Effective("mlp.mode", mode, text)]
