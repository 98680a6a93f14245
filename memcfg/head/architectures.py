"""Which architectures' output heads are known, and what each does to its logits.

A head that is not known is refused, not guessed: a scale or a cap that is missed trains on the wrong loss in silence.
What is known is held against the model's own logits when a run is built, because a new release of Transformers may change
a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model, model_logits
from memcfg.head.layer import PLAIN_PATH, output_head
from memcfg.head.transform import HeadTransform
from memcfg.heads import CAPPED, DIVIDED, MULTIPLIED, PLAIN, VISION
from memcfg.simulated import simulating

_READERS: tuple[tuple[dict[str, str], Callable[[float], HeadTransform]], ...] = (
    (MULTIPLIED, lambda value: HeadTransform(scale=value)),
    (DIVIDED, lambda value: HeadTransform(scale=1.0 / value)),
    (CAPPED, lambda value: HeadTransform(softcap=value)),
)


def transform_of(model: torch.nn.Module) -> HeadTransform:
    """What the model does to its logits, by its model type. Raises `RunError` for a type that is not known."""
    config: Any = causal_model(model).config
    if config.model_type in PLAIN | VISION:
        return HeadTransform()
    for table, read in _READERS:
        if config.model_type in table:
            value = getattr(config.get_text_config(), table[config.model_type], None)
            return HeadTransform() if value is None else read(float(value))
    text = f"what the output head of model type `{config.model_type}` does to its logits is not known"
    raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))


@contextmanager
def _without_dropout(module: torch.nn.Module) -> Iterator[None]:
    """An adapter on the head may drop elements: not while its product is looked at."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def prove(model: torch.nn.Module, transform: HeadTransform) -> None:
    """Hold the formula against the model's own logits of two random hidden states. Raises `RunError` where they differ.

    Says nothing of weights that are not there (on `meta`, or held by other ranks)."""
    head, module = output_head(model), causal_model(model).get_output_embeddings()  # type: ignore[operator]
    absent = head.weight.is_meta and not simulating()
    if absent or head.weight.numel() != head.out_features * head.in_features:
        return
    # of the weight: what peft puts beside tied embeddings has its features the other way round
    width = head.weight.shape[-1]
    noise = torch.randn(1, 2, width, generator=torch.Generator().manual_seed(0))
    hidden = noise.to(head.weight)
    with torch.no_grad(), _without_dropout(module):
        own = model_logits(model, hidden).float()
        mine = transform.apply_(module(hidden).float())
    if mine.is_meta:
        return  # what it takes of memory is simulated, there is nothing to compare
    if not torch.allclose(mine, own, rtol=0.02, atol=0.02 * float(own.abs().max())):
        text = f"`{type(causal_model(model)).__name__}` does more to its logits than the kernel knows ({transform.describe()})"
        raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))
