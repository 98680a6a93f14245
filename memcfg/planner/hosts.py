"""Which machine a plan is for: the card it assumes, or the one that is here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memcfg.core.cards import CARDS
from memcfg.planner.machine import CPU, Machine, named, stored, unnamed

if TYPE_CHECKING:
    from memcfg.plan import Plan


def calibration_file() -> Path:
    """Where `memcfg calibrate` keeps what it measured on this host."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "memcfg" / "machine.json"


def machine_of(plan: Plan) -> Machine:
    """The machine that `assume.device` names, or this host's own: as calibrated, or as its card usually is."""
    if plan.device == "cpu":
        return replace(CPU)
    name = plan.get("device.name")
    if name in CARDS:
        return named(name)
    if "device.type" not in plan.assumed:
        measured = stored(calibration_file())
        if measured is not None:
            return measured
    return _here(int(plan.get("device.capability") or 0), assumed="device.type" in plan.assumed)


def _here(capability: int, assumed: bool) -> Machine:
    """The card that is in this host, by what its driver calls it; else any of that capability."""
    if assumed:
        return unnamed(capability)
    import torch

    if not torch.cuda.is_available():
        return unnamed(capability)
    total = torch.cuda.get_device_properties(0).total_memory
    said = torch.cuda.get_device_name(0).lower().replace(" ", "").replace("geforce", "")
    card = next((c for c in sorted(CARDS, key=len, reverse=True) if c.replace("-", "") in said), None)
    return replace(unnamed(capability) if card is None else named(card), memory=total)
