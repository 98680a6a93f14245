"""`report.html` of a run: what it tells, what it does with torn, foreign and hostile folders."""

import json
import random

import pytest

from memcfg.errors import RunError
from memcfg.report.pages.charts import _span, short, thinned
from memcfg.report.pages.run import page_of, sections
from memcfg.runfiles import read

SECTIONS = ["Notes", "Loss", "Decisions", "Tokens and rows", "Lengths and packing", "Speed and gradients",
            "What the trainer logged", "Memory", "Proof", "Environment"]  # fmt: skip


def test_a_run_at_a_glance(run_folder, whole_page):
    page = whole_page(page_of(read(run_folder)))
    assert page.texts("h2") == SECTIONS
    assert page.texts("h1") == ["a-run"]
    assert page.texts("dd")[:3] == ["6.5from 7.5, at step 10", "5.5from 7.6, at step 11", "480tokens per second"]
    assert "memcfg run: sft on cpu 10 steps in 12.5 s" in page.texts("p")


def test_decisions_go_from_what_was_asked_to_what_the_run_did(run_folder, whole_page):
    rows = whole_page(page_of(read(run_folder))).texts("tr")
    strategy = next(row for row in rows if row.startswith("packing.strategy"))
    assert strategy == "packing.strategybfd-requeuebfd_splitbfd_splityou: command line (as bfd-requeue)"
    free = next(row for row in rows if row.startswith("padding_free.enabled"))
    assert free == "padding_free.enabledtruefalseforced, because documents must not see each other packing.free"
    assert "1 option not as planned" in page_of(read(run_folder))


def test_the_pictures_say_what_they_show(run_folder, whole_page):
    labels = [label for label in whole_page(page_of(read(run_folder))).labels("svg") if label]
    assert (
        "Loss: training from 7.5 at step 0 to 6.5 at step 10; held-out from 7.6 at step 0 to 5.5 at step 11" in labels
    )
    assert (
        "Of 1,000 tokens read: learned from: 700 (70.0 %); kept as context: 200 (20.0 %); cut off: 60 (6.0 %); "
        "dropped with their rows: 40 (4.0 %)"
    ) in labels
    assert "2 rows of the first step, 4 documents, 96.9 % filled" in labels


def test_a_run_that_was_gone_on_with_says_which_steps_it_has_seen(run_folder, whole_page):
    report = json.loads((run_folder / "report.json").read_text())
    (run_folder / "report.json").write_text(json.dumps(report | {"steps": 25}))
    seen = "Seen while training: 60 documents in 20 rows over 10 steps, the last of 25."
    assert seen in whole_page(page_of(read(run_folder))).texts("p")


def test_a_secret_is_nowhere_on_the_page(run_folder):
    assert "hunter2" not in page_of(read(run_folder))
    assert "***" in page_of(read(run_folder))


def test_memory_on_a_cpu_is_not_passed_off_as_a_measurement(run_folder):
    assert "the memory of a step is not measured" in page_of(read(run_folder))


def test_memory_predicted_and_measured(run_folder, whole_page):
    timeline = {"ms": [0.0, 1.0, 2.0], "kinds": {"weights": [100, 100, 100], "logits": [0, 900, 0]},
                "phases": [[0.0, "forward"], [1.0, "loss"]]}  # fmt: skip
    measured = {"peak_bytes": 2**30, "reserved_bytes": 2**31, "source": "cuda allocated"}
    predicted = {
        "peak_bytes": 2**30 * 1.01,
        "reserved_bytes": 2**31,
        "kinds": {"weights": 100, "logits": 900},
        "timeline": timeline,
    }
    (run_folder / "memory.json").write_text(json.dumps({"measured": measured, "predicted": predicted}))
    page = whole_page(page_of(read(run_folder)))
    assert "allocated at a step's peak1.00 GiB1.01 GiB+1.00 %" in page.texts("tr")
    assert "while evaluating" not in page_of(read(run_folder))
    assert "live memory by kind through one step" in page.labels("svg")
    measured |= {"peak_bytes": 2**31, "step_bytes": 2**30}
    (run_folder / "memory.json").write_text(json.dumps({"measured": measured, "predicted": predicted}))
    rows = whole_page(page_of(read(run_folder))).texts("tr")
    assert {"allocated at a step's peak1.00 GiB1.01 GiB+1.00 %", "allocated while evaluating or saving2.00 GiB"} <= set(
        rows
    )
    (run_folder / "memory.json").write_text(json.dumps({"measured": measured, "predicted": {"error": "no <model>"}}))
    assert "There is no prediction: no <model>" in whole_page(page_of(read(run_folder))).texts("p")


MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;"


