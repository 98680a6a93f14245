"""What a model's configuration says of its size, and a model of fewer layers than that. Those that are left out are not even
built: what a short simulation takes would otherwise be the time of making what it throws away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import torch
from transformers import PreTrainedModel

LAYERS: Final = "num_hidden_layers"
FACTOR: Final = "factor"
ORIGINAL: Final = "original_max_position_embeddings"


def depth(model: Any) -> int:
    """How many layers a model repeats."""
    return int(getattr(model.config.get_text_config(), LAYERS))


def positions(model: Any) -> int | None:
    """How many positions a model was made for, those that YaRN stretches its rotations to included; None where it has no such
    end."""
    text = model.config.get_text_config()
    stated = getattr(text, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated <= 0:
        return None
    rope = getattr(text, "rope_parameters", None) or {}
    every = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    return max([stated, *(int(part[FACTOR] * part[ORIGINAL]) for part in every if _stretched(part))])


def _stretched(rope: Any) -> bool:
    return rope.get("rope_type") == "yarn" and bool(rope.get(FACTOR) and rope.get(ORIGINAL))


@contextmanager
def short(layers: int | None) -> Iterator[None]:
    """Within this models are built with only the first `layers` of what they repeat; `None`: with all."""
    if layers is None:
        yield
        return
    plain = PreTrainedModel.__init__
    before: list[tuple[Any, int]] = []

    @wraps(plain)
    def begun(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        text = config.get_text_config()
        whole = getattr(text, LAYERS, None)
        if isinstance(whole, int) and whole > layers:
            before.append((text, whole))
            setattr(text, LAYERS, layers)
        plain(self, config, *args, **kwargs)

    PreTrainedModel.__init__ = begun  # type: ignore[method-assign]
    try:
        yield
    finally:
        PreTrainedModel.__init__ = plain  # type: ignore[method-assign]
        for text, whole in reversed(before):
            setattr(text, LAYERS, whole)


def shorten(model: Any, layers: int) -> None:
    """Keep only the first `layers` of those that a model repeats. Raises `ValueError` where they are not to be found."""
    whole = depth(model)
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    found = [m for m in lists if len(m) == whole]
    if not found and not any(len(m) == min(layers, whole) for m in lists):
        raise ValueError(f"no list of {whole} layers in `{type(model).__name__}`")
    for repeated in found:
        del repeated[layers:]
