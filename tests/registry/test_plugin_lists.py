"""Requests that switch plugins of third parties off: `plugins.off` and `plugins.only`."""

import pytest

from memcfg import Default, Enum, Forbid, Plugin, RequestError
from memcfg.registry import load
from memcfg.solver import Choice, Request

HOST = {"device.type": "cpu", "device.capability": 0, "world.size": 1}
COLOUR = Enum("paint.colour", ("red",), open=True, doc="the colour")
PAINT = Plugin(
    name="paint", options=[COLOUR], rules=[Default(COLOUR, "red", id="paint.colour.default", because="it is")]
)


def painter(name, *rules):
    return Plugin(name=name, provides={"paint.colour": (name,)}, rules=rules)


def resolved(*plugins, **values):
    choices = {key.replace("__", "."): Choice(value, "preset.yaml:3") for key, value in values.items()}
    return load(discover=False, extra=[PAINT, *plugins], strict=True).plan(Request(choices, HOST))


def refusal(*plugins, **values):
    with pytest.raises(RequestError) as error:
        resolved(*plugins, **values)
    return str(error.value)


def test_the_lists_are_options_of_the_plan():
    plan = resolved(painter("green"), plugins__off=["green"])
    decision = plan.decisions["plugins.off"]
    assert (decision.value, decision.kind, decision.origin) == (["green"], "you", "preset.yaml:3")
    assert resolved(painter("green"))["plugins.off"] == []


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"plugins__off": ["green"]}, {"green"}),
        ({"plugins__off": "green"}, {"green"}),
        ({"plugins__only": ["paint", "blue"]}, {"green"}),
        ({"plugins__only": ["paint"], "plugins__off": ["green"]}, {"green", "blue"}),
        ({"plugins__off": []}, set()),
    ],
)
def test_what_is_off_has_no_say(values, gone):
    for colour in ("green", "blue"):
        if colour in gone:
            assert "is not one of" in refusal(painter("green"), painter("blue"), paint__colour=colour, **values)
        else:
            plan = resolved(painter("green"), painter("blue"), paint__colour=colour, **values)
            assert plan.providers["paint.colour"] == colour


def test_what_asks_for_a_plugin_that_is_off_is_told_who_switched_it_off():
    assert refusal(painter("green"), paint__colour="green", plugins__off=["green"]) == (
        "`paint.colour`: `green` is not one of `red`\n"
        "  plugin `green` (given) is switched off by `plugins.off` (preset.yaml:3)"
    )
    text = refusal(painter("green"), paint__colour="green", plugins__only=["paint"])
    assert text.endswith("plugin `green` (given) is not among those of `plugins.only` (preset.yaml:3)")


def test_a_rule_of_a_plugin_that_is_off_does_not_hold():
    strict = painter("green", Forbid(COLOUR == "red", id="green.only", because="red is loud"))
    assert resolved(strict, plugins__off=["green"], paint__colour="red")["paint.colour"] == "red"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"plugins__off": ["gren"]}, "`plugins.off`: no installed plugin is called `gren`; did you mean `green`?"),
        ({"plugins__off": [3]}, "`plugins.off`: `[3]` is no list of names"),
        ({"plugins__off": ["core"]}, "`plugins.off`: plugin `core` (memcfg 0.1.0) is part of memcfg and cannot be"),
    ],
)
def test_names_that_cannot_be_switched_off(values, text):
    assert text in refusal(painter("green"), **values)


def test_a_narrower_registry_is_made_once():
    registry = load(discover=False, extra=[PAINT, painter("green")])
    request = Request({"plugins.off": Choice(["green"], "test")}, HOST)
    narrower = registry.within(request)
    assert registry.within(request) is narrower
    assert narrower.within(request) is narrower
    assert registry.within(Request({}, HOST)) is registry
