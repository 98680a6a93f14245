"""Which operations a selectively checkpointed layer keeps instead of computing them again: attention.

Attention's output is as small as the layer's input, and computing it again costs the more the longer the sequence is.

torch decides operation by operation, in a dispatch mode in Python: around a whole layer that costs the host more than short rows
have to gain. So the mode is only entered around the call of the attention function, which Transformers looks up by its name.
Layers that do not look it up there have the mode around them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from memcfg import simulated

KEPT = (
    "scaled_dot_product_flash", "scaled_dot_product_efficient", "scaled_dot_product_cudnn",
    "scaled_dot_product_fused", "flash_attn", "varlen_attn", "flash_attention",
)  # fmt: skip
"""Parts of the names of operations whose results are kept."""


class Selection:
    """Decides for each operation, and counts those that were kept. `name`: the attention function that layers look up."""

    def __init__(self, name: str | None = None) -> None:
        self.kept = 0
        self.name = name if name in ALL_ATTENTION_FUNCTIONS else None

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """What `torch.utils.checkpoint` enters around a layer's two computations."""
        if self.name is None:
            first, second = self.modes()
            return _told(first), _told(second)
        calls: list[Any] = []
        return _AroundAttention(self, self.name, calls, again=False), _AroundAttention(
            self, self.name, calls, again=True
        )

    def modes(self) -> Any:
        """The dispatch modes that keep results and give them back."""
        return create_selective_checkpoint_contexts(self._policy)

    def _policy(self, context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if not _keeps(operation):
            return CheckpointPolicy.PREFER_RECOMPUTE
        self.kept += not context.is_recompute
        return CheckpointPolicy.MUST_SAVE


class _AroundAttention(AbstractContextManager[None]):
    """While a layer is computed (`again`: for its backward pass), each call of the attention function has modes of its own around
    it: the n-th call in one computation those of the n-th in the other, which are in `calls`."""

    def __init__(self, selection: Selection, name: str, calls: list[Any], *, again: bool) -> None:
        self._selection, self._name, self._calls, self._again = selection, name, calls, again
        self._at = 0

    def __enter__(self) -> None:
        self._at = 0
        self._plain: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[self._name]
        ALL_ATTENTION_FUNCTIONS[self._name] = self._attend

    def __exit__(self, kind: Any, *_: object) -> None:
        del ALL_ATTENTION_FUNCTIONS[self._name]  # what is registered for everyone shows again
        if ALL_ATTENTION_FUNCTIONS.get(self._name) is not self._plain:
            ALL_ATTENTION_FUNCTIONS[self._name] = self._plain
        if kind is None and not self._calls and not self._again:
            self._selection.name = None  # these layers look nothing up

    def _attend(self, *args: Any, **kwargs: Any) -> Any:
        if not self._again:
            self._calls.append(self._selection.modes())
        elif self._at >= len(self._calls):
            return self._plain(*args, **kwargs)
        mode = self._calls[self._at][self._again]
        self._at += 1
        with simulated.interpreted(), mode:
            return self._plain(*args, **kwargs)


@cache
def _keeps(operation: Any) -> bool:
    """Asked of every operation of a layer, so each is looked at once."""
    name = str(operation)
    return any(kept in name for kept in KEPT) and "backward" not in name


@contextmanager
def _told(context: Any) -> Iterator[None]:
    """The context, of which a simulation knows that each operation costs the host more within it."""
    with simulated.interpreted(), context:
        yield


def context_function(selection: Selection) -> Any:
    """As an argument of the checkpoint function; a partial, so that copies of a model share it."""
    return partial(Selection.contexts, selection)
