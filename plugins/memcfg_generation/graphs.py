"""Completions sampled as usual, but for what the host does for each token: the model's work for one is recorded as a CUDA graph and
replayed. A small model's token costs the host far more than the GPU, as each of its hundreds of kernels is launched by Python.

Transformers' `generate` asks the model for a compiled forward where the cache is static; what it gets here is recorded instead,
which costs as much as two tokens and no compiler. A static cache has the size of the longest prompt and completion of the round,
and the graph lives as long as the cache does: one call of `generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from transformers.cache_utils import StaticLayer

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model
from memcfg_generation.sampler import TransformersGeneration

OPTION: Final = "generation.graphs"
OTHER: Final = f"{OPTION}=false"
COMPILED: Final = "get_compiled_call"
"""The method of a model that gives `generate` what it calls for each token."""

Call = Callable[[], Any]
Record = Callable[[Call], Call]


class GraphedGeneration(TransformersGeneration):
    """Samples as its parent does, with a static cache. `record` is given a call and gives one that repeats its work, on the same
    tensors, without running it first."""

    def __init__(self, *given: Any, record: Record | None = None) -> None:
        super().__init__(*given)
        self.settings["cache_implementation"] = "static"
        self.record = record or recorded
        self.replayed = 0
        """Tokens, each of all completions of a round, that were replayed."""

    compiles = True

    def whole(self, model: Any, limit: int, **inputs: torch.Tensor) -> torch.Tensor:
        """As its parent's. Raises `RunError` where a token cannot be recorded."""
        causal: Any = causal_model(model)
        with replaying(causal, self.record) as token:
            found = super().whole(model, limit, **inputs)
        self.replayed += token.replayed
        if limit > 1 and not token.calls and causal.device.type != "meta":
            raise _refused(f"`{type(causal).__name__}` is sampled from without a forward of its own for single tokens")
        return found


class Token:
    """One token's forward. The first call runs it, the second records it; that one and all others replay it."""

    def __init__(self, forward: Callable[..., Any], record: Record) -> None:
        self.forward, self.record = forward, record
        self.calls = self.replayed = 0
        self._inputs: dict[str, Any] = {}
        self._replay: Call | None = None

    def __call__(self, **inputs: Any) -> Any:
        self.calls += 1
        if self.calls == 1:  # also loads and chooses kernels, which cannot be done while recording
            refuse_moving(inputs)
            return self.forward(**inputs)
        if self._replay is None:
            self._inputs = {name: fixed(value) for name, value in inputs.items()}
            self._replay = self.record(lambda: self.forward(**self._inputs))
        else:
            refill(self._inputs, inputs)
        self.replayed += 1
        return self._replay()


@contextmanager
def replaying(causal: Any, record: Record) -> Iterator[Token]:
    """`generate` of this model calls the `Token` that is given."""
    token = Token(causal.__call__, record)
    setattr(causal, COMPILED, lambda config: token)
    try:
        yield token
    finally:
        delattr(causal, COMPILED)


def recorded(call: Call) -> Call:
    """The work of a call as a CUDA graph. What it returns lies where the next replay writes. Raises `RunError` where the call waits
    for the device, which a graph cannot."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise _refused(f"the model's work for a token cannot be recorded: {str(error).splitlines()[0]}") from error

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def refuse_moving(inputs: Mapping[str, Any]) -> None:
    """Raises `RunError` for a cache whose layers keep their place as a number, which a recorded graph would never move."""
    caches = [value for value in inputs.values() if hasattr(value, "layers")]
    kinds = {type(layer) for cache in caches for layer in cache.layers}
    if kinds != {StaticLayer}:
        names = ", ".join(sorted(f"`{kind.__name__}`" for kind in kinds - {StaticLayer})) or "none"
        raise _refused(f"a token is recorded where all layers have a plain static cache, and these do not: {names}")


def fixed(value: Any) -> Any:
    """Copies of tensors, which stay where they are; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return {name: fixed(part) for name, part in value.items()} if type(value) is dict else value


def refill(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Write new values into the copies that `fixed` made."""
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            kept[name].copy_(value)
        elif type(value) is dict:
            refill(kept[name], value)


def _refused(text: str) -> RunError:
    return RunError(Problem(text, key=OPTION, fix=OTHER))
