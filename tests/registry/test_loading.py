"""What is loaded, in which order, and what the environment and the current folder have to say in it."""

import sys

import pytest

from memcfg import PluginError

PLUGIN = "from memcfg import Plugin\nplugin = Plugin(name='{name}')"
NAMES = """
    from memcfg.registry import load
    registry = load()
    result = [[p.name, p.distribution, p.status] for p in registry.plugins if not p.first_party]
"""


@pytest.fixture
def three(site):
    """Distributions one (plugins b), two (a) and three-four (c)."""
    for distribution, name in (("one", "b_plugin"), ("two", "a_plugin"), ("Three_Four", "c_plugin")):
        site.add(distribution, {f"{name}.py": PLUGIN.format(name=name)}, f"{name} = {name}:plugin")
    return site


def mine(found):
    return [[name, status] for name, distribution, status in found if distribution in ("one", "two", "three-four")]


def test_plugins_are_sorted_by_distribution_and_core_comes_first(three):
    assert mine(three.run(NAMES)) == [["b_plugin", "ok"], ["c_plugin", "ok"], ["a_plugin", "ok"]]
    assert three.run("from memcfg.registry import load; result = load().plugins[0].name") == "core"


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({"MEMCFG_PLUGINS": "a_plugin"}, {"a_plugin"}),
        ({"MEMCFG_PLUGINS": "one, a-plugin"}, {"a_plugin", "b_plugin"}),
        ({"MEMCFG_PLUGINS": "three.four"}, {"c_plugin"}),
        ({"MEMCFG_PLUGINS": ""}, {"a_plugin", "b_plugin", "c_plugin"}),
        ({"MEMCFG_PLUGINS_OFF": "one"}, {"a_plugin", "c_plugin"}),
        ({"MEMCFG_PLUGINS_OFF": "three_four,a_plugin"}, {"b_plugin"}),
        ({"MEMCFG_PLUGINS": "one,two", "MEMCFG_PLUGINS_OFF": "two"}, {"b_plugin"}),
    ],
)
def test_the_environment_allows_and_blocks_by_plugin_or_distribution(three, environment, on):
    found = mine(three.run(NAMES, **environment))
    assert {name for name, status in found if status == "ok"} == on
    assert {status for name, status in found if name not in on} <= {"off"}


def test_names_that_nothing_bears_are_told_in_the_listing(three):
    told = three.cli("plugins", MEMCFG_PLUGINS_OFF="one,no_such,odd").stdout
    assert told.endswith("note: no installed plugin is called `no-such` or `odd`, which `MEMCFG_PLUGINS_OFF` names\n")
    assert "note:" not in three.cli("plugins", MEMCFG_PLUGINS_OFF="one", MEMCFG_PLUGINS="a-plugin").stdout


def test_a_plugin_that_is_off_is_not_imported(three):
    code = "import sys\nfrom memcfg.registry import load\nload(); result = 'a_plugin' in sys.modules"
    assert three.run(code) is True
    assert three.run(code, MEMCFG_PLUGINS_OFF="a_plugin") is False


def test_memcfgs_own_plugins_are_always_on(three):
    code = "from memcfg.registry import load; result = [p.status for p in load().plugins if p.name == 'packing']"
    assert three.run(code, MEMCFG_PLUGINS="a_plugin") == three.run(code) == ["ok"]


def test_memcfgs_own_plugins_cannot_be_switched_off(monkeypatch):
    from memcfg.registry import load

    monkeypatch.setenv("MEMCFG_PLUGINS_OFF", "packing")
    with pytest.raises(PluginError, match="cannot be switched off"):
        load()


LOCAL = """
    from memcfg import Plugin, Setting, hookimpl

    plugin = Plugin(
        name="mine",
        options=[Setting("mine.level", int, default=1, doc="how much")],
        provides={"trainer.name": ("mine",)},
        hooks="memcfg_local",
    )

    @hookimpl
    def memcfg_objective(plan):
        return plan["mine.level"]
"""
USE_LOCAL = """
    from memcfg.registry import load
    from memcfg.solver import Choice, Request
    registry = load()
    found = [[p.name, p.distribution, p.status, p.local] for p in registry.plugins if p.local]
    result = [found, None]
    if found:
        facts = {"device.type": "cpu", "device.capability": 0, "world.size": 1}
        choices = {"trainer.name": Choice("mine", "command line"), "mine.level": Choice(7, "command line")}
        plan = registry.plan(Request(choices, facts))
        result = [found, registry.hooks(plan).objective(plan=plan)]
"""


@pytest.mark.torch  # hooks of the plan bring it
def test_the_local_file_is_a_plugin_only_on_request(site, warm_python, tmp_path):
    site = site.seen_by(warm_python)
    import textwrap

    (tmp_path / "memcfg_local.py").write_text(textwrap.dedent(LOCAL))
    assert site.run(USE_LOCAL, cwd=tmp_path) == [[], None]
    assert site.run(USE_LOCAL, cwd=tmp_path, MEMCFG_LOCAL="1") == [[["mine", "local", "ok", True]], 7]


def test_a_flag_asks_for_the_local_file_too(site):
    import textwrap

    (site.folder / "memcfg_local.py").write_text(textwrap.dedent(LOCAL))
    assert "mine" in site.cli("--local", "plugins").stdout
    assert "mine" not in site.cli("plugins").stdout
    assert site.cli("--local", "resolve", "trainer.name=mine").returncode == 0
    assert site.cli("resolve", "trainer.name=mine").returncode == 2


def test_entry_points_are_looked_up_once_a_process(three):
    code = """
        from memcfg.registry import load, loader
        calls, real = [], loader.entry_points
        loader.entry_points = lambda **k: calls.append(k) or real(**k)
        same = load() is load()
        load(strict=False)
        result = [same, len(calls)]
    """
    assert three.run(code) == [True, 1]


def test_loading_imports_nothing_heavy(three):
    code = """
        import sys
        from memcfg.registry import load
        load()
        heavy = ("torch", "transformers", "datasets", "accelerate", "peft", "hydra", "omegaconf", "numpy", "rich")
        result = [name for name in heavy if name in sys.modules]
    """
    assert three.seen_by(sys.executable).run(code) == []
