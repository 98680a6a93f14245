"""What plugins make together: menus, providers, activity, plans; and who is to blame when they do not fit."""

import itertools
import sys
import types

import pytest

from memcfg import (
    UNSET,
    Bool,
    Default,
    Enum,
    Force,
    NotYet,
    Plugin,
    PluginError,
    RequestError,
    RuleError,
    RunError,
    Setting,
    key,
)
from memcfg.registry import load
from memcfg.registry.assemble import assemble
from memcfg.registry.installed import Installed
from memcfg.solver import Choice, Request

FACTS = {"device.type": "cpu", "device.capability": 0, "world.size": 1}


def host() -> Plugin:
    """Owns an open menu of its own and one that others fill."""
    kind = Enum("loss.type", ("nll", "dft"), open=True, doc="which loss")
    colour = Enum("paint.colour", ("red", "blue"), doc="closed")
    fast = Bool("host.fast", doc="be quick")
    return Plugin(
        name="host",
        options=[kind, colour, fast],
        rules=[Default(kind, "nll", id="host.loss", because="it is plain")],
        groups={"loss": "the loss", "paint": "the colour"},
        commands={"measure": "host.measure:main"},
    )


def focal(**changes) -> Plugin:
    gamma = Setting("focal.gamma", float, default=2.0, doc="focus")
    fields = {"options": [gamma], "provides": {"loss.type": ("focal",)}, "conf": "pkg://acme.conf"}
    return Plugin(**{"name": "focal", **fields, **changes})


def coloured(active) -> Plugin:
    """A plugin with an open option that selects no hook."""
    return focal(
        options=[Enum("focal.colour", ("red", "none"), open=True, doc="which colour")], provides={}, active=active
    )


def request(**choices) -> Request:
    return Request({k.replace("__", "."): Choice(v, "command line") for k, v in choices.items()}, FACTS)


def registry(*plugins: Plugin):
    return load(discover=False, extra=plugins, strict=True)


def errors(*plugins: Plugin) -> dict[str, str]:
    return {p.name: p.error for p in load(discover=False, extra=plugins).broken}


def test_a_provided_value_is_on_the_menu_and_has_its_provider():
    both = registry(host(), focal())
    assert both.options["loss.type"].values == ("nll", "dft", "focal")
    assert both.providers({"loss.type": "focal"}) == {"loss.type": "focal"}
    assert both.providers({"loss.type": "nll"}) == {"loss.type": "host"}
    assert both.providers({"loss.type": UNSET}) == {}
    assert both.plan(request(loss__type="focal")).providers == {"loss.type": "focal"}


def test_without_its_plugin_a_value_is_not_on_the_menu():
    with pytest.raises(RequestError):
        registry(host()).plan(request(loss__type="focal"))


def test_an_owner_may_leave_a_value_of_its_menu_to_another():
    kind = Enum("loss.type", ("nll", "focal"), open=True, doc="which loss")
    owner = Plugin(name="host", options=[kind], provides={"loss.type": ("nll",)})
    assert registry(owner, focal()).providers({"loss.type": "focal"}) == {"loss.type": "focal"}
    assert registry(owner).providers({"loss.type": "focal"}) == {}


@pytest.mark.parametrize(
    ("plugin", "values", "active", "because"),
    [
        (focal(), {"loss.type": "focal"}, True, "it implements a chosen value"),
        (focal(), {"loss.type": "nll"}, False, "it implements no chosen value"),
        (focal(provides={}), {"loss.type": "nll"}, True, "it implements no value at all"),
        (focal(active=key("host.fast").on), {"host.fast": True}, True, "its condition holds"),
        (focal(active=key("host.fast").on), {"host.fast": False}, False, "its condition does not hold"),
        (focal(active=key("host.fast").on), {"loss.type": "focal"}, True, "it implements a chosen value anyway"),
        (coloured(key("focal.colour") != "none"), {"focal.colour": "none"}, False, "no hook asks for its colour"),
        (coloured(None), {"focal.colour": "none"}, True, "no value can select it"),
    ],
)
def test_when_a_plugin_is_active(plugin, values, active, because):
    assert ("focal" in registry(host(), plugin).active(values)) is active, because


def test_active_plugins_are_sorted_and_core_comes_first():
    names = registry(host(), focal(provides={})).active({"loss.type": "nll"})
    assert names == ("core", "focal", "host")


def test_the_order_in_which_plugins_are_given_changes_nothing():
    plugins = [host(), focal(), Plugin(name="zeta", provides={"loss.type": ("zeta",)}), Plugin(name="alpha")]
    plans = [registry(*permuted).plan(request(loss__type="zeta")) for permuted in itertools.permutations(plugins)]
    assert all(plan == plans[0] for plan in plans)
    assert all(list(plan) == list(plans[0]) and plan.active == plans[0].active for plan in plans)


