"""The entropy bonus, constant and steered, and the share of tokens of highest entropy: against loops over tokens in float64."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from memcfg_grpo.entropy import Bonus, Steering, uncertain
from memcfg_grpo.losses import Settings
from memcfg_grpo.objective import GroupRelative, SteeredGroupRelative

import memcfg
from memcfg import RunError, prompts
from memcfg.batch import Steered
from memcfg.engine import means
from memcfg.engine.execute import train
from memcfg.engine.kept import Stateful
from memcfg.engine.policy import Sampled
from memcfg.engine.update import gradients
from memcfg.registry import load
from memcfg.rollouts import Sample

pytestmark = pytest.mark.torch

SIZES, ADVANTAGES, LIMIT, TEMPERATURE = (5, 1, 3, 2), (1.5, -0.5, -1.25, 0.75), 8, 0.7


def completed(masked: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 40, (n,), generator=generator).tolist()  # noqa: E731
    return [
        prompts.completed(draw(4), [Sample(draw(size), True)], masked=[at in masked], advantage=[advantage])
        for at, (size, advantage) in enumerate(zip(SIZES, ADVANTAGES, strict=True))
    ]


def objective(bench: Any, model: Any, settings: Settings, **more: Any) -> GroupRelative:
    kind = SteeredGroupRelative if isinstance(more.get("bonus"), Steering) else GroupRelative
    made = kind(Sampled(2, LIMIT, TEMPERATURE, ["any"]), settings, **more)
    made.bind(None, bench.attention(model))
    return made


def plain(model: Any, rows: list[dict[str, Any]], settings: Settings, coefficient: float, share: float) -> Any:
    """The loss on policy (every ratio is 1) and each token's entropy, from whole logits and loops."""
    tokens: list[tuple[Any, Any, float, int]] = []
    for row in rows:
        logits = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0, :-1] / TEMPERATURE
        scored = torch.log_softmax(logits, -1)
        kept = [(at, label) for at, label in enumerate(row["labels"][1:]) if label != -100]
        for at, label in kept:
            entropy = -sum(p.exp() * p for p in scored[at])
            tokens.append((scored[at, label], entropy, row["advantage"][0], len(kept)))
    line = float(torch.tensor([float(e.detach()) for _, e, _, _ in tokens]).quantile(1 - share))
    chosen = [float(torch.tensor(float(entropy.detach()))) >= line for _, entropy, _, _ in tokens]
    total = 0.0
    for (logp, _, advantage, size), counts in zip(tokens, chosen, strict=True):
        ratio = torch.exp(logp - logp.detach())
        total = total - counts * ratio * advantage / (size if settings.loss == "grpo" else 1)
    completions = len([row for row in rows if any(label != -100 for label in row["labels"])])
    loss = total / {"dapo": len(tokens), "grpo": completions, "dr_grpo": completions * LIMIT}[settings.loss]
    entropies = [entropy for (_, entropy, _, _), counts in zip(tokens, chosen, strict=True) if counts]
    return loss - coefficient * sum(entropies) / len(entropies)


@pytest.mark.parametrize("layout", ["padded", "rows"])
@pytest.mark.parametrize(
    ("loss", "coefficient", "share", "masked"),
    [
        ("dapo", 0.3, 1.0, ()), ("grpo", 0.3, 1.0, ()), ("dr_grpo", -0.2, 1.0, (1,)), ("dapo", 0.0, 0.4, ()),
        ("grpo", 0.5, 0.3, (2,)), ("dapo", 0.1, 0.0, ()),
    ],
)  # fmt: skip
def test_losses_and_gradients_equal_plain_loops(
    bench: Any, layout: str, loss: str, coefficient: float, share: float, masked: tuple[int, ...]
) -> None:
    policy, settings, rows = bench.model(0), Settings(loss=loss), completed(masked)
    bonus = Bonus(coefficient) if coefficient else None
    made = objective(bench, policy, settings, bonus=bonus, share=share)
    result = gradients(policy, [bench.batch(prompts.collate(rows), layout)], made)
    seen = bench.gradients(policy)
    expected = plain(policy, rows, settings, coefficient, share)
    expected.backward()
    assert float(result.loss) == pytest.approx(float(expected.detach()), abs=1e-6)
    bench.same(seen, bench.gradients(policy), 1e-6)


