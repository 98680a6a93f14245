"""Distillation: the divergence and its gradient against whole logits, in chunks of any size; teachers that do not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_gkd.objective import TaughtTokens

from memcfg import Decision, Plan, RunError
from memcfg.engine.companion import frozen
from memcfg.engine.forward import attach_head
from memcfg.engine.loader import blank
from memcfg.engine.pairs import collate
from memcfg.head import HeadTransform

pytestmark = pytest.mark.torch


class Words:
    def __init__(self, **vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


def objective(
    bench: Any, student: Any, teacher: Any, beta: float, budget: int = 1 << 20, *, rests: bool = False
) -> TaughtTokens:
    made = TaughtTokens("teacher", beta, budget, rests=rests)
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


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_ligers_divergence_gives_the_same_value_and_gradients(bench: Any, beta: float) -> None:
    pytest.importorskip("liger_kernel")
    from memcfg_liger.head import LigerHead

    student, teacher = bench.model(0), bench.model(1)
    made, batch = objective(bench, student, teacher, beta), bench.batch(collate(bench.rows()), "rows")
    expected = made.loss_sum(student, batch)
    (2 * expected).backward()
    wanted = bench.gradients(student)
    attach_head(student, LigerHead(HeadTransform()))
    found = made.loss_sum(student, batch)
    (2 * found).backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6), "it adds up in float32"
    bench.same(bench.gradients(student), wanted)
    nothing = made.loss_sum(student, blank(batch))
    nothing.backward()
    assert float(nothing.detach()) == 0.0
    with torch.no_grad():
        assert float(made.loss_sum(student.eval(), batch)) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_liger_has_no_divergence_behind_a_soft_cap(bench: Any) -> None:
    pytest.importorskip("liger_kernel")
    from memcfg_liger.head import LigerHead

    student = bench.model(0)
    made = objective(bench, student, bench.model(1), 0.5)
    attach_head(student, LigerHead(HeadTransform(softcap=5.0)))
    with pytest.raises(RunError, match="no fused divergence for a head with a soft cap"):
        made.loss_sum(student, bench.batch(collate(bench.rows())))


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


@pytest.mark.parametrize("tied", [False, True])
def test_a_teacher_that_rests_on_the_host_teaches_the_same(bench: Any, tied: bool) -> None:
    student, batch = bench.model(0), bench.batch(collate(bench.rows()))
    found = []
    for rests in (False, True):
        teacher = bench.model(1)
        if tied:
            teacher.lm_head.weight = teacher.model.embed_tokens.weight
        made = objective(bench, student, teacher, 0.5, rests=rests)
        losses = [made.loss_sum(student, batch) for _ in range(2)]
        losses[1].backward()
        found.append((float(losses[0].detach()), bench.gradients(student)))
    assert found[0][0] == found[1][0]
    bench.same(found[0][1], found[1][1], 0.0)
    resting = made.resting
    assert resting is not None
    assert (resting.times, resting.asleep) == (2, True)
    head, whole = teacher.lm_head.weight.numel(), sum(p.numel() for p in teacher.parameters())
    assert resting.bytes == 8 * (whole - head), "the head stays, and what shares its weight"
    with resting:
        assert not resting.asleep


def test_a_teacher_is_on_the_host_again_after_an_error(bench: Any) -> None:
    student = bench.model(0)
    made = objective(bench, student, bench.model(1), 0.5, rests=True)
    batch = bench.batch(collate(bench.rows()))
    batch.input_ids[0, 0] = 10**6
    with pytest.raises(IndexError):
        made.loss_sum(student, batch)
    assert made.resting is not None
    assert made.resting.asleep


def test_a_teacher_in_four_bits_is_nearly_the_same_teacher(bench: Any) -> None:
    pytest.importorskip("bitsandbytes")
    from memcfg_quantization.hooks import memcfg_companion, memcfg_evidence

    def plan(mode: str | None) -> Plan:
        values = {
            "quantization.teacher": mode, "quantization.mode": "none", "quantization.double": False, "device.type": "cpu",
            "quantization.compute_dtype": None, "quantization.storage": None,
        }  # fmt: skip
        return Plan({key: Decision(value, "default") for key, value in values.items()})

    student, batch = bench.model(0).float(), bench.batch(collate(bench.rows()))
    losses = {}
    for mode in ("none", "nf4", "int8"):
        teacher = bench.model(1).float()
        packed = memcfg_companion(plan(mode), teacher, "gkd.teacher")
        made = objective(bench, student, packed, 0.5, rests=mode == "nf4")
        losses[mode] = float(made.loss_sum(student, batch).detach())
        run = SimpleNamespace(objective=made, model=student)
        assert memcfg_evidence(plan(mode), run, [])[0].effective == mode
    assert 0 < abs(losses["nf4"] - losses["none"]) < 0.2 * losses["none"]
    assert 0 < abs(losses["int8"] - losses["none"]) < 0.05 * losses["none"]
    reference = bench.model(1).float()
    memcfg_companion(plan("nf4"), reference, "reference.path")
    assert type(reference.model.layers[0].self_attn.q_proj) is torch.nn.Linear, "a reference is no teacher"


@pytest.mark.parametrize(
    ("own", "sequences", "drawn", "whose"),
    [
        (0.0, False, 0.0, None),
        (0.5, False, 0.4, "own"),
        (0.5, False, 0.5, None),
        (0.5, True, 0.4, "own"),
        (0.5, True, 0.5, "teacher"),
        (0.0, True, 0.0, "teacher"),
        (1.0, True, 0.999, "own"),
    ],
)
def test_whose_completions_a_step_learns_from(own: float, sequences: bool, drawn: float, whose: str | None) -> None:
    made = TaughtTokens("teacher", 0.5, 1, own=own, sequences=sequences)
    assert made.source(drawn) == whose
    assert made.renews == (own > 0 or sequences)
    made.renewed(whose)
    assert sum(made.sampled.values()) == (whose is not None)
    assert made.metrics() == {"own_completions": float(whose == "own")}


def test_a_teacher_that_generates_is_woken_for_it(bench: Any) -> None:
    made = objective(bench, bench.model(0), bench.model(1), 0.5, rests=True)
    assert made.others() == {}
    made.sequences = True
    assert made.others() == {"teacher": (made.teacher, [made.resting])}


def test_a_teacher_with_another_vocabulary_is_refused(bench: Any) -> None:
    made = TaughtTokens("teacher", 0.5, 1 << 20)
    student = bench.model(0)
    with pytest.raises(RunError, match="vocabulary of 50, the student one of 40"):
        made.learn_from(lambda path, key: (bench.model(1, vocabulary=50), Words(a=1)), student, Words(a=1))
    with pytest.raises(RunError, match="`b` is token 2 of the teacher `teacher` and token 3 of the model"):
        made.learn_from(lambda path, key: (bench.model(1), Words(a=1, b=2)), student, Words(a=1, b=3))


def test_the_error_names_the_option(bench: Any) -> None:
    made = TaughtTokens("nowhere", 0.5, 1)
    seen = SimpleNamespace(key="")

    def load(path: str, key: str) -> Any:
        seen.key = key
        return bench.model(1), Words(a=1)

    made.learn_from(load, bench.model(0), Words(a=1))
    assert seen.key == "gkd.teacher"
