"""`memcfg plan`: the ladder, and the questions from the other end."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from memcfg.cli import main
from memcfg.commands.fit import fitted, request_of
from memcfg.compose import compose
from memcfg.errors import Problem, RequestError, RunError
from memcfg.planner import cores
from memcfg.planner.predict import predict
from memcfg.planner.prediction import MARGIN
from memcfg.registry import Registry
from memcfg.report.words import gib

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SHAPE = (
    "assume.device=h100",
    "model=shape",
    "model.preset=smollm2-135m",
    "run.batch_size=4",
    "truncation.max_length=1024",
)
AXES = "plan.axes=[checkpointing,run.batch_size]"


def ladder(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["plan", "--json", "--quiet", *SHAPE, *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def of_8_gib() -> dict[str, Any]:
    """A ladder that several tests look at: each of its rungs is a simulation."""
    with redirect_stdout(io.StringIO()) as said:
        assert main(["plan", "--json", "--quiet", *SHAPE, "budget=8gib", AXES, "plan.find=false"]) == 0
    return dict(json.loads(said.getvalue()))


def test_rungs_fit_and_each_slower_one_is_smaller(of_8_gib: dict[str, Any]) -> None:
    data, rungs = of_8_gib, of_8_gib["rungs"]
    assert all(rung["needed_bytes"] <= data["budget_bytes"] * (1 - MARGIN) for rung in rungs)
    times, sizes = [r["step_ms"] for r in rungs], [r["needed_bytes"] for r in rungs]
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    assert not any(rung["changes"] for rung in rungs)


def test_every_rung_can_be_pasted(capsys: pytest.CaptureFixture[str], of_8_gib: dict[str, Any]) -> None:
    for rung in of_8_gib["rungs"]:
        assert main(["predict", "--json", "--quiet", *SHAPE, "budget=8gib", *rung["overrides"]]) == 0
        assert json.loads(capsys.readouterr().out)["needed_bytes"] == rung["needed_bytes"]


def test_nothing_fits_says_what_the_least_is(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", "--quiet", *SHAPE, "budget=1gib", "plan.axes=[checkpointing]", "plan.find=false"])
    out = capsys.readouterr().out
    assert code == 1
    assert "nothing fits" in out
    assert "the least that was found is" in out


def test_what_is_kept_does_not_vary(capsys: pytest.CaptureFixture[str]) -> None:
    _, data = ladder(capsys, "budget=8gib", AXES, "plan.keep=[checkpointing]", "plan.find=false")
    assert not any("checkpointing" in word for rung in data["rungs"] for word in rung["overrides"])


def test_the_longest_length_fits_and_a_longer_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    _, data = ladder(capsys, "budget=3gib", "plan.axes=[checkpointing]")
    overrides = (data["rungs"] or [data["least"]])[-1]["overrides"]

    def fits(*words: str) -> bool:
        code = main(["predict", "--json", "--quiet", *SHAPE, "budget=3gib", *overrides, *words])
        capsys.readouterr()
        return code == 0

    assert fits(f"truncation.max_length={data['max_length']}")
    assert not fits(f"truncation.max_length={int(1.2 * data['max_length'])}")
    assert fits(f"run.batch_size={data['batch_size']}")
    assert data["smallest_card"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan.axes=[checkpoint]",), "checkpointing"),
        (("plan.axis=[checkpointing]",), "plan.axes"),
        (("plan.axes=[]",), "`[]` names nothing"),
        (("plan.allow=,",), "`,` names nothing"),
        (("plan.find=maybe",), "neither `true` nor `false`"),
        (("plan.keep=",), "plan.keep"),
    ],
)
def test_words_that_the_planner_does_not_read(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--quiet", *SHAPE, "budget=8gib", *words]) == 2
    assert said in capsys.readouterr().err


STAGES = """\
looking for technique sets that fit ...
outlining 3 valid sets, the most hopeful first ...
simulating what may fit ...
"""


def test_a_log_has_a_line_for_each_stage_and_more_cores_answer_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["plan", *SHAPE, "budget=3gib", "plan.axes=[checkpointing]", "plan.find=false"]
    monkeypatch.setattr(cores, "forkable", lambda: True)
    monkeypatch.setattr(cores, "cores", lambda: 2)
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == STAGES
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(cores, "cores", lambda: 1)
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr() == (said.out, "")


NOT_VARIED = """\
import sys
from memcfg.cli import main
print(main(["plan", "model=shape", "model.preset=smollm2-135m", "budget=8gib", "plan.axes=[checkpoint]"]), "torch" in sys.modules)
"""


def test_a_name_that_is_no_axis_is_refused_before_torch_is_loaded(light_python: str, tmp_path: Path) -> None:
    found = subprocess.run([light_python, "-c", NOT_VARIED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout == "2 False\n"
    assert (
        "`plan.axes`: `checkpoint` is nothing that the planner varies\n  did you mean `checkpointing`" in found.stderr
    )


def test_a_budget_chooses_lossless_techniques_with_a_reason(registry: Registry) -> None:
    words = [*SHAPE, "checkpointing=none"]
    whole = predict(registry.plan(compose(words, registry=registry)), registry).needed_bytes
    budget = int(0.75 * whole)
    request = compose([*words, f"budget={budget}"], registry=registry)
    asked = registry.plan(request)
    plan = fitted(request, registry)
    changed = {key for key in plan if plan[key] != asked[key]}
    assert changed
    assert "checkpointing.mode" not in changed
    for key in changed & {"run.batch_size", "offload.activations"}:
        assert plan.decisions[key].rule == "budget.bytes.planner"
        assert gib(budget) in (plan.decisions[key].because or "")
    assert predict(plan, registry).verdict(budget) == "fits"


def test_a_budget_that_nothing_fits_is_refused_with_what_would_be_needed(registry: Registry) -> None:
    with pytest.raises(RequestError) as caught:
        fitted(compose([*SHAPE, "budget=900mib", "run.batch_size=1"], registry=registry), registry)
    said = str(caught.value)
    assert said.startswith("`budget`: no set of lossless techniques fits 900 MiB; the least that was found needs ")
    assert " of it for the weights and what lies outside the allocator\n" in said


def test_a_laptop_plans_for_the_card_that_has_the_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = [word for word in SHAPE if not word.startswith("assume")]
    assert main(["plan", *words, "budget=24gib", "plan.axes=[checkpointing]", "plan.find=false"]) == 0
    said = capsys.readouterr()
    assert "on rtx4090" in said.out
    assert said.err.startswith(
        "note: this host has no GPU; supposing `assume.device=rtx4090` (23.99 GiB).\n  `assume.device=cpu` means this host\n"
    )


def test_a_technique_that_needs_a_gpu_is_planned_for_on_a_laptop(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = [word for word in SHAPE if not word.startswith("assume")]
    assert main(["predict", *words, "offload=checkpoint_inputs", "budget=24gib"]) == 0
    said = capsys.readouterr()
    assert said.err.count("supposing `assume.device=rtx4090`") == 1
    assert main(["predict", *words, "offload=checkpoint_inputs"]) == 2
    assert "note: this host has no GPU; `assume.device=h100` plans for one that you name" in capsys.readouterr().err


def test_a_set_that_cannot_be_simulated_is_left_out_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules do not know everything: a model may have no layer that a technique could change."""
    import memcfg.planner.search as search

    plain = search.outline

    def outline(plan: Any, hooks: Any, machine: Any) -> Any:
        if plan["mlp.mode"] == "tiled":
            raise RunError(Problem("this model has no feed-forward layers", key="mlp.mode"))
        return plain(plan, hooks, machine)

    monkeypatch.setattr(search, "outline", outline)
    words = ["plan", *SHAPE, "budget=40gib", "plan.axes=[checkpointing,mlp]", "plan.find=false"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["omitted"] == ["mlp.mode=tiled: `mlp.mode`: this model has no feed-forward layers"]
    assert all("mlp.mode=tiled" not in rung["overrides"] for rung in said["rungs"])
    assert main([*words, "mlp=tiled"]) == 2
    assert "this model has no feed-forward layers" in capsys.readouterr().err


def test_the_request_behind_a_plan_resolves_to_it(registry: Registry) -> None:
    plan = registry.plan(compose([*SHAPE, "packing=bfd"], registry=registry))
    again = registry.plan(request_of(plan))
    assert {key: again[key] for key in again} == {key: plan[key] for key in plan}
