"""200 steps of a small model on the text of Python's standard library, with each head: do the loss curves agree?

All runs start from the same weights and see the same tokens, in bfloat16. What is reported is the mean of the signed
difference to whole logits: rounding that is not biased goes both ways. Without a GPU the model is smaller, and the Triton
kernels are interpreted."""

from __future__ import annotations

import re
import statistics
import sysconfig
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from loss_peers import Peer, available, ours

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
VOCABULARY, LENGTH, ROWS, WIDTH = (32_768, 512, 8, 512) if GPU else (2_048, 32, 4, 64)
STEPS, CHUNKS = 200, 8


def tokens() -> torch.Tensor:
    """Words of the standard library's source, numbered by how often they occur: [STEPS * ROWS, LENGTH]."""
    words: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        words += re.findall(r"\w+|\s+|[^\w\s]", path.read_text(encoding="utf-8", errors="ignore"))
        if len(words) > STEPS * ROWS * LENGTH:
            break
    rank = {word: n for n, (word, _) in enumerate(Counter(words).most_common(VOCABULARY - 1), 1)}
    ids = torch.tensor([rank.get(word, 0) for word in words])
    whole = ids.repeat(-(-STEPS * ROWS * LENGTH // len(ids)))[: STEPS * ROWS * LENGTH]
    return whole.view(-1, LENGTH)


def model() -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=4 if GPU else 2, num_attention_heads=8,
        num_key_value_heads=4, head_dim=WIDTH // 8, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).to(DEVICE, torch.bfloat16)


def curve(peer: Peer, ids: torch.Tensor) -> list[float]:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        rows = ids[step * ROWS : (step + 1) * ROWS].to(DEVICE)
        hidden = net.model(input_ids=rows, use_cache=False).last_hidden_state[:, :-1].reshape(-1, WIDTH)
        targets = rows[:, 1:].reshape(-1)
        loss = peer.call(hidden, net.lm_head.weight, targets) / len(targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def curves() -> dict[str, Any]:
    ids = tokens()
    names = (
        ("full logits", "TRL fused head", "Liger", "Liger, float32 sums") if GPU else ("full logits", "torch linear")
    )
    peers = [p for p in available() if p.name in names]
    room = ROWS * LENGTH * VOCABULARY // CHUNKS
    peers += [
        Peer(f"memcfg {kernel}, {CHUNKS} chunks", ours(kernel, room * size))
        for kernel, size in (("triton", 2), ("torch", 4))
    ]
    found = {peer.name: curve(peer, ids) for peer in peers}
    plain = found["full logits"]
    again = curve(next(p for p in peers if p.whole), ids)
    report: dict[str, Any] = {"plain": {"first": plain[0], "last_20": statistics.mean(plain[-20:])}, "curves": found}
    report["repeated"] = _against(again, plain)
    report["drift"] = {name: _against(other, plain) for name, other in found.items() if name != "full logits"}
    print(f"full logits: {plain[0]:.3f} at first, {statistics.mean(plain[-20:]):.3f} over the last 20 of {STEPS} steps")
    print(f"\n| head | mean signed difference | mean difference | largest | falls and rises like it |\n{'| --- ' * 5}|")
    for name, row in {"full logits, a second time": report["repeated"], **report["drift"]}.items():
        print(f"| {name} | {row['signed']:+.1e} | {row['absolute']:.1e} | {row['largest']:.1e} | {row['alike']:.0%} |")
    return report


def _against(other: list[float], plain: list[float]) -> dict[str, float]:
    differences = [a - b for a, b in zip(other, plain, strict=True)]
    alike = [(b - a > 0) == (d - c > 0) for (a, b), (c, d) in zip(pairwise(other), pairwise(plain), strict=True)]
    return {
        "signed": statistics.mean(differences), "absolute": statistics.mean(map(abs, differences)),
        "largest": max(map(abs, differences)), "alike": sum(alike) / len(alike),
    }  # fmt: skip