def test_data_with_markup_in_it_is_shown_not_obeyed(run_folder, whole_page):
    (run_folder / "ledger.json").write_text(json.dumps({"tokens_in": 3, "reasons": {MARKUP: 1}, "notes": [MARKUP]}))
    (run_folder / "run.json").write_text(
        json.dumps({"status": "failed", "error": MARKUP, "command": [MARKUP], "platform": MARKUP})
    )
    (run_folder / "effective.json").write_text(
        json.dumps({MARKUP: {"resolved": MARKUP, "effective": 1, "evidence": MARKUP}})
    )
    (run_folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 1, MARKUP: 2.0}) + "\n")
    lines = [{"step": 1, "prompt": MARKUP, "completion": MARKUP * 9, MARKUP: 3, "reward": 0.5}]
    (run_folder / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = whole_page(page_of(read(run_folder)))
    assert page.count("script") == 1
    assert MARKUP in page.texts("pre")
    assert MARKUP * 9 in page.texts("div")
    assert "Completions" in page.texts("h2")


def test_a_torn_folder_shows_what_is_left_and_says_what_is_not(run_folder, whole_page):
    (run_folder / "ledger.json").write_text('{"tokens_in": 10')
    (run_folder / "report.json").unlink()
    (run_folder / "effective.json").write_text("[1]")
    (run_folder / "resolved.yaml").write_text("a: 1\n")
    with (run_folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 12, "lo')
    page = whole_page(page_of(read(run_folder)))
    assert {"Loss", "Lengths and packing", "Environment", "Notes"} <= set(page.texts("h2"))
    assert not {"Decisions", "Tokens and rows"} & set(page.texts("h2"))
    told = [
        row.removeprefix("not shown").removesuffix("run folder")
        for row in page.texts("tr")
        if row.startswith("not shown")
    ]
    assert told == [
        "effective.json is foreign: it holds no JSON object",
        "ledger.json is torn: it is no JSON",
        "resolved.yaml is no memcfg plan",
        "metrics.jsonl is torn at line 13: the other 12 lines are shown",
        "report.json is not there: the closing summary cannot be told",
    ]


def test_completions_have_a_column_for_each_reward(run_folder, whole_page):
    said = {
        "prompt": "2 + 2 is",
        "completion": "4, as <b>everyone</b> knows who can count",
        "rewards": {"right": 1.0, "short": 0.25},
    }
    (run_folder / "completions.jsonl").write_text(
        json.dumps({"step": 3, **said, "finished": True, "reward": 1.25}) + "\n"
    )
    page = whole_page(page_of(read(run_folder)))
    assert "stepcompletionpromptrewards: rightrewards: shortfinishedreward" in page.texts("tr")
    assert "34, as <b>everyone</b> knows who can count2 + 2 is10.25true1.25" in page.texts("tr")


@pytest.mark.parametrize(
    ("status", "said"), [("running", "not ended"), ("interrupted", "interrupted"), ("failed", "failed")]
)
def test_how_a_run_ended(run_folder, whole_page, status, said):
    (run_folder / "run.json").write_text(json.dumps({"status": status, "error": "error: `x`: no"}))
    page = whole_page(page_of(read(run_folder)))
    assert said in page.texts("span")
    assert "error: `x`: no" in page.texts("pre")


def test_whatever_the_files_hold_there_is_a_page(run_folder, whole_page):
    """A folder that is somebody else's: valid JSON of every wrong kind, in every place of every file."""
    dice = random.Random(0)
    odd = [
        None,
        True,
        -1,
        1e308,
        10**400,
        float("nan"),
        "x",
        MARKUP,
        [],
        [[]],
        {},
        {"a": {"b": [None]}},
        [1, "a", None],
    ]
    names = ["run.json", "effective.json", "ledger.json", "batches.json", "memory.json", "report.json"]
    whole = {name: (run_folder / name).read_text() for name in names}
    for _ in range(16):
        for name in names:
            changed = json.loads(whole[name])
            spoil(changed, dice, odd)
            (run_folder / name).write_text(json.dumps(changed))
        (run_folder / "metrics.jsonl").write_text(
            json.dumps({"step": dice.choice(odd), "loss": dice.choice(odd)}) + "\n"
        )
        whole_page(page_of(read(run_folder)))


def spoil(data, dice, odd):
    """Put something odd into one place of an object, at any depth."""
    key = dice.choice(list(data))
    if isinstance(data[key], dict) and data[key] and dice.random() < 0.7:
        spoil(data[key], dice, odd)
    elif isinstance(data[key], list) and data[key] and dice.random() < 0.7:
        data[key][dice.randrange(len(data[key]))] = dice.choice(odd)
    else:
        data[key] = dice.choice(odd)


def test_a_good_folder_is_shown_whole(run_folder):
    assert sections(read(run_folder)).wrong == []
    assert read(run_folder).faults == ()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "`{}`: no such folder"),
        ({}, "`{}`: holds no run: none of the files that a run writes is in it"),
        ({"a.txt": "x"}, "`{}`: holds no run: none of the files that a run writes is in it"),
        ({"ledger.json": "{"}, "`{}`: holds no run: `ledger.json` is torn: it is no JSON"),
    ],
)
def test_a_folder_with_nothing_to_show_is_refused(tmp_path, files, said):
    folder = tmp_path / "f"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(RunError) as caught:
        read(folder)
    (problem,) = caught.value.problems
    assert f"`{problem.key}`: {problem.text}" == said.format(folder)


def test_long_curves_keep_their_spikes():
    points = [(float(i), 1.0) for i in range(10_000)]
    points[5_001], points[7_000] = (5_001.0, 90.0), (7_000.0, -90.0)
    thin = thinned(points, 100)
    assert len(thin) <= 104
    assert {(5_001.0, 90.0), (7_000.0, -90.0), points[0], points[-1]} <= set(thin)
    assert thin == sorted(thin)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([7.8, 6.4], (6.4, 8.0)),
        ([0.0, 3.0], (0.0, 3.2)),
        ([5.0, 5.0], (4.5, 5.5)),
        ([0.0, 0.0], (-1.0, 1.0)),
        ([-3.0, 9.0], (-3.0, 9.0)),
    ],
)
def test_bounds_are_round_and_hold_every_value(values, bounds):
    low, high = _span(values)
    assert low <= min(values) <= max(values) <= high
    assert (round(low, 6), round(high, 6)) == bounds


def test_numbers_on_an_axis():
    assert [short(n) for n in (0, 1234567, 0.00012, 3.14159, 12345, -2.5)] == [
        "0",
        "1.2e6",
        "1.2e-4",
        "3.142",
        "12,345",
        "-2.5",
    ]
