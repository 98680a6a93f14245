"""Going on from a checkpoint is exact to the last bit, and refused where it cannot be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from memcfg import Decision, Plan, RunError
from memcfg.engine import checkpoint, resuming
from memcfg.engine.execute import train
from memcfg.engine.joining import Group

pytestmark = pytest.mark.torch


class Killed(BaseException):
    """What no part of a run catches."""


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_speed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in found]


def with_dropout(bench: Any) -> Callable[..., Any]:
    return lambda plan, device: bench.model(attention_dropout=0.2).to(device)


@pytest.fixture
def run(bench: Any, tmp_path: Path) -> Callable[..., dict[str, torch.Tensor]]:
    """Trains in a folder, dying in the given steps, each time going on; the final weights."""

    def go(name: str, *deaths: int, rows: Any = None, hooks: dict[str, Any] | None = None, **plan: Any) -> Any:
        settings = {"run_steps": 8, "run_log_steps": 3, "run_save_steps": 2, **plan}
        more = {"load_model": with_dropout(bench), "held_out": bench.rows(seed=5), **(hooks or {})}
        made = (lambda: None) if rows is None else rows
        for death in deaths:
            counted = {"steps": 0}

            class Dying(bench.Objective):  # type: ignore[name-defined, misc]
                def loss_sum(self, model: Any, batch: Any, counted: Any = counted, death: int = death) -> torch.Tensor:
                    counted["steps"] += model.training and torch.is_grad_enabled()
                    if counted["steps"] == death:
                        raise Killed
                    return super().loss_sum(model, batch)

            dying = bench.Hooks(made(), **more, objective=lambda plan, kind=Dying: kind())
            with pytest.raises(Killed):
                train(bench.plan(**settings, run_resume="auto"), dying, tmp_path / name)
        resume = {"run_resume": "auto"} if deaths else {}
        train(bench.plan(**settings, **resume), bench.Hooks(made(), **more), tmp_path / name)
        return load_file(tmp_path / name / "model" / "model.safetensors")

    return go


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_that_dies_again_and_again_ends_with_the_same_weights(
    run: Any, tmp_path: Path, accumulation: int
) -> None:
    """Six rows in steps of two or four: epochs end in the middle, dropout draws from the random streams."""
    asked = {"run_accumulation": accumulation}
    whole = run("whole", **asked)
    pieces = run("pieces", 4 * accumulation, 3 * accumulation, 1, **asked)
    assert whole.keys() == pieces.keys()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    assert without_speed(lines(tmp_path / "pieces")) == without_speed(lines(tmp_path / "whole"))
    for name in ("ledger.json", "batches.json"):
        assert (tmp_path / "pieces" / name).read_text() == (tmp_path / "whole" / name).read_text(), name


def said(bench: Any, folder: Path, **plan: Any) -> list[str]:
    """What a user is told when a plan is trained in a folder."""
    told = bench.Told()
    train(bench.plan(**plan), bench.Hooks(), folder, reporter=told)
    return [entry[1] for entry in told.said if entry[0] == "note"]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one run with checkpoints lies, for all tests that need one."""
    return tmp_path_factory.mktemp("once")


