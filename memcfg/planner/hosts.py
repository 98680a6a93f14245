"""Which machine a plan is for: the card it assumes, or the one that is here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memcfg.core import nvml
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
        return CPU
    name = plan.get("device.name")
    if name in CARDS:
        return named(name)
    capability = int(plan.get("device.capability") or 0)
    if "device.type" in plan.assumed:
        return unnamed(capability)
    return stored(calibration_file()) or here(capability)


def here(capability: int) -> Machine:
    """The card in this host, by what its driver calls it; else any of that capability. Asks the driver, not torch, which
    would take a part of the device's memory for the asking."""
    seen = nvml.seen(0)
    if seen is None:
        return unnamed(capability)
    said = seen.name.lower().replace(" ", "").replace("-", "").replace("geforce", "")
    card = next((c for c in sorted(CARDS, key=len, reverse=True) if c.replace("-", "") in said), None)
    return replace(unnamed(capability) if card is None else named(card), memory=seen.memory)
