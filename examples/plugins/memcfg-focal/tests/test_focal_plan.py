"""What installing the plugin changes in a plan: nothing, until it is chosen."""

import json
import os
import subprocess
import sys

import pytest

import memcfg
from memcfg.registry import load

REQUESTS = [(), ("+packing=bfd_split",), ("loss=nll",), ("truncation.max_length=64", "padding.multiple_of=8")]

RESOLVE = """
import json, sys
import memcfg
plans = [memcfg.resolve(overrides) for overrides in json.loads(sys.argv[1])]
report = [
    [{k: [repr(d.value), d.kind, d.rule] for k, d in p.decisions.items()}, p.active, sorted(p.providers.items())]
    for p in plans
]
print(json.dumps([report, sorted(m for m in sys.modules if m.startswith("memcfg_focal"))]))
"""


def plans(**environment):
    """Every request's plan and the modules of the plugin that were imported, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, json.dumps(REQUESTS)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_installed():
    plugin = next(p for p in load().plugins if p.name == "focal")
    assert (plugin.distribution, plugin.status, plugin.error) == ("memcfg-focal", "ok", None)


def test_choosing_it_makes_it_active():
    plan = memcfg.resolve(["loss=focal", "focal.gamma=1.5"])
    assert (plan["loss.type"], plan["focal.gamma"]) == ("focal", 1.5)
    assert plan.providers["loss.type"] == "focal"
    assert "focal" in plan.active
    assert memcfg.resolve(["loss.type=focal"])["focal.gamma"] == 2.0


def test_a_plan_that_does_not_choose_it_is_the_same_without_it():
    (present, imported), (absent, none) = plans(), plans(MEMCFG_PLUGINS_OFF="memcfg-focal")
    for (with_it, active, providers), (without, fewer, same_providers) in zip(present, absent, strict=True):
        assert set(with_it) - set(without) == {"focal.gamma"}
        assert {key: with_it[key] for key in without} == without
        assert active == fewer
        assert providers == same_providers
    assert "memcfg_focal" in imported
    assert "memcfg_focal.hooks" not in imported
    assert none == []


@pytest.mark.parametrize("overrides", [["focal.gamma=1.0"], ["loss=nll", "focal.gamma=1.0"]])
def test_a_gamma_that_nothing_reads_is_refused(overrides):
    with pytest.raises(memcfg.MemcfgError, match="only the focal loss has a gamma"):
        memcfg.resolve(overrides)


def test_a_gamma_below_zero_is_refused():
    with pytest.raises(memcfg.RequestError, match=r"focal\.gamma"):
        memcfg.resolve(["loss=focal", "focal.gamma=-1"])


@pytest.mark.torch
def test_the_hook_gives_the_planned_loss():
    plan = memcfg.resolve(["loss=focal", "focal.gamma=0.5"])
    assert load().hooks(plan).loss(plan=plan).gamma == 0.5
