"""How a pair becomes a loss. Every function takes P pairs and gives their P losses.

Notation: y the better completion, z the worse one, beta the strength, r(y) = log p(y) - log p_ref(y) the log-ratio and s(y)
its score under the f-divergence, which is r(y) itself for the reverse KL divergence. The formulas are those of the papers
named; where a paper leaves a choice, the choice is that of TRL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch.nn.functional import logsigmoid, relu

Tensor = torch.Tensor


@dataclass(frozen=True)
class Settings:
    """What losses read of the plan. `losses`: names and their weights in the sum."""

    losses: Mapping[str, float] = field(default_factory=lambda: {"sigmoid": 1.0})
    beta: float = 0.1
    smoothing: float = 0.0
    divergence: str = "reverse_kl"
    alpha: float = 0.5
    tau: float = 0.05


@dataclass(frozen=True)
class Sides:
    """One number for each pair [P], for its better and its worse completion."""

    chosen: Tensor
    rejected: Tensor

    @property
    def margin(self) -> Tensor:
        return self.chosen - self.rejected

    def __sub__(self, other: Sides) -> Sides:
        return Sides(self.chosen - other.chosen, self.rejected - other.rejected)


@dataclass(frozen=True)
class Pairs:
    """Summed log-probabilities of P pairs. `whole` are those of all tokens alike, `tokens` how many there are."""

    policy: Sides
    reference: Sides
    whole: Sides
    tokens: Sides
    settings: Settings

    @property
    def ratios(self) -> Sides:
        return self.policy - self.reference

    @property
    def scores(self) -> Sides:
        ratios = self.ratios
        return Sides(score(ratios.chosen, self.settings), score(ratios.rejected, self.settings))

    @property
    def mean_scores(self) -> Sides:
        """Scores per token."""
        scores = self.scores
        return Sides(scores.chosen / self.tokens.chosen, scores.rejected / self.tokens.rejected)


def score(ratio: Tensor, settings: Settings) -> Tensor:
    """f'(p / p_ref) of the f-divergence, from the log-ratio (https://arxiv.org/abs/2309.16240)."""
    if settings.divergence == "forward_kl":
        return 1 - torch.exp(-ratio)
    if settings.divergence == "js_divergence":
        return math.log(2) + logsigmoid(ratio)
    slope = settings.alpha - 1
    if settings.divergence == "reverse_kl" or abs(slope) < 1e-6:  # at alpha = 1 it is the reverse KL divergence
        return ratio
    return torch.expm1((slope * ratio).clamp(max=80.0)) / slope  # beyond 80 a float32 overflows


def sigmoid(pairs: Pairs) -> Tensor:
    """-log sigma(beta (s(y) - s(z))), both ways round where a share of the pairs is swapped: https://arxiv.org/abs/2305.18290
    (TRL 1.16 does not read the share here)."""
    return _smoothed(pairs.settings.beta * pairs.scores.margin, pairs.settings.smoothing)


def hinge(pairs: Pairs) -> Tensor:
    """max(0, 1 - beta (s(y) - s(z))): https://arxiv.org/abs/2309.06657."""
    return relu(1 - pairs.settings.beta * pairs.scores.margin)


def ipo(pairs: Pairs) -> Tensor:
    """(margin - 1 / 2 beta)^2 of scores per token: https://arxiv.org/abs/2310.12036."""
    return (pairs.mean_scores.margin - 1 / (2 * pairs.settings.beta)).square()


def exo_pair(pairs: Pairs) -> Tensor:
    """KL between the policy's choice and a smoothed human one: https://arxiv.org/abs/2402.00856, equation 16."""
    logit, share = pairs.settings.beta * pairs.scores.margin, pairs.settings.smoothing
    better = logit.sigmoid() * (logsigmoid(logit) - math.log1p(-share))
    return better + (-logit).sigmoid() * (logsigmoid(-logit) - math.log(share))


def nca_pair(pairs: Pairs) -> Tensor:
    """Noise contrastive alignment of two completions: https://arxiv.org/abs/2402.05369."""
    better, worse = pairs.settings.beta * pairs.ratios.chosen, pairs.settings.beta * pairs.ratios.rejected
    return -logsigmoid(better) - 0.5 * logsigmoid(-better) - 0.5 * logsigmoid(-worse)


