"""The scalar head, and the model as other programs know it.

While it trains, a reward model is the causal model with an output head of one row, so that every technique finds its parts
where it always does. What is saved is the architecture's own sequence classifier with one label."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from memcfg import Problem, RunError
from memcfg.engine.forward import NEW_HEAD, backbone_of, causal_model, detach_head


def with_scalar_head(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The model with a new output head of one row. Its weights are drawn from `seed`, the same on every device.

    Raises `RunError` for an architecture that Transformers has no sequence classifier of."""
    inner: Any = causal_model(model)
    kind = inner.config.model_type
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        text = f"Transformers has no sequence classifier for models of type `{kind}`, so a reward model cannot be saved"
        raise RunError(Problem(text, key="model.path", fix="take a model of another architecture"))
    weight = next(p for p in inner.get_input_embeddings().parameters())
    width = inner.config.get_text_config().hidden_size
    on_meta = weight.is_meta
    head = torch.nn.Linear(width, 1, bias=False, device="meta" if on_meta else "cpu")
    if not on_meta:
        torch.nn.init.normal_(head.weight, std=(width + 1) ** -0.5, generator=torch.Generator().manual_seed(seed))
    for config in (inner.config, inner.config.get_text_config()):
        config.tie_word_embeddings = False
    dtype = weight.dtype if weight.is_floating_point() else inner.dtype
    inner.set_output_embeddings(head.to(device=weight.device, dtype=dtype))
    setattr(inner, NEW_HEAD, True)
    return model


def classifier(model: torch.nn.Module) -> torch.nn.Module:
    """The sequence classifier with one label that holds the weights of a trained reward model."""
    inner: Any = causal_model(model)
    detach_head(model)
    head = inner.get_output_embeddings()
    config = inner.config
    config.num_labels = 1
    with torch.device("meta"):
        made: Any = AutoModelForSequenceClassification.from_config(config, dtype=inner.dtype)
    setattr(made, made.base_model_prefix, backbone_of(inner))
    score = next(name for name in ("score", "classifier") if isinstance(getattr(made, name, None), torch.nn.Linear))
    setattr(made, score, head)
    config.architectures = [type(made).__name__]
    return made  # type: ignore[no-any-return]


def left_on_meta(model: torch.nn.Module) -> list[str]:
    """Parameters without storage: parts of the classifier that the reward model had nothing for."""
    return [name for name, parameter in model.named_parameters() if parameter.is_meta]
