"""Runs in a process of its own, because Triton decides at import whether it interprets. Prints as JSON, for each type of
weights, how far the kernel's weights and moments are from those of plain torch after three steps, in the last bit of each."""

from __future__ import annotations

import json
import os
from dataclasses import astuple

os.environ["TRITON_INTERPRET"] = "1"
import torch
from memcfg_optimizer.kernel import stochastic_adamw_
from memcfg_optimizer.stochastic import Numbers, keys, move_

GROUP = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def apart(dtype: torch.dtype, count: int = 2500) -> dict[str, float]:
    """Largest distance relative to the value, and the share of elements that differ at all; not-a-numbers and infinities among them."""
    torch.manual_seed(0)
    begin = [torch.randn(count).to(dtype), *(torch.zeros(count, dtype=torch.bfloat16) for _ in range(2))]
    mine, theirs = [t.clone() for t in begin], [t.clone() for t in begin]
    for step in (1, 2, 3):
        gradient, numbers = torch.randn(count).to(dtype), Numbers.of(GROUP, step)
        gradient[7], gradient[8] = float("nan"), float("inf")
        key, other = keys(5, step, 3)
        stochastic_adamw_(mine[0], gradient, *mine[1:], key, other, *astuple(numbers))
        move_(theirs[0], gradient, *theirs[1:], 0, key, other, numbers)
    pairs = [(a.double(), b.double()) for a, b in zip(mine, theirs, strict=True)]
    assert all(torch.equal(a.isfinite(), b.isfinite()) for a, b in pairs)
    pairs = [(a[a.isfinite()], b[b.isfinite()]) for a, b in pairs]
    far = max(float(((a - b).abs() / (b.abs() + 1e-6)).max()) for a, b in pairs)
    return {"far": far, "share": max(float((a != b).double().mean()) for a, b in pairs)}


if __name__ == "__main__":
    print(json.dumps({str(dtype): apart(dtype) for dtype in (torch.bfloat16, torch.float32, torch.float16)}))
