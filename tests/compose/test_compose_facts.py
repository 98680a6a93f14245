"""Facts: asked with the choices, assumed by the user, refused as choices."""

import sys

import pytest

from memcfg import ConflictError, Default, Enum, Fact, Force, Plugin, PluginError, Setting, key
from memcfg.compose.facts import learnt, probe
from memcfg.compose.request import compose, resolve
from memcfg.registry import load


def test_probes_are_asked_with_the_choices(order):
    assert order("soup=hot").facts["kitchen.open"] is True
    assert order("soup=none").facts["kitchen.open"] is False


def test_an_assumed_fact_is_not_asked_for(order):
    request = order("soup=none", "assume.kitchen.open=true", "assume.kitchen.cooks=7")
    assert request.facts["kitchen.open"] is True
    assert request.facts["kitchen.cooks"] == 7
    assert request.assumed == ("kitchen.cooks", "kitchen.open")


@pytest.mark.parametrize(
    ("card", "facts"),
    [
        ("h100", {"device.type": "cuda", "device.capability": 90}),
        ("H200", {"device.type": "cuda", "device.capability": 90}),
        ("a100", {"device.type": "cuda", "device.capability": 80}),
        ("cpu", {"device.type": "cpu", "device.capability": 0}),
    ],
)
def test_a_card_stands_for_its_facts(order, card, facts):
    request = order(f"assume.device={card}")
    assert {fact: request.facts[fact] for fact in facts} == facts
    assert set(request.assumed) == set(facts)
    assert request.choices["device.name"].value == card.lower()


def test_a_fact_stated_after_a_card_replaces_the_cards(order):
    assert order("assume.device=h100", "assume.device.capability=100").facts["device.capability"] == 100


def test_a_card_may_stand_in_a_file(order, with_file):
    folder = with_file("experiment/big.yaml", "# @package _global_\nassume:\n  device: h100\n")
    assert order("experiment=big", folder=folder).facts["device.type"] == "cuda"


def test_a_failing_probe_names_its_plugin():
    fact = Fact("sky.blue", probe="math:no_such_probe", doc="whether the sky is blue")
    registry = load(discover=False, extra=[Plugin(name="sky", options=[fact])])
    with pytest.raises(PluginError, match=r"the probe `math:no_such_probe` of the fact `sky.blue` failed") as caught:
        probe(registry, {})
    assert caught.value.plugin == "sky"
    assert "AttributeError" in (caught.value.trace or "")


# ------------------------------------------------------------------------------------------------- decided by a choice


@pytest.mark.parametrize(
    ("overrides", "launched", "stated"),
    [
        (["distributed.processes=2"], None, {"world.size": ("distributed.processes", 1)}),
        (["distributed.processes=1"], None, {}),  # which is so anyway
        (["distributed.processes=2"], "2", {}),  # which a launcher says
        (["distributed.processes=2", "assume.world.size=2"], None, {}),
        ([], None, {}),
    ],
)
def test_a_request_knows_which_facts_its_choices_decide(monkeypatch, overrides, launched, stated):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if launched:
        monkeypatch.setenv("WORLD_SIZE", launched)
    assert compose(overrides).stated == stated


def test_processes_that_nothing_spreads_over_name_both_keys(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ConflictError) as caught:
        resolve(["distributed=none", "distributed.processes=2"])
    assert str(caught.value).splitlines() == [
        "you chose `distributed.strategy=none` (command line, distributed/none.yaml)",
        "you chose `distributed.processes=2` (command line), which makes `world.size` `2`",
        "`distributed.strategy.needed` forbids `distributed.strategy=none and world.size>=2`, because there would be "
        "several processes, and each would train alone",
    ]
    assert [" ".join(repair) for repair in caught.value.repairs][:2] == [
        "~distributed.processes",
        "distributed.strategy=ddp",
    ]


# ------------------------------------------------------------------------------------------------- known only later


GUESTS = Fact("guests.many", probe="guest_list:later", learn="guest_list:counted", doc="whether many are coming")
TABLE = Enum("table.form", ("round", "long"), doc="the form of the table")
CHAIRS = Setting("table.chairs", int, doc="chairs at the table")
LATE = (
    Default(TABLE, "round", id="guests.table.default", because="everybody sees everybody"),
    Default(CHAIRS, 4, id="guests.chairs.default", because="a family has four"),
    Default(CHAIRS, 40, id="guests.chairs.many", when=key("guests.many").on, because="everybody sits"),
)


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """A registry whose only fact is pending, and what `learn` finds: `guests(True, ...)` with more rules."""

    def make(found, *rules):
        source = f"from memcfg import PENDING\n\n\ndef later(_):\n    return PENDING\n\n\ndef counted(values):\n    {found}\n"
        (tmp_path / "guest_list.py").write_text(source)
        sys.modules.pop("guest_list", None)
        return load(
            discover=False, extra=[Plugin(name="guests", options=[GUESTS, TABLE, CHAIRS], rules=[*LATE, *rules])]
        )

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield make
    sys.modules.pop("guest_list", None)


def test_a_fact_that_becomes_known_is_resolved_with_what_was_decided_pinned(guests):
    long = Default(TABLE, "long", id="guests.table.many", when=key("guests.many").on, because="a round one is too wide")
    registry = guests("return values['table.form'] == 'round'", long)
    request = compose([], registry=registry)
    plan = registry.plan(request)
    assert [pending.fact for pending in plan.pending] == ["guests.many"]
    request, later = learnt(request, plan, registry)
    assert (later["guests.many"], later.pending) == (True, ())
    assert later["table.form"] == "round"  # decided before, and nothing forbids it
    assert later.decisions["table.form"].rule == "guests.table.default"


def test_a_fact_that_contradicts_what_was_decided_is_a_conflict(guests):
    fits = Force(TABLE, "long", id="guests.table.fits", when=key("guests.many").on, because="a round one is too wide")
    registry = guests("return True", fits)
    request = compose([], registry=registry)
    with pytest.raises(ConflictError) as caught:
        learnt(request, registry.plan(request), registry)
    assert "`table.form=round` was decided before everything was known" in str(caught.value)
    assert ("table.form=long",) in caught.value.repairs


def test_a_fact_that_nobody_can_tell_stays_pending(guests):
    registry = guests("return PENDING")
    request = compose([], registry=registry)
    plan = registry.plan(request)
    assert learnt(request, plan, registry) == (request, plan)


def test_a_function_that_fails_names_its_plugin(guests):
    registry = guests("return values['no.such']")
    request = compose([], registry=registry)
    with pytest.raises(
        PluginError, match=r"the function `guest_list:counted` of the fact `guests.many` failed: KeyError"
    ):
        learnt(request, registry.plan(request), registry)
