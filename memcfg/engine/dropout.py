"""Dropout switched off for good, where a comparison of two models would otherwise be drowned in noise."""

from __future__ import annotations

import torch


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """The model with every dropout at zero: modules (an adapter's too) and the rates that attention layers keep as numbers."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


def rates(model: torch.nn.Module) -> list[float]:
    """The rates above zero that are left."""
    modules = [float(m.p) for m in model.modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd)]
    numbers = [v for m in model.modules() for n, v in vars(m).items() if n.endswith("dropout") and isinstance(v, float)]
    return [rate for rate in (*modules, *numbers) if rate > 0]
