"""`memcfg report`: the page made again from a folder's files."""

import json

import pytest


@pytest.fixture
def folder(tmp_path):
    """A run of which only the metrics and a torn ledger are left."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    (tmp_path / "a" / "ledger.json").write_text("{")
    return tmp_path / "a"


def test_a_page_is_made_again_and_what_is_torn_is_said(memcfg, folder):
    code, out, err = memcfg("report", "a")
    assert (code, out) == (0, "wrote a/report.html\n")
    assert err.splitlines()[0] == "warning: `ledger.json` is torn: it is no JSON"
    assert "2.5" in (folder / "report.html").read_text()
    assert memcfg("report", "a/metrics.jsonl", "--out", "b.html", "-q") == (0, "wrote b.html\n", "")
    assert memcfg("report", "a", "-q")[1:] == ("wrote a/report.html\n", "")


def test_the_same_for_programs(memcfg, folder):
    code, out, err = memcfg("report", "a", "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert (said["ok"], said["kind"], said["file"]) == (True, "run", "a/report.html")
    assert {"file": "ledger.json", "text": "is torn: it is no JSON"} in said["faults"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "error: `report` takes one folder\n  write `memcfg report RUN [--out FILE]`, with the folder of a run or of a sweep\n"),
        (("a", "b"), 2, "error: `report` takes one folder\n  write `memcfg report RUN [--out FILE]`, with the folder of a run or of a sweep\n"),
        (("nowhere",), 1, "error: `nowhere`: no such folder\n  name the folder of a run or of a sweep\n"),
        (
            (".",), 1,
            "error: `.`: holds no run: none of the files that a run writes is in it\n"
            "  name the folder of a run or of a sweep, as in `runs/TIME`\n",
        ),
        (
            ("notes.txt",), 1,
            "error: `notes.txt`: its folder holds no run: none of the files that a run writes\n  is in it\n"
            "  name the folder of a run or of a sweep, as in `runs/TIME`\n",
        ),
        (("a", "--out", "no/where.html"), 1, "error: cannot write `no/where.html`: no such file or directory\n"),
        (("a", "--yaml"), 2, "error: `--yaml`: `report` does not read this flag\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_reported_on_is_refused(memcfg, folder, words, code, said):
    folder.with_name("notes.txt").write_text("to do")
    found, out, err = memcfg("report", *words)
    assert (found, out) == (code, "")
    assert err[err.index("error:") :] == said
