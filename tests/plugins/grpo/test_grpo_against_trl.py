"""Beside TRL 1.16's own loss, on the same log-probabilities: equal for every loss, level and penalty that both have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")

from memcfg_grpo.entropy import Bonus
from memcfg_grpo.losses import Settings
from memcfg_grpo.objective import GroupRelative
from trl import GRPOTrainer

from memcfg import prompts
from memcfg.engine import documents
from memcfg.engine.policy import OLD, REFERENCE, Sampled
from memcfg.rollouts import Sample

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SIZES, ADVANTAGES, LIMIT = (5, 1, 3, 2), (1.5, -0.5, -1.25, 0.75), 8
BEFORE = 3
"""Tokens of each prompt."""


class Theirs:
    """What TRL's `_compute_loss` reads of its trainer, and nothing else."""

    def __init__(
        self, settings: Settings, logps: torch.Tensor, entropies: torch.Tensor, share: float, coefficient: float
    ) -> None:
        self.loss_type, self.beta = settings.loss, settings.beta
        self.epsilon_low, self.epsilon_high = settings.low, settings.high
        self.importance_sampling_level = "sequence" if settings.by_completion else "token"
        self.off_policy_mask_threshold = settings.off_policy
        self.top_entropy_quantile, self.use_vllm, self.aux_loss_enabled = share, False, False
        self.entropy_coef, self.use_adaptive_entropy = coefficient, False
        self._entropy_bonus_enabled = coefficient != 0.0
        self.max_completion_length = LIMIT
        self.current_gradient_accumulation_steps = 1
        self.model = SimpleNamespace(training=True)
        self.args = SimpleNamespace(
            delta=settings.delta, use_bias_correction_kl=settings.kl_correction, steps_per_generation=1,
            sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
        )  # fmt: skip
        same = lambda values, *_, **__: values  # noqa: E731
        self.accelerator = SimpleNamespace(
            num_processes=1, gather=same, reduce=same, pad_across_processes=same, sync_gradients=True
        )
        self._metrics = {"train": _Lists(), "eval": _Lists()}
        self._logps, self._entropies = logps, entropies

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> Any:
        return self._logps, self._entropies, None

    get_high_entropy_mask = GRPOTrainer.get_high_entropy_mask
    get_off_policy_mask = staticmethod(GRPOTrainer.get_off_policy_mask)
    get_gamma_weights = staticmethod(GRPOTrainer.get_gamma_weights)

    def loss(self, inputs: dict[str, Any]) -> torch.Tensor:
        return GRPOTrainer._compute_loss(self, None, inputs)


class _Lists(dict):
    def __missing__(self, key: str) -> list[Any]:
        self[key] = []
        return self[key]


CASES = [
    *({"loss": loss} for loss in ("dapo", "grpo", "dr_grpo", "bnpo", "sapo", "luspo", "vespo")),
    {"loss": "cispo", "high": 1.1},
    *({"loss": loss, "by_completion": True} for loss in ("grpo", "luspo", "dapo")),
    {"loss": "grpo", "beta": 0.1},
    {"loss": "dapo", "beta": 0.1, "kl_correction": True},
    {"loss": "grpo", "delta": 1.05, "low": 0.5, "high": 0.5},
    {"loss": "dapo", "off_policy": 0.02},
    *({"loss": loss, "share": 0.4} for loss in ("dapo", "grpo", "luspo")),
    *({"loss": loss, "coefficient": 0.3} for loss in ("dapo", "grpo", "dr_grpo", "bnpo", "luspo", "sapo")),
    {"loss": "dapo", "beta": 0.1, "share": 0.25, "coefficient": 0.1},
    {"loss": "grpo", "off_policy": 0.02, "share": 0.5, "coefficient": -0.1},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_losses_and_gradients_equal_trl(bench: Any, case: dict[str, Any]) -> None:
    share, coefficient = case.get("share", 1.0), case.get("coefficient", 0.0)
    of_the_loss = {name: value for name, value in case.items() if name not in ("share", "coefficient")}
    settings = Settings(**{"low": 0.1, "high": 0.15, **of_the_loss})
    generator = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 40, (n,), generator=generator).tolist()  # noqa: E731
    rows = [
        prompts.completed(draw(BEFORE), [Sample(draw(size), True)], masked=[False], advantage=[advantage])
        for size, advantage in zip(SIZES, ADVANTAGES, strict=True)
    ]
    policy, old, reference = bench.model(0), bench.model(0), bench.model(2)
    with torch.no_grad():
        for p in old.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype))
    bonus = Bonus(coefficient) if coefficient else None
    made = GroupRelative(Sampled(2, LIMIT, 0.7, ["any"]), settings, bonus=bonus, share=share)
    made.bind(None, bench.attention(policy))
    batch = bench.batch(prompts.collate(rows))
    with torch.no_grad():
        batch.fields[OLD], batch.fields[REFERENCE] = made.score(old, batch), made.score(reference, batch)
    ours = made.loss_sum(policy, batch) / made.count(batch)
    ours.backward()
    seen = bench.gradients(policy)

    completions = slice(BEFORE, None)
    mask = documents.learned(batch)[:, completions].long()
    inputs = {
        "prompt_ids": batch.input_ids[:, :BEFORE], "prompt_mask": torch.ones(4, BEFORE).long(),
        "completion_ids": batch.input_ids[:, completions], "completion_mask": mask,
        "advantages": torch.tensor(ADVANTAGES).double(), "num_items_in_batch": mask.sum(),
        "old_per_token_logps": batch.fields[OLD][:, completions],
        "ref_per_token_logps": batch.fields[REFERENCE][:, completions],
    }  # fmt: skip
    known = [values[:, completions] for values in made.score_with_entropy(policy, batch)]
    theirs = Theirs(settings, *known, share, coefficient).loss(inputs)
    theirs.backward()
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
    bench.same(seen, bench.gradients(policy), 1e-6)
