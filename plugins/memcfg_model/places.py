"""Where a model's weights are when it has been loaded: on their device, or held back until whoever packs them asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.arriving import hold, moved

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from memcfg import Plan


def packed(plan: Plan) -> bool:
    """Whether weights are packed into few bits as they arrive: the trained model's, or a teacher's."""
    return any(plan.get(f"quantization.{which}") not in (None, "none") for which in ("mode", "teacher"))


def placed(plan: Plan, model: PreTrainedModel, device: str) -> PreTrainedModel:
    """A model whose weights are in host memory, or on `meta`, on its way to `device`."""
    if not packed(plan) or plan.device == "cpu":
        return model if device == "meta" else model.to(device)
    hold(model, None if device == "meta" else moved(device))
    return model
