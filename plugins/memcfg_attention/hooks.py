"""Implementations of the attention plugin's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_attention.architectures import MASKED, READS_PADDING
from memcfg_attention.masks import masks

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Attention, Batch


@dataclass
class MaskedAttention:
    """`sdpa` or `eager`. Where documents share a row, Transformers keeps them apart by itself as long as it gets position
    ids that restart and neither a 2-D mask nor a cache; `own_masks` is for models that do not look at position ids."""

    name: str
    config: Any
    dtype: torch.dtype
    own_masks: bool = False
    reads_padding: bool = False

    def inputs(self, batch: Batch) -> dict[str, Any]:
        shared = len(batch.lengths) > len(batch.input_ids)
        if shared:
            return {"attention_mask": self._masks(batch)} if self.own_masks else {}
        # Under causal attention nothing looks to the right, where the padding is: a mask would only cost memory.
        padded = sum(batch.lengths) < batch.input_ids.numel()
        return {"attention_mask": (batch.document_ids >= 0).long()} if padded and self.reads_padding else {}

    def _masks(self, batch: Batch) -> torch.Tensor | dict[str, torch.Tensor]:
        return masks(batch, self.config, dtype=self.dtype if self.name == "eager" else None)


@hookimpl
def memcfg_attention(plan: Plan, model: torch.nn.Module) -> Attention:
    config: Any = causal_model(model).config
    kind = config.model_type
    return MaskedAttention(
        plan["attention.implementation"],
        config.get_text_config(),
        next(model.parameters()).dtype,
        own_masks=kind in MASKED,
        reads_padding=kind in READS_PADDING,
    )


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The attention that the model's configuration is set to, which is what its layers look up at every forward."""
    model: Any = causal_model(run.model)
    effective = getattr(model.config.get_text_config(), "_attn_implementation", None)
    found.append(
        Effective("attention.implementation", effective, f"what the layers of `{type(model).__name__}` look up")
    )
    return found
