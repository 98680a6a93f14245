"""Sampling on tensors without storage, for the memory simulator: Transformers' own `generate`, of which most tokens are skipped.

No completion ends before its limit: nothing on such tensors says where one would, and a run has to survive that. Between two
tokens nothing changes but the length of what grows (the cache, the mask, the ids), so the first tokens, some in between and the
last ones are sampled, and the others are leapt over: what grows, grows by several tokens at once. The peak is that of the
prompts or of the last token, and both are sampled as they are. A token that was leapt over takes as long as the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticLayer
from transformers.generation.utils import GenerationMixin

from memcfg import simulated
from memcfg.engine.forward import causal_model
from memcfg.rollouts import Generation, Sample
from memcfg_generation.switches import replaced

Tensor = torch.Tensor

SAMPLED: Final = 12
"""Tokens that are sampled of a completion, beside the first two and the last two."""
CACHES: Final = ("cache", "past_key_values")
"""What `generate` calls the cache that it hands on, by version."""
CACHE: Final = "cache"


class Leaping:
    """Samples as `generation` does, whose backend is Transformers."""

    def __init__(self, generation: Any) -> None:
        self._generation = generation

    def wake(self, part: str) -> None:
        self._generation.wake(part)

    def sync(self, model: torch.nn.Module) -> None:
        self._generation.sync(model)

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        """Completions of `limit` tokens each."""
        token = next(number for number in range(len(self._generation.ends) + 1) if number not in self._generation.ends)
        leaps = Leaps(limit, -(-limit // SAMPLED) if simulated.fine() else limit)
        drawn = Drawn(token)
        with ExitStack() as stack:
            replaced(stack, torch, "multinomial", drawn.multinomial)
            replaced(stack, torch, "argmax", drawn.argmax)
            replaced(stack, torch, "cat", leaps.cat)
            replaced(stack, GenerationMixin, UPDATE, leaps.over(getattr(GenerationMixin, UPDATE)))
            model = causal_model(self._generation.model)
            stack.callback(model.register_forward_pre_hook(leaps.before, with_kwargs=True).remove)
            found: list[Sample] = self._generation.generate(prompts, seed=seed, limit=limit)
        return found

    def sleep(self) -> None:
        self._generation.sleep()

    def close(self) -> None:
        self._generation.close()


UPDATE: Final = "_update_model_kwargs_for_generation"
"""Called once for each token, between its forward and its choice, with all that grows except the ids."""


class Drawn:
    """Tokens whose values are known, and which end nothing."""

    def __init__(self, token: int) -> None:
        self.token = token
        self._argmax = torch.argmax
        self._multinomial = torch.multinomial

    def multinomial(self, probs: Tensor, num_samples: int, *args: Any, **kwargs: Any) -> Tensor:
        """One token for each row. The kernel divides by random numbers, one for each probability, which no mode sees."""
        if not probs.is_meta:
            return self._multinomial(probs, num_samples, *args, **kwargs)
        torch.empty_like(probs)
        return torch.full((len(probs), num_samples), self.token, device=probs.device)

    def argmax(self, scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not scores.is_meta:
            return self._argmax(scores, *args, **kwargs)
        return torch.full_like(self._argmax(scores, *args, **kwargs), self.token)


class Leaps:
    """Lets what grows while sampling grow by at most `stride` tokens at a time. `limit` tokens are sampled in all."""

    def __init__(self, limit: int, stride: int) -> None:
        self.limit, self.stride = limit, stride
        self.sampled = 0
        self._ids = self._cached = 0
        """Tokens by which the ids and the cache are yet to grow, beside those that are sampled."""
        self._skipped = 0
        self._since = simulated.now()
        self._cat = torch.cat

    def over(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of Transformers' own function of a token."""

        def updated(model: Any, outputs: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            self._passed()
            layers = _layers(outputs, model_kwargs)
            for layer in layers:
                for tensor in (layer.keys, layer.values):
                    simulated.named(tensor, CACHE)
            self._ids = self._cached = self._skipped = self._next(layers)
            if self._skipped:
                kwargs["num_new_tokens"] = 1 + self._skipped
            return update(model, outputs, model_kwargs, *args, **kwargs)

        return updated

    def before(self, model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Before a forward, once nothing of the one before is left: the cache grows."""
        count, self._cached = self._cached, 0
        if count:
            for layer in _layers(kwargs):
                grow(layer, count)

    def cat(self, tensors: Any, *args: Any, **kwargs: Any) -> Tensor:
        """As torch does; the ids grow by as many tokens as the rest has grown."""
        if self._ids and _ids(tensors):
            last, self._ids = tensors[1].expand(-1, 1 + self._ids), 0
            tensors = [tensors[0], last]
        return self._cat(tensors, *args, **kwargs)

    def _passed(self) -> None:
        """The tokens that were leapt over take as long as the one after them."""
        simulated.passed((simulated.now() - self._since) * self._skipped)
        self._since = simulated.now()

    def _next(self, layers: Sequence[Any]) -> int:
        """How many tokens to leap over now."""
        self.sampled += 1
        left = self.limit - self.sampled - 2  # two more follow
        more = min(self.stride - 1, left) if self.sampled > 1 and all(map(_grows, layers)) and layers else 0
        self.sampled += max(0, more)
        return max(0, more)


def grow(layer: Any, count: int) -> None:
    """Let a layer's cache hold `count` more tokens, as if they had come one by one."""
    if isinstance(layer, StaticLayer):
        layer.cumulative_length.add_(count)
        return
    if isinstance(layer, DynamicSlidingWindowLayer):
        held = layer.keys.shape[-2]
        seen, layer.cumulative_length = layer.cumulative_length, layer.cumulative_length + count
        count = min(seen + count, layer.sliding_window) - held
        if seen >= layer.sliding_window:
            return  # each token pushes one out
        window = slice(-layer.sliding_window + 1, None)
        layer.keys = _longer(layer.keys, count)[:, :, window]
        layer.values = _longer(layer.values, count)[:, :, window]
        return
    layer.keys = _longer(layer.keys, count)
    layer.values = _longer(layer.values, count)


def _longer(states: Tensor, count: int) -> Tensor:
    """States [B, H, L, D] with the last token's repeated `count` times more."""
    return torch.cat([states, states[:, :, -1:].expand(-1, -1, count, -1)], dim=-2)


def _grows(layer: Any) -> bool:
    """Whether it is known how a layer's cache grows."""
    return type(layer) in (DynamicLayer, DynamicSlidingWindowLayer, StaticLayer)


def _layers(*places: Any) -> list[Any]:
    """The layers of the cache that are in use, from the first place that names one."""
    found = (place.get(name) for place in places for name in CACHES)
    layers = next((cache.layers for cache in found if hasattr(cache, "layers")), [])
    return [layer for layer in layers if layer.is_initialized]


def _ids(tensors: Any) -> bool:
    """Whether these are the tokens so far [B, L] and the new ones [B, 1]."""
    if len(tensors) != 2 or any(t.dim() != 2 or t.dtype != torch.long for t in tensors):
        return False
    return tensors[0].is_meta and tensors[1].shape == (len(tensors[0]), 1)


def leaping(generation: Generation) -> Generation:
    """What samples in the place of `generation` in a simulation."""
    return Leaping(generation)
