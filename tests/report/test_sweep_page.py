"""`report.html` of a sweep: its jobs side by side."""

import json

import pytest

from memcfg.errors import RunError
from memcfg.report.pages.sweep import page_of
from memcfg.runfiles import is_sweep, read_sweep

POINT = {"overrides": ["packing=bfd", "truncation.max_length=null"], "rules": ["packing.max_length.needed"],
         "text": "you chose `packing.strategy=bfd`\n`packing.max_length.needed` forbids `<it>`"}  # fmt: skip


@pytest.fixture
def sweep_folder(tmp_path, write_run):
    """Three jobs: two that completed, one that failed before it began."""
    folder = tmp_path / "swept"
    for number, loss in ((0, 6.5), (1, 6.1)):
        job = write_run(folder / str(number))
        (job / "report.html").write_text("x")
        status(
            job,
            number,
            "completed",
            results={"loss_last": loss, "tokens_per_second": 100 - number, "peak_bytes": 2**30},
        )
    (folder / "2").mkdir()
    status(folder / "2", 2, "failed", reason="it <broke>\n  mend it")
    (folder / "sweep.json").write_text(json.dumps({"jobs": [], "excluded": [POINT]}))
    return folder


def status(job, number, said, reason="", results=None):
    words = ["data=jsonl", f"run.seed={number}"]
    data = {"number": number, "overrides": words, "status": said, "reason": reason, "results": results or {}}
    (job / "status.json").write_text(json.dumps(data))


def test_the_jobs_side_by_side(sweep_folder, whole_page):
    page = whole_page(page_of(read_sweep(sweep_folder)))
    assert page.texts("h2") == ["Jobs", "Losses", "Points that cannot be run", "Jobs without a result"]
    rows = page.texts("tr")
    assert "0run.seed=0completed6.50001001.00 GiBopen" in rows
    assert "1run.seed=1completed6.1000991.00 GiBopen" in rows
    assert "2run.seed=2failed" in rows
    assert "In every job: data=jsonl" in page.texts("p")
    assert [e.attributes["href"] for e in page.elements if e.name == "a" and e.text == "open"] == [
        "./0/report.html",
        "./1/report.html",
    ]
    best = [e.text for e in page.elements if e.name == "td" and "best" in (e.attributes.get("class") or "")]
    assert best == ["100", "1.00 GiB", "6.1000", "1.00 GiB"]
    drawn = next(label for label in page.labels("svg") if label.startswith("training loss: "))
    assert drawn.startswith("training loss: 0: run.seed=0 from 7.5 at step 0 to 6.5 at step 10; 1: run.seed=1 from")


def test_what_was_left_out_and_why(sweep_folder, whole_page):
    page = whole_page(page_of(read_sweep(sweep_folder)))
    assert "1 point: packing.max_length.needed" in page.texts("h3")
    assert "packing.max_length.needed forbids <it>" in page.texts("p")
    assert "it <broke>\n  mend it" in page.texts("pre")


def test_torn_jobs_are_named(sweep_folder, whole_page):
    (sweep_folder / "sweep.json").unlink()
    (sweep_folder / "1" / "status.json").write_text("{")
    (sweep_folder / "0" / "ledger.json").write_text("{")
    assert is_sweep(sweep_folder)
    page = whole_page(page_of(read_sweep(sweep_folder)))
    assert "1/status.jsonis torn: it is no JSON" in page.texts("tr")
    assert "0/ledger.jsonis torn: it is no JSON" in page.texts("tr")
    assert "sweep.jsonis not there, so that points which could not be run are not told" in page.texts("tr")


def test_whatever_a_status_holds_there_is_a_page(sweep_folder, whole_page):
    for odd in ({}, {"number": "x", "overrides": 3, "results": [1], "status": None}, {"results": {"loss_last": "low"}}):
        (sweep_folder / "0" / "status.json").write_text(json.dumps(odd))
        whole_page(page_of(read_sweep(sweep_folder)))


def test_which_folder_is_a_sweep(sweep_folder, tmp_path):
    assert is_sweep(sweep_folder)
    assert not is_sweep(sweep_folder / "0")
    assert not is_sweep(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="holds no run"):
        read_sweep(tmp_path / "empty")
