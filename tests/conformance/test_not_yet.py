"""What can be planned and not run: the list shrinks as implementations arrive, and a plan says so before it starts."""

from __future__ import annotations

import pytest

import memcfg
from memcfg import RunError
from memcfg.registry import load

REFUSED = {
    "distributed": ["distributed.strategy=fsdp2 and quantization.mode in (nf4, fp4)"],
    "moe": ["moe.aux=true"],
    "peft": ["peft.method=adalora"],
    "vision": ["vision.data=true"],
}
"""Take a line out when what it names can be run."""


def test_what_is_still_refused() -> None:
    refused = {
        p.name: [str(item.when) for item in p.plugin.not_yet]
        for p in load().plugins
        if p.first_party and p.plugin is not None and p.plugin.not_yet
    }
    assert refused == REFUSED


def test_the_plan_warns_and_the_run_is_refused() -> None:
    plan = memcfg.resolve(["peft=adalora"])
    notes = [note for note in plan.notes if note.rule == "peft.not_yet"]
    assert [note.level for note in notes] == ["warning"]
    with pytest.raises(RunError) as caught:
        load().hooks(plan)
    assert "moving its ranks about while it trains is not written yet" in str(caught.value)


def test_a_plan_without_them_is_not_refused() -> None:
    plan = memcfg.resolve([])
    assert not [note for note in plan.notes if note.rule.endswith(".not_yet")]