def test_the_bonus_of_the_default_loss_does_not_depend_on_micro_batches(bench: Any) -> None:
    policy, rows = bench.model(0), completed()
    made = objective(bench, policy, Settings(), bonus=Bonus(0.3))
    whole = gradients(policy, [bench.batch(prompts.collate(rows))], made)
    together = bench.gradients(policy)
    apart = gradients(policy, [bench.batch(prompts.collate(part)) for part in (rows[:1], rows[1:])], made)
    assert float(apart.loss) == pytest.approx(float(whole.loss), abs=1e-9)
    bench.same(together, bench.gradients(policy))


def test_full_heads_agree(bench: Any) -> None:
    found = []
    for kernel in ("torch", "full"):
        policy = bench.model(0, kernel=kernel)
        made = objective(bench, policy, Settings(), bonus=Bonus(0.3), share=0.5)
        gradients(policy, [bench.batch(prompts.collate(completed()))], made)
        found.append(bench.gradients(policy))
    bench.same(*found, tolerance=1e-5)


def test_a_micro_batch_without_a_token_adds_nothing(bench: Any) -> None:
    policy, batch = bench.model(0), bench.batch(prompts.collate(completed(masked=(0, 1, 2, 3))))
    made = objective(bench, policy, Settings(), bonus=Bonus(0.3), share=0.5)
    assert float(gradients(policy, [batch], made).loss) == 0.0
    assert not any(gradient.any() for gradient in bench.gradients(policy).values())


def test_the_exact_entropy_and_the_coefficient_are_logged(bench: Any) -> None:
    policy, batch = bench.model(0), bench.batch(prompts.collate(completed()))
    made = objective(bench, policy, Settings(), bonus=Bonus(0.3))
    loss = gradients(policy, [batch], made).loss
    entropy = made.score_with_entropy(policy, batch)[1].sum() / sum(SIZES)
    seen = made.metrics()
    assert seen["entropy"] == pytest.approx(float(entropy))
    assert seen["entropy_coef"] == pytest.approx(0.3)
    assert seen["policy_loss"] - 0.3 * seen["entropy"] == pytest.approx(float(loss))


def test_a_head_without_entropies_is_named(bench: Any) -> None:
    class Bare:
        def logprobs(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    policy = bench.model(0)
    policy._memcfg_head = Bare()
    made = objective(bench, policy, Settings(), bonus=Bonus(0.3))
    with pytest.raises(RunError) as caught:
        made.loss_sum(policy, bench.batch(prompts.collate(completed())))
    assert str(caught.value) == "`loss.kernel`: `Bare` computes no entropy\n  loss.kernel=torch"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1.0, [True, True, True, True, False]),
        (0.5, [False, False, True, True, False]),
        (0.25, [False, False, False, True, False]),
        (0.0, [False, False, False, True, False]),
    ],
)
def test_the_tokens_of_highest_entropy(share: float, expected: list[bool]) -> None:
    entropy, mask = torch.tensor([[1.0, 2.0, 3.0, 4.0, 9.0]]), torch.tensor([[True, True, True, True, False]])
    assert uncertain(entropy, mask, share).tolist() == [expected]


def see(bonus: Steering, *values: float) -> None:
    for value in values:
        bonus.see(torch.tensor([[value, 7.0]]), torch.tensor([[True, False]]))


def test_a_steered_coefficient_follows_the_entropy_of_whole_steps() -> None:
    """It is applied only after a step that was at most on target, rises after one and falls after another."""
    bonus = Steering(0.1, target=1.0, least=0.05, most=0.12, delta=0.04)
    steps = [((0.5, 0.7), 0.12, 0.12), ((1.5, 0.7), 0.08, 0.0), ((3.0,), 0.05, 0.0), ((1.0, 1.0), 0.09, 0.09)]
    assert bonus.applied() == 0.0
    for values, coefficient, applied in steps:
        see(bonus, *values)
        bonus.step()
        assert bonus.coefficient == pytest.approx(coefficient)
        assert bonus.applied() == pytest.approx(applied)


