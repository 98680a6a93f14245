"""A plugin that cannot be used is listed with its distribution and its error, and takes nothing else down."""

import re

import pytest

GOOD = """
    from memcfg import Bool, Default, Plugin

    on = Bool("{name}.on", doc="on or off")
    plugin = Plugin(
        name="{name}",
        options=[on],
        rules=[Default(on, False, id="{name}.on.default", because="it costs time")],
        provides={{"trainer.name": ("{name}",)}},
    )
"""

BROKEN = {
    "missing_import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "syntax": ("def f(:", "SyntaxError: "),
    "half_way": (
        """
        from memcfg import Bool, Plugin
        good = Bool("half_way.on", doc="fine")
        plugin = Plugin(name="half_way", options=[good, Bool("half_way.off")])
        """,
        "TypeError: Bool() missing 1 required keyword-only argument: 'doc'",
    ),
    "no_attribute": ("x = 1", "AttributeError: module 'no_attribute' has no attribute 'plugin'"),
    "exits": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "bare_module": ("plugin = 1", "its entry point must read `module:attribute`"),
    "not_a_plugin": ("plugin = {}", "it is a `dict`, not a `memcfg.Plugin`"),
    "too_new": (
        "from memcfg import Plugin\nplugin = Plugin(name='too_new', api=99)",
        "it is written for plugin interface 99, and this memcfg offers 1: upgrade memcfg",
    ),
    "too_old": (
        "from memcfg import Plugin\nplugin = Plugin(name='too_old', api=0)",
        "it is written for plugin interface 0, and this memcfg needs 1 or newer: upgrade the plugin",
    ),
    "unknown_field": (
        "from memcfg import Plugin\nplugin = Plugin(name='unknown_field', telemetry=1)",
        "(is it written for a newer memcfg?)",
    ),
    "misnamed": (
        "from memcfg import Plugin\nplugin = Plugin(name='other')",
        "the entry point is called `misnamed` and the plugin `other`: give both one name",
    ),
    "bare_provides": (
        "from memcfg import Plugin\nplugin = Plugin(name='bare_provides', provides={'trainer.name': 'mine'})",
        "`provides` must give `trainer.name` a tuple of values",
    ),
    "foreign_rule": (
        """
        from memcfg import Bool, Default, Plugin
        on = Bool("foreign_rule.on", doc="on")
        plugin = Plugin(
            name="foreign_rule", options=[on], rules=[Default(on, True, id="sft.mine", because="I say so")]
        )
        """,
        "rule id `sft.mine` ({folder}/foreign_rule.py:5) does not begin with `foreign_rule.`",
    ),
    "bad_rule": (
        """
        from memcfg import Bool, Default, Plugin, key
        on = Bool("bad_rule.on", doc="on")
        plugin = Plugin(
            name="bad_rule",
            options=[on],
            rules=[Default(on, True, id="bad_rule.on", because="b", when=key("no.such").isin("x"))],
            provides={"trainer.name": ("bad_rule",)},
        )
        """,
        "{folder}/bad_rule.py:7",
    ),
    "closed": (
        """
        from memcfg import Plugin
        plugin = Plugin(name="closed", provides={"device.type": ("tpu",)})
        """,
        "it provides a value of `device.type`, whose owner did not declare it open",
    ),
    "takes_an_option": (
        """
        from memcfg import Plugin, Setting
        plugin = Plugin(name="takes_an_option", options=[Setting("run.steps", int, doc="mine now")])
        """,
        "the option `run.steps` is also claimed by plugin `core` (memcfg ",
    ),
    "twin_a": (
        "from memcfg import Plugin\nplugin = Plugin(name='twin_a', provides={'trainer.name': ('twin',)})",
        "the value `trainer.name=twin` is also claimed by plugin `twin_b` (dist-twin-b 1.0)",
    ),
    "twin_b": (
        "from memcfg import Plugin\nplugin = Plugin(name='twin_b', provides={'trainer.name': ('twin',)})",
        "the value `trainer.name=twin` is also claimed by plugin `twin_a` (dist-twin-a 1.0)",
    ),
    "core": (
        "from memcfg import Plugin\nplugin = Plugin(name='core')",
        "the name `core` is also claimed by plugin `core` (memcfg ",
    ),
}

LOOK = """
    from memcfg.registry import load

    registry = load()
    result = {
        "plugins": {p.distribution: vars(p) | {"plugin": None} for p in registry.plugins if not p.first_party},
        "options": sorted(registry.options),
        "trainers": registry.options["trainer.name"].values,
        "rules": sorted(registry.theory.rules),
    }
"""


ENTRIES = {"core": "core = false_core:plugin", "bare_module": "bare_module = bare_module"}


def distribution(name: str) -> str:
    return f"dist-{name.replace('_', '-')}"


@pytest.fixture(scope="module")
def seen(shared_site):
    """What a registry makes of all broken plugins at once, a good one before them and one after."""
    for name in ("aaa_good", "zzz_good"):
        shared_site.add(f"{name[:3]}-dist", {f"{name}.py": GOOD.format(name=name)}, f"{name} = {name}:plugin")
    for name, (code, _) in BROKEN.items():
        entry = ENTRIES.get(name, f"{name} = {name}:plugin")
        module = re.search(r"= (\w+)", entry).group(1)
        shared_site.add(distribution(name), {f"{module}.py": code}, entry)
    return shared_site.run(LOOK) | {"folder": str(shared_site.folder)}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_listed_with_its_distribution_and_reason(seen, name):
    plugin = seen["plugins"][distribution(name)]
    assert plugin["status"] == "broken"
    assert plugin["name"] == name
    assert plugin["version"] == "1.0"
    assert BROKEN[name][1].format(folder=seen["folder"]) in plugin["error"]


@pytest.mark.parametrize("name", ["missing_import", "syntax", "half_way"])
def test_a_plugin_that_raised_comes_with_its_own_traceback_only(seen, name):
    trace = seen["plugins"][distribution(name)]["trace"]
    assert f"{name}.py" in trace
    assert "importlib" not in trace
    assert "memcfg/registry" not in trace


@pytest.mark.parametrize("name", ["aaa_good", "zzz_good"])
def test_the_good_plugins_around_it_are_whole(seen, name):
    assert seen["plugins"][f"{name[:3]}-dist"]["status"] == "ok"
    assert f"{name}.on" in seen["options"]
    assert name in seen["trainers"]
    assert f"{name}.on.default" in seen["rules"]


def test_nothing_of_a_broken_plugin_stays(seen):
    assert not [o for o in seen["options"] if o.split(".")[0] in BROKEN]
    assert not [r for r in seen["rules"] if r.split(".")[0] in set(BROKEN) - {"core"}]
    assert not {"twin", "mine", "bad_rule"} & set(seen["trainers"])


def test_strict_mode_raises_the_first_error(site):
    site.add("dist-bad", {"bad.py": "import no_such_module"}, "bad = bad:plugin")
    code = """
        from memcfg import PluginError
        from memcfg.registry import load
        try:
            load()
            result = None
        except PluginError as error:
            result = [error.plugin, error.distribution, str(error), "bad.py" in error.trace]
    """
    plugin, dist, text, traced = site.run(code, MEMCFG_STRICT_PLUGINS="1")
    assert (plugin, dist, traced) == ("bad", "dist-bad", True)
    assert "No module named 'no_such_module'" in text
    assert site.run(code) is None


ASK = """
    from memcfg import MemcfgError
    from memcfg.registry import load
    from memcfg.solver import Choice, Request
    facts = {{"device.type": "cpu", "device.capability": 0, "world.size": 1}}
    choices = {{key: Choice(value, "command line") for key, value in {choices}.items()}}
    try:
        load().plan(Request(choices, facts))
        result = None
    except MemcfgError as error:
        result = [type(error).__name__, str(error), error.exit_code, getattr(error, "trace", None)]
"""


@pytest.mark.parametrize(
    ("choices", "kind", "why"),
    [
        ({"acme.level": 3}, "PluginError", "the key spells the name of a plugin that could not be read"),
        ({"trainer.name": "acme"}, "PluginError", "so does the value"),
        ({"trainer.name": "amce"}, "RequestError", "anything else unknown only may be its"),
        ({"other.level": 3}, "RequestError", "a key too"),
    ],
)
def test_asking_for_what_a_broken_plugin_may_have_names_it(site, choices, kind, why):
    site.add("dist-acme", {"acme.py": "import no_such_module"}, "acme = acme:plugin")
    raised, text, code, trace = site.run(ASK.format(choices=choices))
    assert raised == kind, why
    assert code == 2
    assert "plugin `acme` (dist-acme 1.0) could not be loaded: ModuleNotFoundError" in text
    assert (trace is not None) == (kind == "PluginError")


def test_a_mistake_that_no_plugin_explains_gets_no_hint(site):
    site.add("dist-acme", {"acme.py": "import no_such_module"}, "acme = acme:plugin")
    raised, text, _, _ = site.run(ASK.format(choices={"run.steps": -1}))
    assert raised == "RequestError"
    assert "acme" not in text


def test_a_broken_plugin_whose_declaration_is_known_answers_for_its_keys(site):
    code = BROKEN["bad_rule"][0]
    site.add("dist-bad-rule", {"bad_rule.py": code}, "bad_rule = bad_rule:plugin")
    raised, text, _, _ = site.run(ASK.format(choices={"bad_rule.on": True}))
    assert raised == "PluginError"
    assert "bad_rule.py:7" in text


def test_a_missing_value_of_a_switched_off_plugin_says_so(site):
    site.add("dist-acme", {"acme.py": GOOD.format(name="acme")}, "acme = acme:plugin")
    assert site.run(ASK.format(choices={"acme.on": True})) is None
    raised, text, _, _ = site.run(ASK.format(choices={"acme.on": True}), MEMCFG_PLUGINS_OFF="acme")
    assert raised == "RequestError"
    assert "plugin `acme` (dist-acme 1.0) is switched off by `MEMCFG_PLUGINS_OFF`" in text


@pytest.fixture
def three(site):
    """A broken plugin between two good ones."""
    for name in ("good_1", "good_2"):
        site.add(f"dist-{name[-1]}", {f"{name}.py": GOOD.format(name=name)}, f"{name} = {name}:plugin")
    site.add("dist-15", {"bad.py": "import no_such_module"}, "bad = bad:plugin")
    return site


def test_the_command_line_goes_on_with_a_broken_plugin(three):
    assert three.cli("--help").returncode == 0
    listing = three.cli("plugins")
    assert listing.returncode == 0
    assert "broken: `bad` (dist-15 1.0): ModuleNotFoundError: No module named" in listing.stdout
    assert "good_1" in listing.stdout
    assert "good_2" in listing.stdout
    assert three.cli("resolve", "good_2.on=true").returncode == 0


def test_a_half_removed_distribution_is_no_obstacle(three):
    """An interrupted uninstall leaves entry points without metadata: no name, no version."""
    info = three.folder / "gone-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[memcfg]\ngone = gone:plugin\n")
    listing = three.cli("plugins")
    assert listing.returncode == 0
    assert "broken: `gone` (unknown" in listing.stdout
    assert "good_2" in listing.stdout


def test_the_command_line_stops_where_the_broken_plugin_is_asked_for(three):
    asked = three.cli("resolve", "bad.level=1")
    assert asked.returncode == 2
    assert "No module named 'no_such_module'" in asked.stderr
    assert "dist-15" in asked.stderr
    assert "memcfg/registry" not in asked.stderr


def test_the_command_line_in_strict_mode_stops_at_once(three):
    strict = three.cli("resolve", "good_2.on=true", MEMCFG_STRICT_PLUGINS="1")
    assert strict.returncode != 0
    assert "bad (dist-15)" in strict.stderr
