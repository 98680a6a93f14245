"""Implementations of the attention plugin's hooks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memcfg import Problem, RunError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_attention.architectures import MASKED
from memcfg_attention.masks import masks

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Attention, Batch


@dataclass
class MaskedAttention:
    """`sdpa` or `eager`. Where documents share a row, Transformers keeps them apart by itself as long as it gets position
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
        return {"attention_mask": masks(batch, self.config, dtype=self.dtype if self.name == "eager" else None)}


@hookimpl
def memcfg_attention(plan: Plan, model: torch.nn.Module) -> Attention:
    inner: Any = causal_model(model)
    name = plan["attention.implementation"]
    with suppress(ValueError):
        inner.set_attn_implementation(name)
    config = inner.config
    if config.get_text_config()._attn_implementation != name:
        text = f"`{type(inner).__name__}` does not offer the attention `{name}`"
        raise RunError(Problem(text, key="attention.implementation", fix="attention.implementation=eager"))
    return MaskedAttention(name, config.get_text_config(), inner.dtype, own_masks=config.model_type in MASKED)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The attention that the model's configuration is set to, which is what its layers look up at every forward."""
    model: Any = causal_model(run.model)
    effective = getattr(model.config.get_text_config(), "_attn_implementation", None)
    found.append(
        Effective("attention.implementation", effective, f"what the layers of `{type(model).__name__}` look up")
    )
    return found
