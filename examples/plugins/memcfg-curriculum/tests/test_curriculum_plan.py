"""What the plugin says of plans, and what it leaves alone."""

import json
import os
import subprocess
import sys

import memcfg_curriculum
import pytest

from memcfg.registry import load
from memcfg.testing import assert_conservative, assert_light_import, assert_lint_clean, assert_rules_exercised

ON = {"curriculum.by": "length"}
SMALL = {"run.steps": 10, "run.batch_size": 2}


@pytest.fixture
def bench(lab):
    return lab.add(memcfg_curriculum.plugin, "memcfg")


def test_it_is_installed():
    plugin = next(p for p in load().plugins if p.name == "curriculum")
    assert (plugin.distribution, plugin.status, plugin.error) == ("memcfg-curriculum", "ok", None)


def test_choosing_it(bench):
    answer = bench.resolve("curriculum=length", "curriculum.stages=4")
    assert (answer.value("curriculum.by"), answer.value("curriculum.stages")) == ("length", 4)
    assert answer.because("curriculum.direction") == "a curriculum goes from what is easy to what is hard"
    assert "curriculum" in answer.plan.active
    assert bench.resolve().because("curriculum.by") == "rows come in a random order unless asked otherwise"
    assert "curriculum" not in bench.resolve("curriculum=none").plan.active


@pytest.mark.parametrize(
    ("overrides", "rule", "repair"),
    [
        (["packing=bfd_split"], "curriculum.packing", "packing.strategy=none"),
        (["packing=wrapped"], "curriculum.packing", "curriculum.by=none"),
        (["batching=tokens"], "curriculum.batching", "batching.mode=rows"),
        (["data=jsonl", "data.path=x", "data.streaming=true"], "curriculum.streaming", "data.streaming=false"),
    ],
)
def test_what_it_does_not_go_with(bench, overrides, rule, repair):
    bench.resolve("curriculum=length", *overrides).conflict(blames=[rule], suggests=repair)


@pytest.mark.parametrize("option", ["direction=long_first", "rows=4", "stages=3"])
def test_options_that_nothing_reads(bench, option):
    bench.resolve(f"curriculum.{option}").conflict(blames=[f"curriculum.{option.partition('=')[0]}.outside"])


def test_a_block_that_is_never_seen_whole_is_refused(bench):
    assert bench.resolve("curriculum=length", "run.steps=10", "curriculum.rows=20").value("curriculum.rows") == 20
    answer = bench.resolve("curriculum=length", "run.steps=10", "curriculum.rows=21")
    assert "the run sees 20 rows, and `curriculum.rows=21` would show it one end of the lengths only" in str(
        answer.error
    )


def test_knowing_it_costs_nothing():
    assert_light_import("memcfg_curriculum")


@pytest.mark.slow
def test_nobody_else_notices():
    assert_conservative(memcfg_curriculum.plugin)


@pytest.mark.slow
def test_the_rules_are_sound_and_needed():
    assert_lint_clean(memcfg_curriculum.plugin)
    unread = [
        {f"curriculum.{name}": value} for name, value in (("direction", "long_first"), ("rows", 4), ("stages", 3))
    ]
    against = [{"packing.strategy": "bfd"}, {"batching.mode": "tokens"}, {"data.streaming": True}]
    seen = [{**ON, **SMALL, "curriculum.rows": 21}]
    assert_rules_exercised(memcfg_curriculum.plugin, [{}, ON, *unread, *({**ON, **more} for more in against), *seen])


DIGEST = """
import hashlib, json, sys
import memcfg
def digest(words):
    plan = memcfg.resolve(words)
    told = {k: [repr(d.value), d.kind, d.rule, d.because] for k, d in plan.decisions.items() if not k.startswith("curriculum.")}
    return hashlib.sha256(json.dumps([told, plan.active, sorted(plan.providers.items()), [n.text for n in plan.notes]]).encode()).hexdigest()
print(json.dumps([digest(words) for words in json.loads(sys.argv[1])]))
"""
REQUESTS = [
    [], ["+packing=bfd_split"], ["loss=nll", "padding.multiple_of=8"], ["trainer=dpo"], ["trainer=kto", "peft=lora"],
    ["recipe=short_sft"], ["batching=tokens"], ["data=jsonl", "data.path=rows.jsonl", "data.streaming=true"],
    ["assume.device=h100", "recipe=long_context"], ["assume.device=h100", "offload=checkpoint_inputs", "mlp=tiled"],
]  # fmt: skip


@pytest.mark.slow
def test_without_it_every_plan_is_the_same():
    """The whole way from words to a plan, config folders included, in processes with the plugin and without it."""

    def digests(**environment):
        command = [sys.executable, "-c", DIGEST, json.dumps(REQUESTS)]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert digests() == digests(MEMCFG_PLUGINS_OFF="memcfg-curriculum")
