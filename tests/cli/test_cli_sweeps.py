"""Sweeps: what is pruned, how a job ends, what is resumed, what the exit code says."""

import json
import os
import sys
import time

import pytest

from memcfg.commands import job as jobs
from memcfg.commands.job import Job, Outcome, finished, last_error, make_room, read_status
from memcfg.commands.sweep import earlier, worst
from memcfg.commands.words import own_words
from memcfg.compose.sweeper import batches
from memcfg.errors import MemcfgError, RequestError

ROWS = [f"def f{n}(x):\n    return x + {n}\n" for n in range(24)]
SMALL = ("data=jsonl", "model.hidden=32", "model.layers=1", "truncation.max_length=32", "run.steps=1")


def status(number, folder, state="completed", overrides=("a=1",), **more):
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(number, overrides, str(folder), state, **more)
    jobs._write(outcome)
    return outcome


# ------------------------------------------------------------------------------------------------- without a process


def test_a_launcher_gets_jobs_whose_numbers_follow_each_other():
    todo = [(n, (f"a={n}",)) for n in (0, 1, 3, 4, 5, 9)]
    assert [[n for n, _ in batch] for batch in batches(todo, None)] == [[0, 1], [3, 4, 5], [9]]
    assert [[n for n, _ in batch] for batch in batches(todo, 2)] == [[0, 1], [3, 4], [5], [9]]
    assert list(batches([], None)) == []


def test_words_of_a_command_are_kept_from_the_request():
    menus = {"invalid": ("prune", "fail")}
    assert own_words(["a=1", "+sweep.invalid=fail"], "sweep", menus) == ({"invalid": "fail"}, ["a=1"])
    with pytest.raises(RequestError) as caught:
        own_words(["sweep.invalid=fial", "sweep.invald=fail"], "sweep", menus)
    assert str(caught.value) == (
        "`sweep.invalid`: `fial` is not one of `prune`, `fail`; did you mean `fail`?\n"
        "`sweep.invald`: no such option; did you mean `sweep.invalid`?"
    )


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("completed",), 0),
        (("completed", "refused"), 2),
        (("refused", "failed"), 1),
        (("completed", "interrupted"), 1),
        ((), 0),
    ],
)
def test_the_worst_job_decides_the_exit_code(states, code):
    assert worst([Outcome(0, (), "", state) for state in states]) == code


def test_a_reason_is_the_last_error_that_was_printed():
    said = "error: first\n  fix\nstep 1\nerror: `data.path`: no such file: `x`\n  look again\n"
    assert last_error(said) == "`data.path`: no such file: `x`\n  look again"
    assert last_error("all is well\n") == ""


def test_how_a_process_ended_is_told(tmp_path):
    begun = Outcome(0, (), str(tmp_path), "running")
    assert finished(begun, 1, "error: it broke\n").reason == "it broke"
    assert finished(begun, 3, "").reason == "ended with exit code 3"
    assert finished(begun, -9, "").reason == "ended by signal 9: out of memory on the host, most likely"
    (tmp_path / "report.json").write_text('{"loss_last": 2.5}')
    done = finished(begun, 0, "")
    assert (done.status, done.results) == ("completed", {"loss_last": 2.5})


def test_a_job_that_is_done_again_starts_clean(tmp_path):
    status(0, tmp_path, "failed")
    (tmp_path / "model").mkdir()
    for name in ("resolved.yaml", "metrics.jsonl", "completions.jsonl", "not_finite.json", "output.log", "mine.txt"):
        (tmp_path / name).write_text("")
    make_room(tmp_path, ("a=1",))
    assert sorted(os.listdir(tmp_path)) == ["mine.txt", "status.json"]
    with pytest.raises(MemcfgError, match="holds the results of another job: a=1"):
        make_room(tmp_path, ("a=2",))
    status(0, tmp_path, "completed")
    with pytest.raises(MemcfgError, match="holds the results of another job"):
        make_room(tmp_path, ("a=1",))