def test_what_plugins_bring_beside_rules():
    both = registry(host(), focal(groups={"trainer": "another word for it", "focal": "mine"}))
    assert both.conf_paths() == ["pkg://acme.conf"]
    assert both.commands() == {"measure": "host.measure:main"}
    assert both.groups() == {
        "trainer": "what is trained for",
        "loss": "the loss",
        "paint": "the colour",
        "focal": "mine",
    }
    assert both.owners["focal.gamma"] == "focal"


def test_a_plan_carries_activity_versions_and_the_requests_own_notes():
    plan = registry(host(), focal()).plan(request(loss__type="focal", focal__gamma=1.0))
    assert plan.active == ("core", "focal")
    assert plan["focal.gamma"] == 1.0
    assert "memcfg" in plan.versions
    assert plan.assumed == ()


def test_a_plugin_that_is_not_mentioned_changes_nothing():
    """A conservative extension: option by option, the same decisions."""
    alone, both = registry(host()), registry(host(), focal())
    for choices in ({}, {"loss__type": "nll"}, {"host__fast": True}):
        without, with_it = alone.plan(request(**choices)), both.plan(request(**choices))
        assert {k: with_it.decisions[k] for k in without} == dict(without.decisions)
        assert with_it.active == without.active


def test_what_cannot_be_done_yet_is_planned_with_a_warning_and_not_run():
    later = host_with_not_yet = registry(
        host(), focal(not_yet=[NotYet(key("loss.type") == "focal", "it is not written")])
    )
    assert host_with_not_yet.plan(request()).notes == ()
    plan = later.plan(request(loss__type="focal"))
    assert [(note.level, note.rule) for note in plan.notes] == [("warning", "focal.not_yet")]
    with pytest.raises(RunError, match=r"`loss\.type=focal` can be planned but not run yet: it is not written"):
        later.hooks(plan)


def test_active_plugins_look_before_anything_is_imported(monkeypatch):
    """`preflight` is called with the plan; what it raises passes through, what it breaks is the plugin's."""
    seen = []

    def look(plan):
        seen.append(plan["loss.type"])
        raise seen_errors.pop()

    seen_errors = [ZeroDivisionError("0"), RunError("no such file")]
    module = types.ModuleType("acme_look")
    module.look = look
    monkeypatch.setitem(sys.modules, "acme_look", module)
    made = registry(host(), focal(preflight="acme_look:look", active=key("loss.type") == "focal"))
    made.preflight(made.plan(request()))
    with pytest.raises(RunError, match="no such file"):
        made.preflight(made.plan(request(loss__type="focal")))
    with pytest.raises(PluginError, match=r"its preflight `acme_look:look` failed: ZeroDivisionError: 0"):
        made.preflight(made.plan(request(loss__type="focal")))
    assert seen == ["focal", "focal"]


# ------------------------------------------------------------------------------------------------ who is to blame


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (focal(provides={"loss.typ": ("focal",)}), "a value of `loss.typ`, an option that no installed plugin declares"),
        (focal(provides={"paint.colour": ("green",)}), "`paint.colour`, whose owner did not declare it open"),
        (focal(provides={"loss.type": ("nll",)}), "the value `loss.type=nll` is also claimed by plugin `host`"),
        (focal(active=key("host.slow").on), "its `active` reads `host.slow`"),
        (focal(active=~(key("loss.type") == "fokal")), "its `active` compares `loss.type` with `fokal`"),
        (focal(not_yet=[NotYet(key("no.such").on, "b")]), "its `not_yet` reads `no.such`"),
        (focal(options=[Setting("loss.type.gamma", float, doc="d")]), "lies under `loss.type`, which is itself an option"),
        (focal(commands={"measure": "acme:main"}), "the command `measure` is also claimed by plugin `host`"),
        (
            focal(rules=[Default(key("focal.gama"), 1.0, id="focal.gamma.d", because="b")]),
            "focal.gama",
        ),
    ],
)  # fmt: skip
def test_a_third_party_that_does_not_fit_is_left_out(plugin, message):
    plugins = [Installed("core", "memcfg", "0", "", core()), first_party(host()), third_party(plugin)]
    assembly = assemble(plugins)
    assert [p.status for p in assembly.plugins] == ["ok", "ok", "broken"]
    assert message in assembly.plugins[2].error
    assert assembly.theory.options["loss.type"].values == ("nll", "dft")
    assert not [k for k in assembly.theory.options if k.startswith("focal.")]


def core() -> Plugin:
    from memcfg.core import plugin

    return plugin


