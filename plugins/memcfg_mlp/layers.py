"""Finds the feed-forward layers and the norms of a model and makes them compute piece by piece.

Each position goes through such a layer by itself, so the sequence can be cut anywhere. The pieces are computed again in
the backward pass (as in Arctic Long Sequence Training, arXiv 2506.13996). Norms matter because they compute in float32:
over a long sequence their copies of the hidden states are larger than all else that a layer has alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from memcfg import Problem, RunError
from memcfg.engine.forward import backbone_of, causal_model
from memcfg_mlp.pieces import in_pieces

TILES = "_memcfg_tiles"
NAMES = ("mlp", "feed_forward", "ffn")
"""What Transformers calls the feed-forward part of a layer."""


@dataclass
class Tiles:
    """How a layer is cut: `count` pieces, or pieces of `width` positions. `own` is the forward that an instance had
    before (None: its class's); `most` the largest number of pieces so far."""

    count: int | None
    width: int
    own: Callable[..., Any] | None
    most: int = 0

    def pieces(self, length: int) -> int:
        return min(length, self.count or -(-length // self.width))


def width_of(model: torch.nn.Module) -> int:
    """The width of the model's hidden states."""
    return int(model.config.get_text_config().hidden_size)  # type: ignore[operator, union-attr]


def feed_forward(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The feed-forward layers, one for each layer of the model. Raises `RunError` where there are none, or where one does
    more than send each position through by itself."""
    found = [getattr(layer, name) for layer in _layers(model) for name in NAMES if _dense(getattr(layer, name, None))]
    if not found:
        text = f"no feed-forward layer is found in `{type(causal_model(model)).__name__}`"
        raise RunError(Problem(text, key="mlp.mode", fix="mlp.mode=whole"))
    _prove(found[0], width_of(model))
    return found


def norms(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The norms over the last dimension, those within attention too."""
    named = (
        m for m in backbone_of(causal_model(model)).modules() if type(m).__name__.endswith(("RMSNorm", "LayerNorm"))
    )
    return [m for m in named if [p.dim() for p in m.parameters()] in ([1], [1, 1]) and not list(m.children())]


def tile_norm(norm: torch.nn.Module, count: int | None, width: int) -> None:
    """Make one norm compute in pieces, as `tile` does a layer."""
    setattr(norm, TILES, Tiles(count, width, norm.__dict__.get("forward")))
    norm.forward = MethodType(_tiled_norm, norm)


def _tiled_norm(self: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """`hidden` is [B, L, .., D]; all positions (and heads) lie in one row of pieces."""
    tiles: Tiles = getattr(self, TILES)
    own = tiles.own or MethodType(type(self).forward, self)
    pieces = tiles.pieces(hidden.shape[1] if hidden.dim() > 2 else len(hidden))
    tiles.most = max(tiles.most, pieces)
    if pieces <= 1:
        return own(hidden)  # type: ignore[no-any-return]
    return in_pieces(self, own, hidden.reshape(-1, hidden.shape[-1]), pieces).view(hidden.shape)


def tile(layer: torch.nn.Module, count: int | None, width: int) -> None:
    """Make one layer compute in `count` pieces; None makes pieces of `width` positions."""
    setattr(layer, TILES, Tiles(count, width, layer.__dict__.get("forward")))
    # A bound method, not a closure over the layer: a deep copy of the model binds to the copy.
    layer.forward = MethodType(_tiled, layer)


def _tiled(self: torch.nn.Module, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    tiles: Tiles = getattr(self, TILES)
    own = tiles.own or MethodType(type(self).forward, self)
    pieces = tiles.pieces(hidden.shape[-2])
    tiles.most = max(tiles.most, pieces)
    if pieces <= 1 or args or kwargs:
        return own(hidden, *args, **kwargs)
    return in_pieces(self, own, hidden, pieces)


def _layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    own = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    return iter(own) if own else (layer for layers in lists for layer in layers)


def _dense(module: Any) -> bool:
    """A plain feed-forward layer. One that routes positions to experts looks at all of them."""
    if not isinstance(module, torch.nn.Module):
        return False
    names = {type(m).__name__.lower() for m in module.modules()}
    return not any(word in name for name in names for word in ("expert", "moe", "router", "sparse"))


@torch.no_grad()
def _prove(layer: torch.nn.Module, width: int) -> None:
    """Hold pieces against the whole on noise. Says nothing of weights that are not there."""
    parameter = next(layer.parameters())
    if parameter.is_meta or hasattr(parameter, "_local_tensor"):
        return
    dtype = parameter.dtype if parameter.is_floating_point() else torch.get_default_dtype()
    noise = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(0)).to(parameter.device, dtype)
    training = layer.training
    layer.eval()
    try:
        whole = layer(noise)
        alike = isinstance(whole, torch.Tensor) and whole.shape == noise.shape
        parts = torch.cat([layer(noise[:, :2]), layer(noise[:, 2:])], dim=1) if alike else noise
    finally:
        layer.train(training)
    if not alike or not torch.allclose(whole.float(), parts.float(), rtol=0.02, atol=0.02 * float(whole.abs().max())):
        text = f"`{type(layer).__name__}` does not send each position through by itself"
        raise RunError(Problem(text, key="mlp.mode", fix="mlp.mode=whole"))