def test_only_what_was_completed_counts_as_done(tmp_path):
    done = status(0, tmp_path / "0", overrides=("a=1",))
    status(1, tmp_path / "1", "failed", overrides=("a=2",))
    status(2, tmp_path / "2", "running", overrides=("a=3",))
    status(3, tmp_path / "3", overrides=("a=9",))
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "status.json").write_text("{")
    assert earlier(tmp_path, [("a=1",), ("a=2",), ("a=3",)]) == [done]
    with pytest.raises(RequestError, match="there is no earlier sweep"):
        earlier(tmp_path / "none", [])


def test_an_unreadable_status_is_none(tmp_path):
    assert read_status(tmp_path / "status.json") is None


# ------------------------------------------------------------------------------------ without anything that can be run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["packing=bfd,wrapped", "truncation.max_length=null"],
            "error: `-m`: none of the 2 points can be run\n",
        ),
        (
            ["packing=none,bfd", "truncation.max_length=null", "sweep.invalid=fail"],
            "error: `sweep.invalid`: 1 of 2 points cannot be run\n"
            "  `sweep.invalid=prune` leaves them out and runs the others\n",
        ),
        (["packing=none,bfd", "sweep.resume=true"], "error: `sweep.resume`: there is no earlier sweep in"),
        (["run.steps=0,1"], "error: `run.steps`: "),
        ([], "error: `-m`: nothing to sweep: no option lists several values\n  list values, as in"),
        (["run.seed=1"], "error: `-m`: nothing to sweep"),
        (["run.steps=interval(1,2)"], "`run.steps=interval(1,2)` lists no values: a grid needs them one by one"),
        (
            ["run.learning_rate=range(1,0)"],
            "error: `run.learning_rate`: the range is empty: `run.learning_rate=range(1,0)`",
        ),
        (["run.steps=1,2", "sweep.invalid=perhaps"], "error: `sweep.invalid`: `perhaps` is not one of"),
    ],
)
def test_a_sweep_that_cannot_begin_leaves_nothing(memcfg, tmp_path, words, said):
    code, _, err = memcfg("-m", *words)
    assert code == 2
    assert said in err
    assert not list(tmp_path.iterdir())


