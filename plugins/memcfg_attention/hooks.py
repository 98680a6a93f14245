"""Implementations of the attention plugin's hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memcfg import Problem, RunError, hookimpl, hub
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_attention import FLAT
from memcfg_attention.architectures import MASKED
from memcfg_attention.masks import masks

if TYPE_CHECKING:
    from memcfg import Plan
    from memcfg.batch import Attention, Batch


@dataclass
class MaskedAttention:
    """`sdpa`, `eager` or flex. Where documents share a row, Transformers keeps them apart by itself as long as it gets position
    ids that restart and neither a 2-D mask nor a cache; `own_masks` is for models that do not look at position ids.

    One document to a row needs no mask: attention is causal, and what is padded lies to the right, where nothing looks."""

    name: str
    config: Any
    dtype: torch.dtype
    own_masks: bool = False

    def inputs(self, batch: Batch) -> dict[str, Any]:
        shared = len(batch.lengths) > len(batch.input_ids)
        if not (shared and self.own_masks):
            return {}
        # `sdpa` takes which positions are seen; the others add what they are given to the scores.
        return {"attention_mask": masks(batch, self.config, dtype=None if self.name == "sdpa" else self.dtype)}


class WithoutCudnn(AbstractContextManager[None]):
    """`sdpa` keeps off cuDNN inside; afterwards it is as it was. May be entered again and again."""

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(torch.backends.cuda.cudnn_sdp_enabled())
        torch.backends.cuda.enable_cudnn_sdp(False)

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.enable_cudnn_sdp(self._before.pop())


@hookimpl
def memcfg_attention(plan: Plan, model: torch.nn.Module) -> Attention:
    inner: Any = causal_model(model)
    option = plan["attention.implementation"]
    name = _name(option, plan.get("attention.repository"))
    if option == "kernels":
        _refuse_untrusted(plan)
        hub.reachable()
    try:
        inner.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        raise RunError(
            Problem(
                f"`{type(inner).__name__}` cannot use the attention `{option}`: {error}",
                key="attention.implementation",
                fix="attention.implementation=eager",
            )
        ) from error
    config = inner.config
    if config.get_text_config()._attn_implementation != name:
        text = f"`{type(inner).__name__}` does not offer the attention `{option}`"
        raise RunError(Problem(text, key="attention.implementation", fix="attention.implementation=eager"))
    if option in FLAT:
        from memcfg_attention.lengths import LengthsAttention

        return LengthsAttention(name)
    return MaskedAttention(name, config.get_text_config(), inner.dtype, own_masks=config.model_type in MASKED)


def _refuse_untrusted(plan: Plan) -> None:
    """Raise `RunError` for a plan, made by hand, that would run code of the hub without saying that it may."""
    if not plan.get("attention.trust_remote_code"):
        text = f"the code of `{plan.get('attention.repository')}` would be downloaded and run"
        raise RunError(Problem(text, key="attention.trust_remote_code", fix="attention.trust_remote_code=true"))


def _name(option: str, repository: str | None = None) -> str:
    """What Transformers calls an implementation; `varlen` is made known to it first. A repository of kernels it fetches
    itself, and refuses where the hub does not vouch for its owner."""
    if option == "kernels":
        return str(repository)
    if option in FLAT:
        from memcfg_attention import lengths

        lengths.register()
        return lengths.NAMES[option]
    return {"flex": "flex_attention"}.get(option, option)


@hookimpl
def memcfg_step_context(
    plan: Plan, model: torch.nn.Module, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    if plan.get("attention.cudnn") is False:
        contexts.append(WithoutCudnn())
    return contexts


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The attention that the model's configuration is set to, which is what its layers look up at every forward."""
    model: Any = causal_model(run.model)
    name = getattr(model.config.get_text_config(), "_attn_implementation", None)
    option = plan["attention.implementation"]
    effective = option if name == _name(option, plan.get("attention.repository")) else name
    found.append(
        Effective(
            "attention.implementation", effective, f"`{name}` is what the layers of `{type(model).__name__}` look up"
        )
    )
    if plan.get("attention.cudnn") is not None:
        with ExitStack() as stack:
            for context in run.contexts:
                stack.enter_context(context)
            allowed = torch.backends.cuda.cudnn_sdp_enabled()
        found.append(Effective("attention.cudnn", allowed, "torch's switch for cuDNN's attention within a step"))
    return found
