"""Weights that are not on their device yet.

A model whose weights another plugin changes as they arrive (packs into few bits, say) is *held*: they are in host memory, or
not even made. `arrive` brings them module by module, so that no more than one of them is ever on the device unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from memcfg import simulated

if TYPE_CHECKING:
    import torch

Bring = Callable[["torch.nn.Module"], object]
"""Brings what a module itself holds, not the modules within it."""
Change = Callable[[str, "torch.nn.Module"], "torch.nn.Module"]
"""Given the name of a module and the module, whose weights have just arrived, returns what takes its place."""

_HELD: Final = "_memcfg_held"


def hold(model: torch.nn.Module, bring: Bring | None = None) -> None:
    """Say that the model's weights come with `bring`; on `meta`, where there is nothing to bring, without one."""
    model.__dict__[_HELD] = bring or _seen


def held(model: torch.nn.Module) -> bool:
    """Whether the model's weights are still to come."""
    return _HELD in model.__dict__


def arrive(model: torch.nn.Module, change: Change | None = None) -> None:
    """Bring the weights of a held model, in the order in which `Module.to` moves them; then, module by module, `change` them.
    The weights of a model that is not held are where they are, and only changed."""
    bring = model.__dict__.pop(_HELD, None)
    if bring is not None or change is not None:
        _all_of("", model, bring, change, {})


def _all_of(
    name: str, module: torch.nn.Module, bring: Bring | None, change: Change | None, done: dict[int, torch.nn.Module]
) -> torch.nn.Module:
    """What takes the module's place; a module that is used twice is brought once."""
    if id(module) in done:
        return done[id(module)]
    for leaf, child in list(module._modules.items()):
        if child is not None:
            module._modules[leaf] = _all_of(f"{name}.{leaf}" if name else leaf, child, bring, change, done)
    if bring is not None:
        bring(module)
    done[id(module)] = module if change is None or not name else change(name, module)
    return done[id(module)]


def moved(device: torch.device | str) -> Bring:
    """Brings weights that lie in host memory to `device`."""

    def bring(module: torch.nn.Module) -> None:
        if module._modules:
            module._apply(lambda tensor: tensor.to(device), recurse=False)
        else:
            module.to(device)  # layers that hold packed weights know what else has to move

    return bring


def _seen(module: torch.nn.Module) -> None:
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None:
            simulated.arrived(tensor)
