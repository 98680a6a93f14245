"""What plugins are written against is what the checked-in list says, and old plugins are told what to do."""

import difflib
import importlib.util
import re
from pathlib import Path

import pytest

import memcfg
from memcfg.registry.plugin import API, OLDEST_API

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).parent / "api_reference.txt"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "tools/api_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_interface_is_the_one_on_the_list(tool):
    listed, found = LIST.read_text().splitlines(), tool.listing().splitlines()
    changed = [
        line for line in difflib.unified_diff(listed, found, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
    ]
    assert not changed, "\n".join(["the plugin interface changed; read docs/api-stability.md", *changed])


def test_the_pages_are_those_of_the_code(tool):
    stale = [path.name for path, text in tool.pages(ROOT).items() if path.read_text() != text]
    assert not stale, "run `python tools/generate_docs.py`"


def test_every_hook_rule_and_option_has_its_entry(tool):
    from memcfg.registry.hooks import SPECS
    from memcfg.solver.rules import Rule

    hooks, rules = tool.hooks_page(), tool.rules_page()
    assert {name for name in SPECS if f"### `{name}`" not in hooks} == set()
    kinds = {name for name, kind in vars(memcfg).items() if isinstance(kind, type) and issubclass(kind, Rule)}
    assert {name for name in kinds - {"Rule"} if f"### `{name}`" not in rules} == set()


def test_all_that_is_public_is_there_and_has_a_docstring():
    assert [name for name in memcfg.__all__ if not hasattr(memcfg, name)] == []
    undocumented = [n for n in memcfg.__all__ if callable(getattr(memcfg, n)) and not getattr(memcfg, n).__doc__]
    assert undocumented == []


def test_the_numbers_of_the_page_are_those_of_the_code():
    page = (ROOT / "docs/api-stability.md").read_text()
    assert f"written for plugin interface {API + 1}, and this memcfg offers {API}" in page
    assert f"written for plugin interface {OLDEST_API - 1}, and this memcfg needs {OLDEST_API} or newer" in page
    assert f"`Plugin(api={API})`" in page


@pytest.mark.parametrize("api", [API + 1, OLDEST_API - 1])
def test_a_plugin_for_another_interface_is_listed_and_stops_nothing(site, api):
    """As it is installed: the listing has the page's words, other requests resolve, its own key is refused with them."""
    text = f"from memcfg import Plugin, Setting\nplugin = Plugin(name='acme', api={api}, options=[Setting('acme.x', int, doc='x')])\n"
    site.add("acme-loss", {"acme.py": text}, "acme = acme:plugin")
    reason = re.search(
        rf"`(it is written for plugin interface {api}, .*?)`", (ROOT / "docs/api-stability.md").read_text()
    )[1]
    listing = site.cli("plugins")
    assert reason in " ".join(listing.stdout.split())
    asked = site.cli("resolve", "acme.x=1")
    assert asked.returncode == 2
    assert reason in " ".join(asked.stderr.split())


def test_two_plugins_of_one_name_are_both_left_out_and_named(site):
    for distribution in ("acme-one", "acme-two"):
        name = distribution.replace("-", "_")
        site.add(
            distribution,
            {f"{name}.py": "from memcfg import Plugin\nplugin = Plugin(name='acme')\n"},
            f"acme = {name}:plugin",
        )
    listing = " ".join(site.cli("plugins").stdout.split())
    for mine, other in (("acme-one", "acme-two"), ("acme-two", "acme-one")):
        assert f"broken: `acme` ({mine} 1.0): the name `acme` is also claimed by plugin `acme` ({other} 1.0)" in listing
    shown = site.cli("plugins", "show", "acme")
    assert shown.returncode == 2
    assert "both bring a plugin of this name" in " ".join(shown.stderr.split())
