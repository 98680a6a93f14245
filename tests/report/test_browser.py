"""Pages in a real browser; left out where there is none."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from memcfg.report.pages.run import page_of
from memcfg.report.pages.sweep import page_of as sweep_page
from memcfg.runfiles import read, read_sweep


@pytest.fixture(scope="module")
def looking():
    """`tools/look_at_report.py`, as a module."""
    file = Path(__file__).parents[2] / "tools" / "look_at_report.py"
    spec = importlib.util.spec_from_file_location("look_at_report", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["look_at_report"] = module
    spec.loader.exec_module(module)
    if module.browser() is None:
        pytest.skip("no Chromium here")
    return module


BAD = """<!doctype html><html lang="en"><body style="background: #fff"><p style="color: #ccc">pale</p>
<div style="width: 3000px">wide</div><a href="#gone">x</a><img src="elsewhere.png" alt="">
<script>console.log("hello"); nothing()</script></body></html>"""


@pytest.mark.slow
def test_pages_work_in_a_browser(looking, tmp_path, write_run):
    run = write_run(tmp_path / "swept" / "0")
    (run / "report.html").write_text(page_of(read(run)))
    (run / "status.json").write_text(
        json.dumps({"number": 0, "overrides": [], "status": "completed", "results": {"loss_last": 1.0}})
    )
    sweep = tmp_path / "swept" / "report.html"
    sweep.write_text(sweep_page(read_sweep(tmp_path / "swept")))
    bad = tmp_path / "bad.html"
    bad.write_text(BAD)
    with looking.chromium() as found:
        assert looking.look(found, run / "report.html", tmp_path) == []
        assert looking.look(found, sweep) == []
        wrong = "\n".join(looking.look(found, bad))
    assert len(list(tmp_path.glob("0-report-*.png"))) == len(looking.SCREENS)
    for said in ("pixels wider than the screen", 'p "pale"', "#gone leads nowhere", "on the console: hello", "nothing is not defined",
                 "elsewhere.png"):  # fmt: skip
        assert said in wrong