@pytest.fixture
def begun(bench: Any, once: Path, tmp_path: Path) -> Path:
    """A run with checkpoints after two and four steps."""
    if not (once / "run").exists():
        train(bench.plan(run_steps=4, run_save_steps=2), bench.Hooks(), once / "run")
        shutil.rmtree(once / "run" / "model")
    shutil.copytree(once / "run", tmp_path / "run")
    return tmp_path / "run"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    """One byte is another, and the size the same: what a failing disk does."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


TORN = {
    "a file is missing": (lambda c: (c / "optimizer.pt").unlink(), "it lacks `optimizer.pt`"),
    "the place in the data is missing": (lambda c: (c / "loader.json").unlink(), "it lacks `loader.json`"),
    "weights are cut off": (lambda c: truncate(c / "model.safetensors"), "`model.safetensors` has "),
    "weights are damaged": (lambda c: flip(c / "model.safetensors"), "`model.safetensors` is not what was written"),
    "the optimizer is damaged": (lambda c: flip(c / "optimizer.pt"), "`optimizer.pt` is not what was written"),
    "it was never finished": (
        lambda c: (c / "checkpoint.json").unlink(),
        "it has no `checkpoint.json`, which is written last",
    ),
    "its list is damaged": (lambda c: truncate(c / "checkpoint.json"), "its `checkpoint.json` cannot be read"),
}


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_checkpoint_is_named_and_the_one_before_it_used(bench: Any, begun: Path, tear: str) -> None:
    damage, reason = TORN[tear]
    damage(begun / "checkpoint-4")
    first, second = said(bench, begun, run_steps=5, run_resume="auto")
    assert first.startswith(f"`{begun / 'checkpoint-4'}` is not whole and is left out: {reason}")
    assert second == f"going on from `{begun / 'checkpoint-2'}`"
    assert [line["step"] for line in lines(begun)][-1] == 5


def test_without_a_checkpoint_auto_begins_anew_and_says_so(bench: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(
        '{"step": 0, "loss": 99.0}\n{"step": 1, "lo'
    )  # died before its first checkpoint
    assert said(bench, folder, run_resume="auto") == [f"no whole checkpoint in `{folder}`: training begins anew"]
    assert [line["step"] for line in lines(folder)] == [0, 1, 2, 4]
    assert lines(folder)[0]["loss"] < 10


def test_a_path_goes_on_in_a_folder_of_its_own(bench: Any, begun: Path, tmp_path: Path) -> None:
    """As a branch: the run that it came from stays as it was, the metrics up to there are those of both."""
    before = lines(begun)
    told = said(bench, tmp_path / "branch", run_steps=6, run_resume=str(begun / "checkpoint-2"))
    assert told == [f"going on from `{begun / 'checkpoint-2'}`"]
    assert lines(begun) == before
    branch = lines(tmp_path / "branch")
    assert [line["step"] for line in branch] == [0, 1, 2, 4, 6]
    assert branch[:3] == before[:3]
    assert (tmp_path / "branch" / "resolved.yaml").is_file()


def test_nothing_is_left_to_do_after_the_last_step_but_the_model(bench: Any, begun: Path) -> None:
    said(bench, begun, run_steps=4, run_resume="auto")
    weights = load_file(begun / "model" / "model.safetensors")
    assert all(torch.equal(p, weights[n]) for n, p in load_file(begun / "checkpoint-4" / "model.safetensors").items())
    assert [line["step"] for line in lines(begun)] == [0, 1, 2, 4]


def message(bench: Any, folder: Path, hooks: Any = None, **plan: Any) -> str:
    with pytest.raises(RunError) as raised:
        train(bench.plan(**plan), hooks or bench.Hooks(), folder)
    return str(raised.value)


def test_what_decides_the_result_may_not_change(bench: Any, begun: Path) -> None:
    found = message(
        bench, begun, run_steps=6, run_resume="auto", run_seed=1, run_batch_size=3, loss_type="dft", run_log_steps=1
    )
    assert found == (
        "`loss.type`: the checkpoint has `nll`, this run `dft`\n"
        "`run.batch_size`: the checkpoint has `2`, this run `3`\n"
        "`run.seed`: the checkpoint has `0`, this run `1`\n"
        "  give it the value of the checkpoint, or begin a new run: the result would be that of neither"
    )


def test_the_rows_may_not_change(bench: Any, begun: Path) -> None:
    fix = "\n  give it the data and the tokenizer that it was begun with, or begin a new run"
    more = message(bench, begun, bench.Hooks(bench.rows((9, 3, 7, 5, 12, 4, 2))), run_steps=6, run_resume="auto")
    head = "`run.resume`: the prepared rows are not those of the checkpoint: "
    assert more == f"{head}6 rows of 40 tokens then, 7 rows of 42 tokens now{fix}"
    assert (
        message(bench, begun, bench.Hooks(bench.rows(seed=2)), run_steps=6, run_resume="auto")
        == f"{head}their content differs{fix}"
    )


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"run_resume": "{here}/nowhere"}, "`run.resume`: no such folder: `{here}/nowhere`"),
        (
            {"run_resume": "{run}/checkpoint-2"},
            "`run.resume`: `{run}` holds later checkpoints (`checkpoint-4`)\n"
            "  go on in another `run.dir`, or from the newest: `run.resume=auto`",
        ),
        (
            {"run_resume": "auto", "run_steps": 3},
            "`run.steps`: `{run}/checkpoint-4` has taken 4 steps already\n  run.steps=4 or more",
        ),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_gone_on_from(bench: Any, begun: Path, asked: dict[str, Any], text: str) -> None:
    here, plan = str(begun.parent), {"run_steps": 6, **asked}
    if "{" in str(plan["run_resume"]):
        plan["run_resume"] = plan["run_resume"].format(here=here, run=begun)
    folder = begun if "nowhere" not in plan["run_resume"] else begun.parent / "new"
    assert message(bench, folder, **plan) == text.format(here=here, run=begun)


def test_a_finished_run_without_checkpoints_is_not_begun_anew(bench: Any, tmp_path: Path) -> None:
    train(bench.plan(), bench.Hooks(), tmp_path / "run")
    assert message(bench, tmp_path / "run", run_steps=9, run_resume="auto") == (
        f"`run.resume`: `{tmp_path / 'run'}` holds a finished run and no checkpoint to go on from\n  choose another `run.dir`"
    )


def test_the_oldest_checkpoints_go_once_the_newest_is_whole(bench: Any, tmp_path: Path) -> None:
    train(bench.plan(run_steps=7, run_save_steps=2, run_keep_checkpoints=2), bench.Hooks(), tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint*")) == ["checkpoint-6", "checkpoint-7"]
    assert not list((tmp_path / "run").glob(".*"))


def test_what_else_has_a_state_is_saved_and_given_back(bench: Any, tmp_path: Path) -> None:
    class Counting(bench.Objective):  # type: ignore[name-defined, misc]
        """As an objective with a running mean of its own."""

        total = torch.zeros(1)

        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            if model.training and torch.is_grad_enabled():
                self.total = self.total + 1
            return super().loss_sum(model, batch)

        def state_dict(self) -> dict[str, Any]:
            return {"total": self.total}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.total = state["total"]

    made: list[Counting] = []
    hooks = bench.Hooks(objective=lambda plan: made.append(Counting()) or made[-1])
    train(bench.plan(run_steps=3, run_save_steps=2), hooks, tmp_path / "run")
    kept = torch.load(tmp_path / "run" / "checkpoint-2" / "objective.pt", weights_only=True)
    train(bench.plan(run_steps=4, run_resume=str(tmp_path / "run" / "checkpoint-2")), hooks, tmp_path / "on")
    assert made[1].total == kept["total"] + 2


def test_no_pickle_is_left_that_would_run_code(begun: Path) -> None:
    for file in (*begun.rglob("*.pt"), *begun.rglob("*.pth")):
        assert file.name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")
    assert not list(begun.rglob("*.bin"))


def test_a_plugin_that_came_or_went_does_not_matter(bench: Any, begun: Path) -> None:
    plan = bench.plan(run_steps=5, run_resume="auto")
    more = Plan({**plan.decisions, "soup.kind": Decision("thick", "default")})
    train(more, bench.Hooks(), begun)
    asked = Plan({**bench.plan(run_steps=6, run_resume="auto").decisions, "soup.kind": Decision("thin", "you")})
    with pytest.raises(RunError, match=r"`soup.kind`: the checkpoint has no such option, this run `thin`"):
        train(asked, bench.Hooks(), begun)


def test_a_checkpoint_lists_every_file(begun: Path) -> None:
    listed = set(json.loads((begun / "checkpoint-4" / "checkpoint.json").read_text())["files"])
    there = {path.name for path in (begun / "checkpoint-4").iterdir()}
    assert there == listed | {"checkpoint.json"}
    assert {
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "loader.json",
        "ledger.json",
    } <= listed
    assert checkpoint.read(begun / "checkpoint-4").step == 4


def test_what_a_run_leaves_is_as_readable_as_any_new_file(bench: Any, begun: Path) -> None:
    """The library that writes weights makes them private."""
    said(bench, begun, run_steps=6, run_resume="auto")
    (begun / "plain").write_text("")
    usual = (begun / "plain").stat().st_mode
    assert {str(file): oct(file.stat().st_mode) for file in begun.rglob("*") if file.is_file()} == {
        str(file): oct(usual) for file in begun.rglob("*") if file.is_file()
    }


def test_a_file_that_the_disk_does_not_give_back_is_named(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(file: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint, "checksum_of", failing)
    with pytest.raises(checkpoint.Torn, match=r"`\w+\.\w+` cannot be read: input/output error"):
        checkpoint.read(begun / "checkpoint-4", checkpoint.Sums())


def test_one_process_of_a_host_reads_a_checkpoint_through_and_the_others_take_its_word(
    bench: Any, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, given = [], []
    true = checkpoint.checksum_of
    monkeypatch.setattr(checkpoint, "checksum_of", lambda file: read.append(file.name) or true(file))

    class Met(Group):
        """Four processes on two hosts, one after the other: what those before it gave is known."""

        def all(self, value: Any) -> list[Any]:
            given.append(value)
            return given

    plan = bench.plan(run_resume="auto", run_steps=6)
    flip(begun / "checkpoint-4" / "optimizer.pt")
    for rank, (host, local) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        monkeypatch.setattr("platform.node", lambda host=host: host)
        told: list[str] = []
        begin = resuming.start(plan, begun, told.append, Met(rank, 4, local))
        assert (begin.point.step, len(told)) == (2, 2)
    assert read.count("optimizer.pt") == 4  # on each host that of the newest, which is damaged, and of the one before
    assert read[: len(read) // 2] == read[len(read) // 2 :]


def test_what_may_change_is_what_moves_no_number() -> None:
    """The bench's plans say the same as the real options."""
    from memcfg.core import plugin
    from memcfg.registry import load

    free = {option.key for option in plugin.options if option.free}
    assert free == {
        "run.dir", "run.steps", "run.log_steps", "run.save_steps", "run.eval_steps", "run.keep_checkpoints", "run.resume",
        "run.on_oom", "run.report_to", "budget.bytes", "plugins.off",
    }  # fmt: skip
    others = {key for key, option in load().theory.options.items() if option.free} - free
    whole = ("checkpointing.", "offload.", "allocator.")
    assert {key for key in others if not key.startswith((*whole, "vllm."))} == {
        "dpo.watch_tokens", "kto.watch_tokens", "gkd.teacher_offload",
    }  # fmt: skip
    assert {key.partition(".")[0] + "." for key in others} >= set(whole)
