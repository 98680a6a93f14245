"""`memcfg plugins new NAME` writes a package that works as it is, or nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memcfg import RequestError, RunError
from memcfg.registry import load, scaffold
from memcfg.registry.scaffold import KINDS, LICENCES, Scaffold, check, files, write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("json", "a module of Python's standard library"),
        ("class", "a keyword of Python"),
        ("match", "a keyword of Python"),
        ("packing", "a plugin of this name is installed already (memcfg 0.1.0)"),
        ("run", "there are options of this name already, as `run.accumulation` of plugin `core`"),
        ("recipe", "memcfg's own word, or a config group, has this name"),
        ("assume", "memcfg's own word, or a config group, has this name"),
        ("dft", "there is a loss of this name already"),
        ("torch", "a package of this name is installed"),
        ("pytest", "a package of this name is installed"),
    ],
)
def test_names_that_are_taken(name, text):
    with pytest.raises(RequestError) as error:
        check(Scaffold(name), load())
    assert str(error.value).startswith(f"`{name}`: {text}")
    assert str(error.value).endswith("choose another name")


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Acme", "write `acme`"),
        ("my-plugin", "write `my_plugin`"),
        ("../acme", "write `acme`"),
        ("a b", "write `a_b`"),
        ("3d", "write a letter first"),
        ("", "write a letter first"),
        ("façade", "write `fa_ade`"),
    ],
)
def test_names_that_are_none(name, fix):
    with pytest.raises(RequestError) as error:
        check(Scaffold(name), load())
    assert "a plugin's name is of lower-case letters, digits and `_`, and begins with a letter" in str(error.value)
    assert str(error.value).endswith(fix)


def test_an_installed_package_of_its_name_is_in_the_way(tmp_path, monkeypatch):
    check(Scaffold("acme"), load())
    (tmp_path / "memcfg_acme.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RequestError, match="a package `memcfg_acme` is installed already"):
        check(Scaffold("acme"), load())


@pytest.mark.parametrize("licence", LICENCES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_to_fill_in(kind, licence):
    found = files(Scaffold("my_acme", kind, licence))
    for path, text in found.items():
        assert "{{" not in path + text
        assert "__name__" not in path
        assert "__package__" not in path
    assert ("LICENSE" in found) == (licence != "none")
    spelt = LICENCES[licence]
    assert (f'license = "{spelt}"\n' in found["pyproject.toml"]) == bool(spelt)
    assert 'name = "memcfg-my-acme"' in found["pyproject.toml"]


def test_what_is_there_stays(tmp_path):
    (tmp_path / "memcfg-acme").mkdir()
    with pytest.raises(RunError, match="there is something of this name already"):
        write(Scaffold("acme"), tmp_path)
    assert list((tmp_path / "memcfg-acme").iterdir()) == []


def test_half_a_package_is_never_left(tmp_path, monkeypatch):
    def full(folder: Path, texts: object) -> None:
        folder.mkdir()
        (folder / "pyproject.toml").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scaffold, "_fill", full)
    with pytest.raises(RunError, match=r"memcfg-acme`: cannot be written: no space left on device"):
        write(Scaffold("acme"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def tool(*words, cwd, path=()):
    """Run a module of this Python in a folder, further folders on its path."""
    known = os.environ.get("PYTHONPATH", "")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, path), known])), "COLUMNS": "200"}
    env = {key: value for key, value in env.items() if not key.startswith("MEMCFG_EXERCISED")}
    done = subprocess.run([sys.executable, "-m", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def worked(result):
    code, output = result
    assert code == 0, output
    return output


LOOK = """
import json, sys
import memcfg
def plan(words):
    try:
        found = memcfg.resolve(words)
    except memcfg.RequestError as error:
        return str(error)
    return {key: [repr(d.value), d.kind, d.rule] for key, d in found.decisions.items()}, found.active
requests = [[], ["+packing=bfd_split"], ["loss=nll", "trainer=sft"], ["trainer=dpo"], ["loss=acme", "acme.power=2"]]
print(json.dumps([plan(words) for words in requests]))
"""


@pytest.mark.slow
@pytest.mark.torch
def test_a_loss_is_installed_passes_its_own_tests_and_can_be_removed(tmp_path):
    folder, site, elsewhere = tmp_path / "memcfg-acme", tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "wrote memcfg-acme: 11 files" in worked(tool("memcfg", "plugins", "new", "acme", cwd=tmp_path))
    for lint in (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)):
        worked(tool(*lint, cwd=folder, path=[folder]))
    install = ("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site))
    worked(tool(*install, str(folder), cwd=tmp_path))
    assert "9 passed" in worked(tool("pytest", "-q", "-p", "no:cacheprovider", str(folder), cwd=elsewhere, path=[site]))

    (elsewhere / "look.py").write_text(LOOK)
    with_it = json.loads(worked(tool("look", cwd=elsewhere, path=[site])).splitlines()[-1])
    without = json.loads(worked(tool("look", cwd=elsewhere)).splitlines()[-1])
    (chosen, active), refused = with_it.pop(), without.pop()
    assert (chosen["loss.type"], chosen["acme.power"]) == (["'acme'", "you", None], ["2.0", "you", None])
    assert "acme" in active
    assert "acme" in refused
    for (present, now), (absent, before) in zip(with_it, without, strict=True):
        assert present.pop("acme.power")[1] == "default"
        assert (present, now) == (absent, before)


@pytest.mark.soak
@pytest.mark.torch
def test_a_data_technique_passes_its_own_tests(tmp_path):
    folder = tmp_path / "memcfg-short-docs"
    worked(tool("memcfg", "plugins", "new", "short_docs", "--kind", "data", "--license", "mit", cwd=tmp_path))
    for lint in (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)):
        worked(tool(*lint, cwd=folder, path=[folder]))
    assert "8 passed" in worked(tool("pytest", "-q", "-p", "no:cacheprovider", cwd=folder, path=[folder]))
