"""Implementations of the mlp plugin's hooks."""

from __future__ import annotations

from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg_mlp.layers import TILES, feed_forward, norms, tile, tile_norm, width_of


@hookimpl(consumes=("quantized", "adapter"), produces="layers")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with every feed-forward layer and every norm computed piece by piece."""
    count, width = plan["mlp.tiles"], width_of(model)
    for layer in feed_forward(model):
        tile(layer, count, width)
    for norm in norms(model):
        tile_norm(norm, count, width)
    return model


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Layers that have run in pieces, and in how many at most."""
    tiled = [t for m in run.model.modules() if (t := getattr(m, TILES, None)) is not None]
    ran = [t for t in tiled if t.most]
    most = max((t.most for t in ran), default=0)
    mode = "tiled" if ran and len(ran) == len(tiled) else "whole"
    text = f"{len(ran)} of {len(tiled)} feed-forward layers and norms ran in up to {most} pieces"
    return [*found, Effective("mlp.mode", mode, text)]
