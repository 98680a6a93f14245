"""In which order rows come, and that a run is otherwise what it was."""

import json

import datasets
import numpy as np
import pytest
from memcfg_curriculum.hooks import ByLength, memcfg_grouping

import memcfg
from memcfg import DataError, RunError
from memcfg.registry import load

pytestmark = pytest.mark.torch


def rows(*sizes):
    ids = [[1] * size for size in sizes]
    return datasets.Dataset.from_dict({"input_ids": ids, "labels": ids})


def lengths(groups, data):
    return [[len(data[int(row)]["input_ids"]) for row in group] for group in groups]


@pytest.mark.parametrize(
    ("grouping", "expected", "because"),
    [
        (ByLength(2, 6), [[1, 2], [3, 4], [5, 6]], "one row to a class: sorted"),
        (ByLength(4, 6), [[1, 2, 3, 4], [5, 6]], "the last group holds what is left"),
        (ByLength(2, 6, long_first=True), [[6, 5], [4, 3], [2, 1]], "the other way"),
        (ByLength(2, 2), [[3, 1], [2, 5], [6, 4]], "two classes, {1, 2, 3} and {4, 5, 6}, each in the given order"),
        (ByLength(2, 6, block=3), [[3, 5], [6, 1], [2, 4]], "blocks (5, 3, 6) and (1, 2, 4)"),
        (ByLength(2, 6, seen=6), [[1, 2], [3, 4], [5, 6]], "the whole epoch is seen"),
    ],
)
def test_the_order_of_six_rows(grouping, expected, because):
    data = rows(5, 3, 6, 1, 2, 4)
    groups = grouping(range(6), data)
    assert lengths(groups, data) == expected, because
    assert sorted(row for group in groups for row in group) == list(range(6))
    assert groups == grouping(range(6), data)


def test_rows_of_equal_length_keep_the_given_order():
    data = rows(*[4] * 7)
    order = np.random.default_rng(0).permutation(7)
    assert [row for group in ByLength(3, 5)(order, data) for row in group] == order.tolist()


def test_part_of_the_rows_may_be_asked_for():
    """As evaluation and canaries do; and rows of nothing."""
    data = rows(5, 3, 6, 1)
    assert lengths(ByLength(1, 9, seen=2)([0, 3], data), data) == [[1], [5]]
    assert ByLength(2, 3)([], data) == []


def test_a_run_that_would_see_one_end_only_is_refused():
    with pytest.raises(DataError) as error:
        ByLength(2, 4, seen=4)(range(6), rows(5, 3, 6, 1, 2, 4))
    assert str(error.value) == (
        "`curriculum.rows`: the run sees 4 of 6 rows: in order of length it would see one end only\n"
        "  curriculum.rows=4, or a longer `run.steps`"
    )


def test_two_that_put_rows_together_are_refused():
    plan = memcfg.resolve(["curriculum=length"])
    with pytest.raises(RunError, match="another plugin puts rows together already"):
        memcfg_grouping(plan, grouping=ByLength(1, 2))


def test_a_step_over_all_rows_is_that_of_plain_training():
    """In whatever order rows are put together, a step's loss and gradients are those of its rows."""
    from memcfg.testing import assert_same_training

    whole = ["run.accumulation=4", "run.steps=8"]
    for direction in ("short_first", "long_first"):
        ordered = [*whole, "curriculum=length", f"curriculum.direction={direction}"]
        assert_same_training(ordered, whole)


TINY = ["model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=1"]


def test_a_run_goes_from_short_to_long(tmp_path):
    """Through the engine: what the first step held, what the run says of itself, and the order of what it trained on."""
    from memcfg.engine.execute import train
    from memcfg.testing import HookRecorder

    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": "word " * size}) + "\n" for size in (9, 2, 30, 4, 17, 1, 12, 6)))
    plan = memcfg.resolve(["curriculum=length", "data=jsonl", f"data.path={file}", "run.steps=4", *TINY])
    recorder = HookRecorder(load().hooks(plan))
    train(plan, recorder, tmp_path / "run")
    run = recorder.of("evidence")[0].arguments["run"]
    shortest = sorted(len(ids) for ids in run.train["input_ids"])[:2]
    assert sorted(run.first[0].lengths) == shortest
    seen = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert seen["curriculum.by"]["effective"] == "length"
    assert seen["curriculum.direction"]["effective"] == "short_first"


def test_the_prediction_is_that_of_a_run_without():
    from memcfg.planner.predict import predict

    small = [*TINY, "truncation.max_length=64", "run.batch_size=2"]
    plain, ordered = (
        predict(memcfg.resolve([*small, *more]), load()).allocated_bytes for more in ([], ["curriculum=length"])
    )
    assert plain == ordered > 0
