"""Distillation: the divergence and its gradient against whole logits, in chunks of any size; teachers that do not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_gkd.hooks import refuse
from memcfg_gkd.objective import TaughtTokens

from memcfg import Decision, Plan, RequestError, RunError
from memcfg.engine.companion import frozen
from memcfg.engine.loader import blank
from memcfg.engine.pairs import collate

pytestmark = pytest.mark.torch


class Words:
    def __init__(self, **vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


def objective(bench: Any, student: Any, teacher: Any, beta: float, budget: int = 1 << 20) -> TaughtTokens:
    made = TaughtTokens("teacher", beta, budget)
    made.bind(None, bench.attention(student))
    made.learn_from(lambda path, key: (frozen(teacher), Words(a=1)), student, Words(a=1))
    return made


def plain(s: Any, t: Any, beta: float) -> Any:
    """The divergence of rows of probabilities."""
    kl = lambda p, q: (p * (p.log() - q.log())).sum()  # noqa: E731
    if beta == 0:
        return kl(t, s)
    if beta == 1:
        return kl(s, t)
    m = (1 - beta) * s + beta * t
    return beta * kl(t, m) + (1 - beta) * kl(s, m)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("budget", [1, 40 * 4 * 4 * 3, 1 << 20])
def test_divergence_and_gradients_are_those_of_whole_logits(bench: Any, beta: float, budget: int) -> None:
    student, teacher, rows = bench.model(0), bench.model(1), bench.rows()
    expected = 0.0
    for row in rows:
        for ids, labels in bench.documents(row):
            mine = bench.token_logps(student, ids, labels)[1].exp()
            with torch.no_grad():
                its = bench.token_logps(teacher, ids, labels)[1].exp()
            expected = expected + plain(mine, its, beta)
    expected.backward()
    wanted = bench.gradients(student)
    made = objective(bench, student, teacher, beta, budget)
    for layout in ("padded", "rows", "flat"):
        batch = bench.batch(collate(rows), layout)
        assert int(made.count(batch)) == 31
        found = made.loss_sum(student, batch)
        (2 * found).backward()  # what a step divides by reaches the gradient; two is exact in every precision
        assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9), layout
        bench.same(bench.gradients(student), {name: 2 * gradient for name, gradient in wanted.items()})


def test_a_student_that_is_its_teacher_has_nothing_to_learn(bench: Any) -> None:
    student = bench.model(0)
    for beta in (0.0, 0.5, 1.0):
        loss = objective(bench, student, bench.model(0), beta).loss_sum(student, bench.batch(collate(bench.rows())))
        loss.backward()
        assert float(loss.detach()) == pytest.approx(0.0, abs=1e-12)
        assert all(float(g.abs().max()) < 1e-12 for g in bench.gradients(student).values())


def test_a_batch_without_labels_counts_nothing(bench: Any) -> None:
    student = bench.model(0)
    made, batch = objective(bench, student, bench.model(1), 0.5), blank(bench.batch(collate(bench.rows())))
    assert int(made.count(batch)) == 0
    loss = made.loss_sum(student, batch)
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert made.metrics() == {}


def test_held_out_rows_need_no_gradient(bench: Any) -> None:
    student = bench.model(0)
    made = objective(bench, student, bench.model(1), 0.5)
    batch = bench.batch(collate(bench.rows()))
    trained = float(made.loss_sum(student, batch).detach())
    student.eval()
    with torch.no_grad():
        assert float(made.loss_sum(student, batch)) == pytest.approx(trained)
    assert made.held_out()["divergence"] == pytest.approx(trained / 31)


def test_a_teacher_with_another_vocabulary_is_refused(bench: Any) -> None:
    made = TaughtTokens("teacher", 0.5, 1 << 20)
    student = bench.model(0)
    with pytest.raises(RunError, match="vocabulary of 50, the student one of 40"):
        made.learn_from(lambda path, key: (bench.model(1, vocabulary=50), Words(a=1)), student, Words(a=1))
    with pytest.raises(RunError, match="`b` is token 2 of the teacher `teacher` and 3 of the student"):
        made.learn_from(lambda path, key: (bench.model(1), Words(a=1, b=2)), student, Words(a=1, b=3))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gkd.teacher": None}, "needs a teacher"),
        ({"gkd.lmbda": 0.5}, "the student's own completions is not written yet"),
        ({"gkd.seq_kd": True}, "completions that the teacher generates is not written yet"),
    ],
)
def test_what_cannot_be_run_says_so(values: dict[str, Any], message: str) -> None:
    settings = {"gkd.teacher": "folder", "gkd.lmbda": 0.0, "gkd.seq_kd": False} | values
    with pytest.raises(RequestError, match=message):
        refuse(Plan({key: Decision(value, "default") for key, value in settings.items()}))


def test_the_error_names_the_option(bench: Any) -> None:
    made = TaughtTokens("nowhere", 0.5, 1)
    seen = SimpleNamespace(key="")

    def load(path: str, key: str) -> Any:
        seen.key = key
        return bench.model(1), Words(a=1)

    made.learn_from(load, bench.model(0), Words(a=1))
    assert seen.key == "gkd.teacher"
