"""What the tutorial says is tried as it stands there."""

import re
from pathlib import Path

import pytest

from memcfg.registry.hooks import SPECS

PAGE = (Path(__file__).parents[2] / "docs" / "plugin-tutorial.md").read_text()
SMALL = ("model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=1", "data=jsonl", "data.path=rows.jsonl")


@pytest.fixture
def folder(tmp_path):
    text = re.search(r"<!-- file: memcfg_local.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)[1]
    assert len([line for line in text.splitlines() if line.strip()]) <= 26, "twenty lines, more or less"
    (tmp_path / "memcfg_local.py").write_text(text)
    (tmp_path / "rows.jsonl").write_text('{"text": "one line of text"}\n' * 8)
    return tmp_path


def test_the_twenty_lines_are_a_plugin_that_is_off_unless_asked_for(site, folder):
    assert "gentle" not in site.python("-m", "memcfg", "plugins", cwd=folder).stdout
    listing = site.python("-m", "memcfg", "plugins", "--local", cwd=folder).stdout
    assert re.search(r"gentle +local +ok", listing)
    refused = site.python("-m", "memcfg", "resolve", "--local", "gentle.floor=0.5", cwd=folder)
    assert (refused.returncode, "only gentle has a floor" in " ".join(refused.stderr.split())) == (2, True)
    off = site.python("-m", "memcfg", "resolve", "loss.type=gentle", cwd=folder)
    assert (off.returncode, "`gentle` is not one of" in off.stderr) == (2, True)


@pytest.mark.torch
def test_the_twenty_lines_train(site, folder):
    words = ("plugins", "trace", "--local", "loss.type=gentle", "gentle.floor=0.5", *SMALL)
    done = site.python("-m", "memcfg", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"memcfg_loss +gentle", done.stdout)


def test_the_page_names_what_exists():
    import memcfg.testing

    named = set(re.findall(r"\bmemcfg_[a-z_]+\b", PAGE)) - {"memcfg_local", "memcfg_gentle"}
    assert named <= set(SPECS)
    used = set(re.findall(r"\b(assert_\w+|PeakMemory)\b", PAGE))
    assert used <= set(memcfg.testing.__all__)
    assert {name for name in memcfg.testing.__all__ if name.startswith("assert_")} <= used