def test_processes_steer_by_all_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has seen three tokens of 2 nats."""
    bonus = Steering(0.1, target=1.6)
    monkeypatch.setattr(means, "summed", lambda mine: {"entropy": mine["entropy"] + 6.0, "tokens": mine["tokens"] + 3})
    see(bonus, 0.5)
    bonus.step()
    assert bonus.last == pytest.approx(6.5 / 4)
    assert bonus.coefficient == pytest.approx(0.095)


def test_where_a_steered_coefficient_is_is_kept() -> None:
    bonus, other = Steering(0.1), Steering(0.0)
    other.load_state_dict(json.loads(json.dumps(bonus.state_dict())))
    assert (other.coefficient, other.last) == (0.1, math.inf)
    see(bonus, 0.1)
    bonus.step()
    other.load_state_dict(json.loads(json.dumps(bonus.state_dict())))
    assert (other.coefficient, other.last) == (bonus.coefficient, pytest.approx(0.1))
    assert issubclass(SteeredGroupRelative, Stateful)
    assert issubclass(SteeredGroupRelative, Steered)
    assert not issubclass(GroupRelative, Stateful)
    assert not issubclass(GroupRelative, Steered)


# ------------------------------------------------------------------------------------------------------- whole runs

SMALL = [
    "trainer=grpo", "grpo.num_generations=2", "model.hidden=32", "model.layers=2", "run.batch_size=2",
    "run.accumulation=2", "run.log_steps=1", "data=jsonl", "generation.max_new_tokens=5", "rewards.functions=[kinds]",
    "run.scheduler=constant",
]  # fmt: skip
STEERED = ["grpo.entropy_adaptive=true", "grpo.entropy_target=99", "grpo.entropy_coef=0.01"]


def ran(folder: Path, name: str, *overrides: str) -> dict[int, dict[str, Any]]:
    torch.set_num_threads(1)
    file = folder / "prompts.jsonl"
    rows = [{"prompt": f"Write digits{' now' * i}.\n", "wanted": "digits"} for i in range(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    plan = memcfg.resolve([*SMALL, f"data.path={file}", *overrides])
    train(plan, load().hooks(plan), folder / name)
    text = (folder / name / "metrics.jsonl").read_text(encoding="utf-8")
    return {line["step"]: line for line in map(json.loads, text.splitlines())}


def effective(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "effective.json").read_text(encoding="utf-8"))
    return {key: about["effective"] for key, about in found.items() if key.startswith("grpo.")}


def test_a_steered_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """The entropy is below the target throughout, so the coefficient rises with each step and is applied from the second on."""
    whole = ran(tmp_path, "whole", *STEERED, "run.steps=4")
    assert [whole[step]["entropy_coef"] for step in (1, 2, 3, 4)] == pytest.approx([0.0, 0.015, 0.02, 0.025])
    assert effective(tmp_path / "whole")["grpo.entropy_adaptive"] is True
    ran(tmp_path, "part", *STEERED, "run.steps=2", "run.save_steps=2")
    checkpoint = tmp_path / "part" / "checkpoint-2"
    rest = ran(tmp_path, "rest", *STEERED, "run.steps=4", f"run.resume={checkpoint}")
    for step in (3, 4):
        for name in ("loss", "grad_norm", "entropy", "entropy_coef"):
            assert rest[step][name] == whole[step][name], (step, name)


def test_a_bonus_and_a_share_are_seen_in_a_run(tmp_path: Path) -> None:
    found = ran(
        tmp_path, "run", "grpo.entropy_coef=0.02", "grpo.top_entropy_quantile=0.5", "run.steps=1", "grpo.head_fp32=true"
    )
    assert found[1]["entropy_coef"] == pytest.approx(0.02)
    seen = effective(tmp_path / "run")
    assert seen["grpo.entropy_coef"] == 0.02
    assert seen["grpo.top_entropy_quantile"] == 0.5
    assert seen["grpo.entropy_adaptive"] is False
    assert seen["grpo.head_fp32"] is True


def test_a_float32_head_gives_a_bfloat16_model_finer_log_probabilities(tmp_path: Path) -> None:
    """The same completions; ratios of the sampling policy are 1, so what differs is the head's rounding alone."""
    found = [
        ran(tmp_path, name, "model.dtype=bfloat16", "run.steps=1", f"grpo.head_fp32={name}")
        for name in ("true", "false")
    ]
    assert found[0][1]["reward"] == found[1][1]["reward"]
    assert found[0][1]["entropy"] != found[1][1]["entropy"]
    assert found[0][1]["entropy"] == pytest.approx(found[1][1]["entropy"], rel=0.02)