def test_a_sweeps_folder_that_cannot_be_used_is_one_error(memcfg, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = memcfg("-m", "hydra.sweep.dir=file/x", "packing=none,bfd")
    assert code == 1
    assert err.splitlines() == [
        "error: `hydra.sweep.dir`: cannot use `file/x`: not a directory",
        "  choose a folder with room that you may write",
    ]


def test_excluded_points_are_grouped_by_their_rules(memcfg):
    words = ["packing=bfd,wrapped,none", "truncation.max_length=null", "trainer=sft,dpo", "sweep.invalid=fail"]
    code, out, _ = memcfg("-m", *words)
    assert code == 2
    assert " of 6 points cannot be run" in out
    assert "packing.max_length.needed" in out


class Program:
    """Stands for `python -m memcfg`: a script that is run in its place."""

    def __init__(self, monkeypatch, tmp_path):
        self.script = tmp_path / "program.py"
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {self.script} "$@"\n')
        python.chmod(0o755)
        monkeypatch.setattr(jobs.sys, "executable", str(python))

    def does(self, text):
        self.script.write_text(text)


@pytest.fixture
def program_in_place(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Program(monkeypatch, tmp_path)


WRITES = """\
import json, os, pathlib, sys
words = sys.argv[1:]
assert words[:3] == ["-m", "memcfg", "run"], words
plan = pathlib.Path(words[3])
assert words[4] == f"run.dir={plan.parent}"
text = plan.read_text()
print("training", plan.parent.name)
if "bfd_split" in text:
    print("error: it broke\\n  mend it")
    sys.exit(1)
(plan.parent / "report.json").write_text(json.dumps({"loss_last": 2.0, "peak_bytes": 2**20, "seconds": 1.0}))
"""


def swept(memcfg, *words):
    return memcfg("-m", "packing=none,bfd,bfd_split", "truncation.max_length=64,null", "hydra.sweep.dir=swept", *words)


@pytest.mark.torch  # a plan that will be run is looked at by its hooks
@pytest.mark.slow
def test_every_job_is_a_process_in_its_own_folder(memcfg, program_in_place, tmp_path):
    program_in_place.does(WRITES)
    code, out, err = swept(memcfg)
    assert code == 1
    assert "2 of 6 points cannot be run" in out
    assert "4 jobs, 3 completed, 1 failed" in out
    assert "training 3" in err
    found = {n: json.loads((tmp_path / "swept" / str(n) / "status.json").read_text()) for n in range(4)}
    assert [found[n]["status"] for n in range(4)] == ["completed", "completed", "completed", "failed"]
    assert found[3]["reason"] == "it broke\n  mend it"
    assert found[3]["overrides"] == ["packing=bfd_split", "truncation.max_length=64"]
    assert (tmp_path / "swept" / "3" / "output.log").read_text() == "training 3\nerror: it broke\n  mend it\n"
    lines = (tmp_path / "swept" / "sweep.csv").read_text().splitlines()
    assert lines[0].startswith("job,packing,truncation.max_length,status,")
    assert [line.split(",")[3] for line in lines[1:5]] == ["completed", "completed", "completed", "failed"]
    assert [line.split(",")[3] for line in lines if ",pruned," in line] == ["pruned", "pruned"]
    assert "| 3 | bfd_split | 64 | failed |" in (tmp_path / "swept" / "sweep.md").read_text()
    excluded = json.loads((tmp_path / "swept" / "sweep.json").read_text())["excluded"]
    assert [point["rules"] for point in excluded] == [["packing.max_length.needed"]] * 2
    assert "3 completed" in (tmp_path / "swept" / "report.html").read_text()


@pytest.mark.torch
@pytest.mark.slow
def test_a_resumed_sweep_runs_only_what_is_missing(memcfg, program_in_place, tmp_path):
    program_in_place.does(WRITES)
    swept(memcfg)
    before = (tmp_path / "swept" / "0" / "status.json").stat().st_mtime_ns
    program_in_place.does(WRITES.replace('"bfd_split" in text', "False"))
    code, out, err = swept(memcfg, "sweep.resume=true")
    assert code == 0
    assert "4 jobs, 4 completed" in out
    assert [line for line in err.splitlines() if line.startswith("training")] == ["training 3"]
    assert (tmp_path / "swept" / "0" / "status.json").stat().st_mtime_ns == before
    code, out, err = swept(memcfg, "sweep.resume=true")
    assert (code, "4 jobs, 4 completed" in out, "training" in err) == (0, True, False)


@pytest.mark.torch
def test_a_job_that_is_killed_says_so(memcfg, program_in_place, tmp_path):
    program_in_place.does("import os\nos.kill(os.getpid(), 9)\n")
    assert swept(memcfg)[0] == 1
    found = json.loads((tmp_path / "swept" / "0" / "status.json").read_text())
    assert (found["status"], found["exit_code"]) == ("failed", -9)


@pytest.mark.torch
def test_an_interrupted_sweep_says_what_was_cut(memcfg, program_in_place, tmp_path, monkeypatch):
    program_in_place.does(WRITES)

    def cut(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_run", cut)
    code, out, _ = swept(memcfg)
    assert code == 130
    assert json.loads((tmp_path / "swept" / "0" / "status.json").read_text())["status"] == "interrupted"
    assert "1 job, 1 interrupted" in out


# ------------------------------------------------------------------------------------------------------------ in earnest


@pytest.mark.torch
@pytest.mark.slow
def test_a_failed_job_stops_no_other(tmp_path, warm_program):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    begin = time.time()
    words = ("-m", *SMALL, "data.path=none.jsonl,rows.jsonl", "hydra.sweep.dir=swept")
    done = warm_program(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "2 jobs, 1 completed, 1 failed" in done.stdout
    found = [json.loads((tmp_path / "swept" / n / "status.json").read_text()) for n in "01"]
    assert "no such file: `none.jsonl`" in found[0]["reason"]
    assert found[1]["results"]["peak_bytes"] > 0
    assert (tmp_path / "swept" / "1" / "resolved.yaml").stat().st_mtime >= begin
    again = warm_program("run", "swept/1", "run.dir=swept/1", cwd=tmp_path)
    assert again.returncode == 1
    assert "`swept/1` already holds a run" in again.stderr


@pytest.mark.torch
@pytest.mark.slow
def test_jobs_may_share_one_process(tmp_path, warm_program):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    words = ("-m", *SMALL, "data.path=rows.jsonl", "run.seed=1,2", "sweep.isolation=inline", "hydra.sweep.dir=swept")
    done = warm_program(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 jobs, 2 completed" in done.stdout
    assert not (tmp_path / "swept" / "0" / "output.log").exists()


# ------------------------------------------------------------------------------------------------- secrets and folders


def test_a_secret_of_the_command_line_is_written_nowhere(tmp_path, program):
    (tmp_path / "memcfg_local.py").write_text(
        "from memcfg import Plugin, Setting\n"
        "token = Setting('mine.token', str, default=None, nullable=True, secret=True, doc='what opens the door')\n"
        "plugin = Plugin(name='mine', options=[token])\n"
    )
    words = ["mine.token=hf_sesame", "data=jsonl", "data.path=none.jsonl", "run.seed=1,2"]
    done = program("-m", "--local", *words, "hydra.sweep.dir=swept", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "no such file: `none.jsonl`" in done.stdout + done.stderr
    files = [path for path in (tmp_path / "swept").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"status.json", "sweep.csv", "sweep.md"}
    assert not [str(path) for path in files if "sesame" in path.read_text(errors="replace")]
    assert "sesame" not in done.stdout + done.stderr
    assert read_status(tmp_path / "swept" / "0" / "status.json").overrides[0] == "mine.token=***"


def test_jobs_cannot_share_a_folder(memcfg):
    code, _, said = memcfg("-m", "run.seed=1,2", "run.dir=same")
    assert code == 2
    assert said == (
        "error: `run.dir`: the jobs of a sweep cannot lie in one folder: each gets its\n  own\n"
        "  write `hydra.sweep.dir=FOLDER` for the folder of them all\n"
    )


def test_a_job_that_goes_on_keeps_what_it_has(tmp_path):
    status(0, tmp_path, "interrupted", overrides=("run.resume=auto",))
    (tmp_path / "checkpoint-2").mkdir()
    make_room(tmp_path, ("run.resume=auto",))
    assert (tmp_path / "checkpoint-2").is_dir()


@pytest.mark.slow
@pytest.mark.torch
def test_under_a_budget_each_job_is_fitted_or_refused_by_itself(memcfg, program_in_place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program_in_place.does(WRITES)
    shape = ("model.layers=1", "truncation.max_length=32", "run.batch_size=1", "hydra.sweep.dir=swept")
    code, out, _ = memcfg("-m", "+budget=8mib", "model.hidden=32,256", *shape)
    assert code == 2
    assert "2 jobs, 1 completed, 1 refused" in out
    found = {n: json.loads((tmp_path / "swept" / str(n) / "status.json").read_text()) for n in range(2)}
    assert [found[n]["status"] for n in range(2)] == ["completed", "refused"]
    reason = "`budget`: no set of lossless techniques fits 8 MiB; the least that was found needs "
    assert found[1]["reason"].startswith(reason)
    assert (tmp_path / "swept" / "0" / "resolved.yaml").exists()
    assert not (tmp_path / "swept" / "1" / "resolved.yaml").exists()
