"""Facts: asked with the choices, assumed by the user, refused as choices."""

import pytest

from memcfg import Fact, Plugin, PluginError
from memcfg.compose.facts import probe
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
