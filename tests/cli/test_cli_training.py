"""Whole runs through the program: a run folder, its repetition, interruption, failure, a sweep."""

import json
import os
import signal
import subprocess

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROWS = [f"def f{n}(x):\n    return x + {n}\n" for n in range(24)]
SMALL = ("data=jsonl", "model.hidden=32", "model.layers=1", "truncation.max_length=32", "run.log_steps=1")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A folder with a data file in it."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    return folder


def losses(run_dir) -> list[float]:
    return [json.loads(line)["loss"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_a_run_and_its_repetition(bench, program, warm_program, whole_page):
    """The second run never resolves, lies in a new folder, and takes the same steps."""
    first = program(*SMALL, "data.path=rows.jsonl", "run.steps=3", "packing=bfd_split", cwd=bench)
    assert first.returncode == 0, first.stderr
    assert "packing.strategy" in first.stdout
    assert "trained 3 steps in " in first.stdout
    assert "of its start)" in first.stdout
    assert "preparing the data and the model" in first.stderr
    (run_dir,) = (bench / "runs").iterdir()
    assert {"resolved.yaml", "metrics.jsonl", "ledger.json", "effective.json", "model"} <= set(os.listdir(run_dir))

    again = warm_program("run", str(run_dir), "run.dir=again", "--quiet", cwd=bench)
    assert again.returncode == 0, again.stderr
    assert again.stdout.lstrip().startswith("trained 3 steps")
    assert losses(bench / "again") == losses(run_dir)
    assert first.stdout.splitlines()[-1].split() == ["report", f"runs/{run_dir.name}/report.html"]
    page = whole_page((run_dir / "report.html").read_text())
    assert {"Loss", "Decisions", "Tokens and rows", "Lengths and packing", "Memory", "Proof"} < set(page.texts("h2"))
    assert "not shown" not in page.texts("span"), "every file of a whole run can be shown"
    told = json.loads((bench / "again" / "run.json").read_text())
    assert (told["status"], told["command"][-3:]) == ("completed", [str(run_dir), "run.dir=again", "--quiet"])
    assert "value: again" in (bench / "again" / "resolved.yaml").read_text()

    taken = warm_program("run", str(run_dir), "run.dir=again", cwd=bench)
    assert taken.returncode == 1
    assert "`again` already holds a run" in taken.stderr


def test_a_run_without_data_leaves_nothing(tmp_path, program):
    done = program(*SMALL, "data.path=none.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "error: `data.path`: no such file: `none.jsonl`" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_an_interrupted_run_saves_its_step_and_is_gone_on_with(bench, warm_python, warm_program, number, code, word):
    process = subprocess.Popen(
        [warm_python, "-m", "memcfg", *SMALL, "data.path=rows.jsonl", "run.steps=100000", f"run.dir={word}"],
        cwd=bench, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 3/"):
            break
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == code
    assert rest.splitlines()[-1] == word
    assert "Traceback" not in rest
    taken = losses(bench / word)
    saved = f"{word}/checkpoint-{len(taken) - 1}"
    assert "stopping after this step, which is saved; ask again to stop at once" in rest
    assert f"saved `{saved}`:" in rest
    assert (bench / saved / "checkpoint.json").is_file()
    assert not (bench / word / ".lock").exists()

    steps = f"run.steps={len(taken)}"
    more = warm_program(*SMALL, "data.path=rows.jsonl", steps, f"run.dir={word}", "run.resume=auto", cwd=bench)
    assert more.returncode == 0, more.stderr
    assert f"going on from `{saved}`" in more.stderr
    assert losses(bench / word)[: len(taken)] == taken
    assert len(losses(bench / word)) == len(taken) + 1
    if number == signal.SIGINT:
        return
    again = warm_program("run", word, "run.resume=auto", cwd=bench)
    assert (again.returncode, "this run is finished already" in again.stdout) == (0, True)
