"""What installing the plugin changes in a plan: nothing, until it is chosen. The kit `memcfg.testing` asks most of it."""

import memcfg_focal
import pytest

from memcfg.registry import load
from memcfg.testing import assert_conservative, assert_light_import, assert_lint_clean, assert_rules_exercised


@pytest.fixture
def bench(lab):
    return lab.add(memcfg_focal.plugin, "memcfg")


def test_it_is_installed():
    plugin = next(p for p in load().plugins if p.name == "focal")
    assert (plugin.distribution, plugin.status, plugin.error) == ("memcfg-focal", "ok", None)


def test_choosing_it_makes_it_active(bench):
    answer = bench.resolve("loss=focal", "focal.gamma=1.5")
    assert (answer.value("loss.type"), answer.value("focal.gamma")) == ("focal", 1.5)
    assert answer.plan.providers["loss.type"] == "focal"
    assert "focal" in answer.plan.active
    assert bench.resolve("loss.type=focal").value("focal.gamma") == 2.0


@pytest.mark.slow
def test_a_plan_that_does_not_choose_it_is_the_same_without_it():
    assert_conservative(memcfg_focal.plugin)


def test_knowing_it_costs_nothing():
    assert_light_import("memcfg_focal")


@pytest.mark.slow
def test_its_rules_are_sound_and_needed():
    assert_lint_clean(memcfg_focal.plugin)
    assert_rules_exercised(memcfg_focal.plugin, [{"focal.gamma": 1.0}])


@pytest.mark.parametrize("overrides", [["focal.gamma=1.0"], ["loss=nll", "focal.gamma=1.0"]])
def test_a_gamma_that_nothing_reads_is_refused(bench, overrides):
    error = bench.resolve(*overrides).conflict(blames=["focal.gamma.unused"])
    assert "only the focal loss has a gamma" in str(error)


def test_a_gamma_below_zero_is_refused(bench):
    bench.resolve("loss=focal", "focal.gamma=-1").refused("focal.gamma")


@pytest.mark.torch
def test_the_hook_gives_the_planned_loss(bench):
    plan = bench.resolve("loss=focal", "focal.gamma=0.5").plan
    assert bench.registry.hooks(plan).loss(plan=plan).gamma == 0.5


@pytest.mark.torch
def test_without_focus_a_step_is_that_of_nll():
    from memcfg.testing import assert_same_training

    assert_same_training(["loss=focal", "focal.gamma=0.0"], ["loss=chunked_nll"], weights=True)
