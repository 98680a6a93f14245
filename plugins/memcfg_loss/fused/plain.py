"""What `ops` does with Triton, in plain torch, for any device: work on rows of raw logits [N, V] in place.

Logits of less than float32 are worked on in a float32 copy."""

from __future__ import annotations

import torch

from memcfg.head.transform import HeadTransform

Tensor = torch.Tensor


def loss_to_gradient_(
    raw: Tensor, targets: Tensor, loss: Tensor, scale: float, softcap: float, temperature: float, dft: bool,
    smoothing: float, z_loss: float,
) -> None:  # fmt: skip
    """Write each row's loss to `loss` [N] and turn `raw` into the gradient of the sum of losses over raw logits."""
    transform = HeadTransform(scale, softcap or None, temperature)
    logits = transform.apply_(_wide(raw))
    slope, chosen = transform.slope(logits), logits.gather(1, targets[:, None])
    mean = logits.mean(1) if smoothing else None
    total, top = _exponentiate_(logits)
    logsum = top + total.log()
    value = (logsum - chosen).squeeze(1)
    weight, pull = torch.ones_like(total), torch.full_like(total, 1.0 - smoothing)
    if dft:
        weight = pull = (-value).exp()[:, None]
        value = value * weight.squeeze(1)
    if mean is not None:
        value = logsum.squeeze(1) - (1.0 - smoothing) * chosen.squeeze(1) - smoothing * mean
    if z_loss:
        value = value + z_loss * logsum.squeeze(1).square()
        weight = weight + 2.0 * z_loss * logsum
    loss.copy_(value)
    logits.mul_(weight / total)
    if smoothing:
        logits.sub_(smoothing / raw.shape[1])
    logits.scatter_add_(1, targets[:, None], -pull)
    _narrow_(raw, transform.chain_(logits, slope))


def logp_to_gradient_(
    raw: Tensor, targets: Tensor, logsum: Tensor, coefficient: Tensor, entropy: Tensor | None, pull: Tensor | None,
    scale: float, softcap: float, temperature: float,
) -> None:  # fmt: skip
    """Turn `raw` into the gradient of `sum(coefficient * logp + pull * entropy)` over raw logits; `logsum` and `entropy` as
    `row_statistics_` gave them, the latter and `pull` None where only log-probabilities are asked for."""
    transform = HeadTransform(scale, softcap or None, temperature)
    logits = transform.apply_(_wide(raw))
    slope = transform.slope(logits)
    weight = coefficient[:, None]
    logits.sub_(logsum[:, None])
    if entropy is not None and pull is not None:
        weight = (logits + entropy[:, None]).mul_(pull[:, None]).add_(weight)
    logits.exp_().mul_(weight).neg_()
    logits.scatter_add_(1, targets[:, None], coefficient[:, None].to(logits.dtype))
    _narrow_(raw, transform.chain_(logits, slope))


def row_statistics_(
    raw: Tensor, targets: Tensor, logp: Tensor, logsum: Tensor, entropy: Tensor | None, hit: Tensor | None,
    scale: float, softcap: float, temperature: float,
) -> None:  # fmt: skip
    """Write each row's target log-probability and log-sum; its entropy in nats and whether the target is the first of the
    largest logits (1.0 or 0.0) where a tensor is given. `raw` itself may keep anything."""
    keep = entropy is not None
    logits = HeadTransform(scale, softcap or None, temperature).apply_(_wide(raw))
    chosen = logits.gather(1, targets[:, None])
    if hit is not None:
        hit.copy_(logits.argmax(1) == targets)
    plain = logits.clone() if keep else None
    total, top = _exponentiate_(logits)
    logsum.copy_((top + total.log()).squeeze(1))
    logp.copy_((chosen - top - total.log()).squeeze(1))
    if entropy is not None and plain is not None:
        entropy.copy_(logsum - (logits.mul_(plain).sum(1) / total.squeeze(1)))


def padded(columns: int) -> int:
    """Columns of a row with its padding: none."""
    return columns


def _wide(raw: Tensor) -> Tensor:
    return raw if raw.dtype in (torch.float32, torch.float64) else raw.float()


def _narrow_(raw: Tensor, worked: Tensor) -> None:
    if worked is not raw:
        raw.copy_(worked)


def _exponentiate_(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Turn logits into exp(logits - their maximum) in place. Returns each row's sum of that and its maximum, [N, 1]."""
    top = logits.amax(1, keepdim=True)
    return logits.sub_(top).exp_().sum(1, keepdim=True), top