def first_party(plugin: Plugin) -> Installed:
    return Installed(plugin.name, "memcfg", "0", "", plugin)


def third_party(plugin: Plugin) -> Installed:
    return Installed(plugin.name, f"dist-{plugin.name}", "1.0", "", plugin)


def test_an_error_in_a_first_party_rule_stops_the_program():
    wrong = Plugin(name="wrong", rules=[Default(key("no.such"), 1, id="wrong.rule", because="b")])
    with pytest.raises(RuleError) as error:
        assemble([first_party(core()), first_party(wrong)])
    assert str(error.value.source).startswith(__file__)
    listed = assemble([first_party(core()), first_party(wrong)], tolerant=True)
    assert [p.status for p in listed.plugins] == ["ok", "broken"]


def test_two_first_party_plugins_with_one_claim_stop_the_program():
    with pytest.raises(PluginError, match="also claimed by"):
        assemble([first_party(core()), first_party(host()), first_party(Plugin(name="host"))])


def test_two_third_parties_with_one_value_both_lose_it():
    names = errors(host(), focal(), focal(name="fokal", options=[]))
    assert set(names) == {"focal", "fokal"}
    assert "plugin `fokal`" in names["focal"]
    assert "plugin `focal`" in names["fokal"]


def test_a_plugin_is_not_disabled_for_what_another_does_to_its_options():
    mode = Enum("acme.mode", ("a", "b"), doc="which")
    acme = Plugin(name="acme", options=[mode], rules=[
        Default(mode, "a", id="acme.mode.a", because="b", when=key("host.fast").on),
    ])  # fmt: skip
    meddler = Plugin(name="meddler", rules=[
        Default("acme.mode", "b", id="meddler.mode", because="b", when=key("loss.type") == "nll"),
    ])  # fmt: skip
    assert set(errors(host(), acme, meddler)) == {"meddler"}


def test_two_that_only_fail_together_are_both_disabled():
    rules = {
        name: [Default("host.fast", value, id=f"{name}.fast", because="b", when=when)]
        for name, value, when in (
            ("yes", True, key("loss.type") == "nll"),
            ("no", False, key("paint.colour") == "red"),
        )
    }
    plugins = [third_party(Plugin(name=name, rules=rules[name])) for name in rules]
    assembly = assemble([first_party(core()), first_party(host()), *plugins])
    assert [p.name for p in assembly.plugins if p.status == "broken"] == ["yes", "no"]


def test_a_plugin_that_builds_on_a_broken_one_is_broken_too():
    base = Plugin(name="base", options=[Bool("base.on", doc="on")], provides={"no.such": ("x",)})
    upper = Plugin(name="upper", rules=[Force("host.fast", True, id="upper.rule", because="b", when=key("base.on").on)])
    broken = errors(host(), base, upper)
    assert set(broken) == {"base", "upper"}
    assert "plugin `base`, to which that belongs, could not be loaded" in broken["upper"]


def test_who_is_broken_does_not_depend_on_the_order():
    plugins = [
        host(),
        focal(),
        Plugin(name="upper", rules=[Force("host.fast", True, id="upper.rule", because="b", when=key("base.on").on)]),
        Plugin(name="base", options=[Bool("base.on", doc="on")], rules=[
            Default("base.on", True, id="base.on.default", because="b", when=key("focal.gama").isin(1)),
        ]),
    ]  # fmt: skip
    outcomes = set()
    for permuted in itertools.permutations(plugins):
        made = load(discover=False, extra=permuted)
        outcomes.add((frozenset(p.name for p in made.broken), frozenset(made.options), frozenset(made.theory.rules)))
    assert len(outcomes) == 1
    assert next(iter(outcomes))[0] == {"upper", "base"}


def test_a_rule_that_makes_the_builder_itself_fail_is_its_plugins_fault():
    rule = Default("host.fast", True, id="odd.rule", because="b", when="always")
    assert set(errors(host(), Plugin(name="odd", rules=[rule]), focal())) == {"odd"}


def test_strict_raises_what_would_be_listed():
    with pytest.raises(PluginError, match="did not declare it open"):
        registry(host(), focal(provides={"paint.colour": ("green",)}))


def test_a_plan_that_needs_an_absent_plugin_is_refused():
    plan = registry(host(), focal()).plan(request(loss__type="focal"))
    with pytest.raises(PluginError, match="the plan needs this plugin, which is not installed"):
        registry(host()).hooks(plan)
    broken = load(discover=False, extra=(host(), focal(provides={"loss.type": ("focal",), "paint.colour": ("x",)})))
    with pytest.raises(PluginError, match="could not be loaded: it provides a value"):
        broken.hooks(plan)
