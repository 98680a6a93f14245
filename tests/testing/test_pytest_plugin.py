"""What memcfg's plugin for pytest costs and offers in somebody else's project."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

TESTS = """
import sys

loaded = {name.partition(".")[0] for name in sys.modules}


def test_nothing_is_loaded_unasked():
    assert not loaded & {"memcfg", "torch", "transformers"}


def test_the_lab_is_there(lab):
    from memcfg import Bool, Default, Plugin

    on = Bool("acme.on", doc="whether")
    lab.add(Plugin(name="acme", options=[on], rules=[Default(on, True, id="acme.on.default", because="it is day")]))
    assert lab.resolve().because("acme.on") == "it is day"
    assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_in_a_project_of_its_own(tmp_path):
    (tmp_path / "test_acme.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_it_is_an_entry_point():
    assert entry_points(group="pytest11")["memcfg"].value == "memcfg_pytest"
