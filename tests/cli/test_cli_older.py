"""A plan that an earlier version wrote: options that came since have no value in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcfg import Plan, RunError
from memcfg.commands.older import completed
from memcfg.compose import compose
from memcfg.compose.request import installed
from memcfg.planfile import save
from memcfg.report.console import Terminal
from memcfg.solver.expr import UNSET


def planned(*overrides: str, without: tuple[str, ...] = ()) -> Plan:
    """The plan of a request, as a version would have written it that had no such options."""
    registry = installed()
    plan = registry.plan(compose(list(overrides), registry=registry))
    return replace(plan, decisions={key: d for key, d in plan.decisions.items() if key not in without})


def completion(plan: Plan, capsys: Any) -> tuple[Plan, str]:
    made = completed(plan, installed(), Terminal())
    return made, capsys.readouterr().err


def test_a_whole_plan_stays_as_it_is(capsys: Any) -> None:
    plan = planned("trainer=dpo")
    made, said = completion(plan, capsys)
    assert (dict(made.decisions), said) == (dict(plan.decisions), "")


def test_an_option_that_asks_for_nothing_is_taken_and_told(capsys: Any) -> None:
    plan = planned("trainer=grpo", without=("rewards.models",))
    made, said = completion(plan, capsys)
    assert made["rewards.models"] == []
    assert made.decisions["rewards.models"].kind == "default"
    assert said == (
        "note: the plan was written before this option came, and it runs with\n  `rewards.models=[]`\n"
    )  # fmt: skip


def test_options_of_plugins_that_take_no_part_are_nothing_to_talk_of(capsys: Any) -> None:
    made, said = completion(planned("trainer=dpo", without=("rewards.models", "grpo.loss")), capsys)
    assert (made["rewards.models"], made["grpo.loss"], said) == ([], UNSET, "")


def test_a_default_that_does_something_is_refused(tmp_path: Path, program: Any) -> None:
    """`dpo.disable_dropout` is on where nothing is said: the plan's version may have left dropout on."""
    plan = planned("trainer=dpo", without=("dpo.disable_dropout", "dpo.loss", "dpo.watch_tokens"))
    with pytest.raises(RunError):
        completed(plan, installed(), Terminal())
    file = save(plan, tmp_path / "resolved.yaml")
    done = program("run", str(file), "run.dir=again", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "error: `dpo.disable_dropout`: the plan was written before this option came, and\n  has no value for it\n"
        "error: `dpo.loss`: the plan was written before this option came, and has no\n  value for it\n"
        "  resolve the request again, into another `run.dir`\n"
    )
    assert not (tmp_path / "again").exists()
