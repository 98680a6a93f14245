"""What looks at the entropy of the distribution that each token was drawn from: a bonus for it, constant or steered, and the
choice of the tokens that are learned from ("forking tokens", https://arxiv.org/abs/2506.01939).

Entropies are in nats, at the temperature of sampling. A bonus is the mean entropy of a micro-batch's tokens, whatever
`grpo.loss` averages over, and weighs as much as what the micro-batch counts in the step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from memcfg.engine import means

Tensor = torch.Tensor


@dataclass
class Bonus:
    """`coefficient` times the mean entropy is taken off the loss."""

    coefficient: float

    def applied(self) -> float:
        """The coefficient of the step that is trained on."""
        return self.coefficient

    def see(self, entropy: Tensor, mask: Tensor) -> None:
        """Told of the entropies [B, L] of each micro-batch that is trained on, and which of them count."""

    def value(self, entropy: Tensor, mask: Tensor) -> Tensor:
        """The mean over `mask`, times the coefficient: a scalar with gradient; zero where there is no token."""
        return self.applied() * (entropy * mask).sum() / mask.sum().clamp(min=1)


@dataclass
class Steering(Bonus):
    """A coefficient that rises by `delta` after each step whose mean entropy, over all its tokens and processes, is at most
    `target`, and falls otherwise, between `least` and `most`. It is applied only after a step that was at most on target."""

    target: float = 0.2
    least: float = 0.0
    most: float = 1.0
    delta: float = 0.005
    last: float = math.inf
    """The mean entropy of the step before."""
    _seen: list[Tensor] = field(default_factory=list)

    def applied(self) -> float:
        return self.coefficient if self.last <= self.target else 0.0

    def see(self, entropy: Tensor, mask: Tensor) -> None:
        self._seen.append(torch.stack([(entropy.detach() * mask).sum(), mask.sum().to(entropy)]).double())

    def step(self) -> None:
        """Move, by what was seen since the last time. All processes call it together."""
        here = torch.stack(self._seen).sum(0).tolist() if self._seen else [0.0, 0.0]
        self._seen = []
        everywhere = means.summed({"entropy": here[0], "tokens": here[1]})
        self.last = everywhere["entropy"] / max(everywhere["tokens"], 1.0)
        if self.last <= self.target:
            self.coefficient = min(self.coefficient + self.delta, self.most)
        else:
            self.coefficient = max(self.coefficient - self.delta, self.least)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints: where it is."""
        return {"coefficient": self.coefficient, "last": None if math.isinf(self.last) else self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be there again."""
        self.coefficient, self.last = state["coefficient"], math.inf if state["last"] is None else state["last"]


@torch.no_grad()
def uncertain(entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """Which tokens are among the `share` of highest entropy of those in `mask`: bool [B, L]. On the line counts as above."""
    known = entropy[mask].float()
    return mask & (entropy >= torch.quantile(known, 1 - share)) if known.numel() else mask