def robust(pairs: Pairs) -> Tensor:
    """Unbiased where a share of the pairs is swapped: https://arxiv.org/abs/2403.00409."""
    logit, share = pairs.settings.beta * pairs.scores.margin, pairs.settings.smoothing
    return (-(1 - share) * logsigmoid(logit) + share * logsigmoid(-logit)) / (1 - 2 * share)


def bco_pair(pairs: Pairs) -> Tensor:
    """Binary classifiers of either side: https://arxiv.org/abs/2404.04656."""
    beta = pairs.settings.beta
    return -logsigmoid(beta * pairs.ratios.chosen) - logsigmoid(-beta * pairs.ratios.rejected)


def sppo_hard(pairs: Pairs) -> Tensor:
    """Log-ratios pulled to plus and minus 1 / 2 beta: https://arxiv.org/abs/2405.00675."""
    target = 0.5 / pairs.settings.beta
    return (pairs.ratios.chosen - target).square() + (pairs.ratios.rejected + target).square()


def aot(pairs: Pairs) -> Tensor:
    """Margins of policy and reference, each sorted over the micro-batch: https://arxiv.org/abs/2406.05882."""
    policy, reference = pairs.policy.margin.sort().values, pairs.reference.margin.sort().values
    return _smoothed(pairs.settings.beta * (policy - reference), pairs.settings.smoothing)


def aot_unpaired(pairs: Pairs) -> Tensor:
    """Log-ratios of either side, each sorted over the micro-batch."""
    better, worse = pairs.ratios.chosen.sort().values, pairs.ratios.rejected.sort().values
    return _smoothed(pairs.settings.beta * (better - worse), pairs.settings.smoothing)


def apo_zero(pairs: Pairs) -> Tensor:
    """Better completions up, worse ones down: https://arxiv.org/abs/2408.06266, equation 7."""
    beta = pairs.settings.beta
    return 1 - (beta * pairs.ratios.chosen).sigmoid() + (beta * pairs.ratios.rejected).sigmoid()


def apo_down(pairs: Pairs) -> Tensor:
    """Both down, worse ones further: https://arxiv.org/abs/2408.06266, equation 8."""
    beta = pairs.settings.beta
    return (beta * pairs.ratios.chosen).sigmoid() + 1 - (beta * pairs.ratios.margin).sigmoid()


def discopop(pairs: Pairs) -> Tensor:
    """A blend of logistic and exponential loss that was found by search: https://arxiv.org/abs/2406.08414, equation 5."""
    logit = pairs.settings.beta * pairs.scores.margin
    share = (logit / pairs.settings.tau).sigmoid()
    return -logsigmoid(logit) * (1 - share) + torch.exp(-logit) * share


def sft(pairs: Pairs) -> Tensor:
    """The better completion's loss per token. Each pair counts alike, however long it is (https://arxiv.org/abs/2404.19733);
    TRL takes the mean over the tokens of a micro-batch, which then depends on how pairs are batched."""
    return -pairs.whole.chosen / pairs.tokens.chosen


def sigmoid_norm(pairs: Pairs) -> Tensor:
    """The loss of the DPO paper on scores per token."""
    return _smoothed(pairs.settings.beta * pairs.mean_scores.margin, pairs.settings.smoothing)


def _smoothed(logit: Tensor, share: float) -> Tensor:
    return -logsigmoid(logit) * (1 - share) - logsigmoid(-logit) * share


LOSSES: Final[Mapping[str, Callable[[Pairs], Tensor]]] = {
    "sigmoid": sigmoid, "hinge": hinge, "ipo": ipo, "exo_pair": exo_pair, "nca_pair": nca_pair, "robust": robust,
    "bco_pair": bco_pair, "sppo_hard": sppo_hard, "aot": aot, "aot_unpaired": aot_unpaired, "apo_zero": apo_zero,
    "apo_down": apo_down, "discopop": discopop, "sft": sft, "sigmoid_norm": sigmoid_norm,
}  # fmt: skip


def losses(pairs: Pairs) -> Tensor:
    """The weighted sum of the settings' losses: [P]."""
    parts = [LOSSES[name](pairs) * weight for name, weight in pairs.settings.losses.items()]
    return torch.stack(parts).sum(0)
