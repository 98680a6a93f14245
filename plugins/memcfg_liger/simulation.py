"""Liger while a step is simulated: nothing is launched, and what Liger allocates around its kernels is allocated by torch, as on
a device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final

import torch

from memcfg import simulated

LAUNCH: Final = "triton.runtime.jit:JITFunction.run"
ALL_TARGETS: Final = "torch.fx.experimental._config:meta_nonzero_assume_all_nonzero"
"""Liger looks for targets among those that it was given, all of which are."""

LOSS: Final = "liger_kernel.ops.fused_linear_cross_entropy"
ON_DEVICE: Final = ("_can_use_mm_out", "fused_linear_cross_entropy_forward")
"""Functions that take another way where a tensor is not on a GPU."""


def stand_ins(capability: int) -> dict[str, Any]:
    """What takes the place of Liger's launches, and of its loss, on a card of this capability (90 for 9.0)."""
    from liger_kernel.ops import fused_linear_cross_entropy as loss

    found = {LAUNCH: launch, ALL_TARGETS: True}
    for name in ON_DEVICE:
        if hasattr(loss, name):
            found[f"{LOSS}:{name}"] = on_device(loss, name, capability)
    return found


def launch(kernel: Any, *arguments: Any, **keywords: Any) -> None:
    """Each tensor that a kernel was given is read or written once."""
    simulated.launched(sum(t.numel() * t.element_size() for t in _tensors([*arguments, *keywords.values()])))


def _tensors(things: Iterable[Any]) -> Iterator[torch.Tensor]:
    return (thing for thing in things if isinstance(thing, torch.Tensor))


def on_device(module: ModuleType, name: str, capability: int) -> Callable[..., Any]:
    """The function as it is, except that it takes `meta` for a GPU: it asks for the type of a tensor's device in between, where
    nothing else could take its place, and makes a copy of the weight's gradient for each chunk where it finds none."""
    text = inspect.getsource(getattr(module, name))
    for written, meant in (
        ('device.type == "cuda"', 'device.type in ("cuda", "meta")'),
        ('device.type != "cuda"', 'device.type not in ("cuda", "meta")'),
        ("torch.cuda.get_device_capability(grad_weight.device)[0]", str(capability // 10)),
    ):
        text = text.replace(written, meant)
    names = vars(module) | {"_can_use_mm_out": lambda *given: module._can_use_mm_out(*given)}
    exec(compile(text, f"<{name} on meta>", "exec"), names)
    return names[name]
