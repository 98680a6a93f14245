"""The head inside the model's own forward.

`model(**inputs, head_call=f)` runs the backbone and returns `f(head, model, hidden)`; without `head_call` the model does
what it always did. The head runs inside the forward of the wrapped model, not after it, so that whatever a wrapper does
around a forward still happens around the head: DDP's reducer, FSDP2's unsharding, ZeRO-3's gathering, autocast.

The cache is always off on this path. With a cache Transformers stops separating the documents that share a row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from memcfg.errors import RunError

if TYPE_CHECKING:
    from memcfg.batch import Head, HeadCall

_HEAD, _REPLACED, _OURS = "_memcfg_head", "_memcfg_replaced_forward", "_memcfg_takes_head"
VIRTUAL = "_memcfg_virtual_tokens"
"""Attribute of a causal model: how many trained tokens an adapter puts before each row. The head does not see them."""

NEW_HEAD = "_memcfg_new_head"
"""Attribute of a causal model whose output head was made anew: an adapter must train and save it whole."""

_USUAL = ("model", "transformer", "backbone")
"""Where backbones lie in models whose `base_model_prefix` does not say it."""


def attach_head(model: torch.nn.Module, head: Head) -> None:
    """Give `model` (a causal language model, or a PEFT wrapper around one) the keyword `head_call`.

    A head that is attached already is replaced. Attach before anything else wraps the model's forward (Accelerate's
    autocast): such a wrapper then covers the head too. Raises `RunError` where the model has no backbone of its own."""
    inner = causal_model(model)
    backbone_of(inner)
    if not hasattr(inner, _HEAD):
        setattr(inner, _REPLACED, inner.__dict__.get("forward"))
        # A bound method, not a closure over the model: a deep copy of the model (a reference, say) binds to the copy.
        inner.forward = MethodType(_forward_like(inner.forward), inner)
    setattr(inner, _HEAD, head)


def detach_head(model: torch.nn.Module) -> None:
    """Undo `attach_head`. Does nothing to a model without a head."""
    inner = causal_model(model)
    if not hasattr(inner, _HEAD):
        return
    replaced = getattr(inner, _REPLACED)
    delattr(inner, _HEAD)
    if not hasattr(inner.forward, _OURS):
        return  # wrapped by something else since: what it wraps goes on working, as if there were no head
    delattr(inner, _REPLACED)
    del inner.forward
    if replaced is not None:
        inner.forward = replaced


def causal_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model whose forward ends in the head: `model` itself, or the one that PEFT or a data-parallel wrapper holds."""
    while isinstance(getattr(model, "module", None), torch.nn.Module):
        model = model.module  # type: ignore[assignment]
    unwrap = getattr(model, "get_base_model", None)
    return unwrap() if callable(unwrap) else model


def backbone_of(model: torch.nn.Module) -> torch.nn.Module:
    """The part of a causal language model that ends in the last hidden states."""
    return getattr(model, _backbone_name(model))


def _backbone_name(model: torch.nn.Module) -> str:
    for name in (getattr(model, "base_model_prefix", ""), *_USUAL):
        if name and isinstance(model._modules.get(name), torch.nn.Module):
            return str(name)
    raise RunError(f"`{type(model).__name__}` is no causal language model of Transformers: no backbone is found in it")


def model_logits(model: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """The logits [B, L, V] that `model` itself makes of `hidden` [B, L, H], with all it does to them: scale, cap, bias.

    Its own forward runs with the backbone's result handed in, so that no architecture has to be known."""
    inner = causal_model(model)
    name = _backbone_name(inner)
    backbone = inner._modules[name]
    tokens = torch.zeros(hidden.shape[:-1], dtype=torch.long, device=hidden.device)
    inner._modules[name] = _Handed(hidden, backbone)
    try:
        return _own_forward(inner)(input_ids=tokens, use_cache=False).logits
    finally:
        inner._modules[name] = backbone


class _Result(tuple):
    """What a backbone returns, when only its last hidden states are known: everything else about it is None."""

    last_hidden_state: torch.Tensor

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Handed(torch.nn.Module):
    """Stands in for a backbone whose result is known. Whatever else is asked of it, the backbone answers."""

    def __init__(self, hidden: torch.Tensor, backbone: torch.nn.Module | None) -> None:
        super().__init__()
        self._result = _Result((hidden,))
        self._result.last_hidden_state = hidden
        self.__dict__["_backbone"] = backbone  # not a submodule: it is only asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_backbone"], name)

    @property
    def decoder(self) -> _Handed:
        """Some models call the decoder that lies inside their backbone."""
        return self

    def forward(self, *_: Any, **__: Any) -> _Result:
        return self._result


def _own_forward(inner: torch.nn.Module) -> Callable[..., Any]:
    replaced = getattr(inner, _REPLACED, None)
    return replaced if replaced is not None else MethodType(type(inner).forward, inner)


def _forward_like(own: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that takes `head_call` besides what `own` takes. Its signature stays that of `own`: Transformers reads
    it to know what a model accepts."""

    def forward(self: torch.nn.Module, *args: Any, head_call: HeadCall | None = None, **kwargs: Any) -> Any:
        if head_call is None:
            return _own_forward(self)(*args, **kwargs)
        if kwargs.get("labels") is None:
            kwargs.pop("labels", None)  # PEFT hands it on, and backbones do not know it
        hidden = _last_hidden(backbone_of(self), *args, **kwargs)
        return head_call(getattr(self, _HEAD), self, hidden[:, getattr(self, VIRTUAL, 0) :])

    setattr(forward, _OURS, True)
    signature = inspect.signature(own)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    forward.__signature__ = signature.replace(parameters=[me, *signature.parameters.values()])  # type: ignore[attr-defined]
    return forward


def _last_hidden(backbone: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
    output = backbone(*args, **{**kwargs, "use_cache": False})
    hidden = getattr(output, "last_hidden_state", None)
    return output[0] if hidden is None else hidden
