"""A plugin that a request does not mention changes nothing in it, whatever its rules would do if it were."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcfg import Default, Enum, Forbid, Force, Ignored, Plugin
from memcfg.registry import load
from memcfg.solver import Choice, Request
from memcfg.testing.outcome import outcome

MODE = Enum("acme.mode", ("off", "on", "loud"), doc="what acme does")
HOSTS = (
    {"device.type": "cpu", "device.capability": 0, "world.size": 1},
    {"device.type": "cuda", "device.capability": 90, "world.size": 1},
)


@pytest.fixture(scope="module")
def own():
    return load().theory


def plugin(data, options):
    """A third party's: rules over other plugins' options, each of which reads `acme.mode` or the loss `acme`."""
    rules = [Default(MODE, "off", id="acme.mode.default", because="nobody asked for it")]
    loss = Enum("loss.type", (), open=True, doc="") == "acme"
    for at in range(data.draw(st.integers(1, 5))):
        target = data.draw(st.sampled_from(options))
        value = data.draw(st.sampled_from(target.values))
        when = data.draw(st.sampled_from((MODE == "on", MODE.isin("on", "loud"), loss)))
        name = {"id": f"acme.rule.r{at}", "because": "acme needs it"}
        kind = data.draw(st.integers(0, 3))
        if kind == 0:
            rules.append(Force(target, value, when=when, on_user="override", **name))
        elif kind == 1:
            rules.append(Forbid(when & (target == value), **name))
        elif kind == 2:
            rules.append(Ignored(target, when=when, **name))
        else:
            others = [r.id for r in load().theory.defaults.get(target.key, ())]
            rules.append(Default(target, value, when=when, supersedes=others, **name))
    return Plugin(name="acme", options=[MODE], rules=rules, provides={"loss.type": ("acme",)})


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_plugin_that_is_not_mentioned_changes_nothing(own, data):
    options = [o for o in own.options.values() if o.role == "choice" and o.values and o.key in own.variables.index]
    free = [o for o in options if o.key not in ("trainer.name", "loss.type")]
    registry = load(extra=[plugin(data, free)])
    if registry.broken:  # rules that cannot be loaded together: left out whole
        return
    facts = data.draw(st.sampled_from(HOSTS))
    for _ in range(4):
        chosen = data.draw(st.lists(st.sampled_from(options), max_size=4, unique_by=lambda option: option.key))
        choices = {o.key: Choice(data.draw(st.sampled_from(o.values)), "command line") for o in chosen}
        request = Request(choices, facts)
        assert outcome(registry.theory, request, own.options, apart_from="acme") == outcome(own, request, own.options)
