"""A whole training step of a 1.7 B model at 16 k tokens: what heads and Liger's layers are worth end to end."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from memcfg.engine.forward import attach_head

ROWS, LENGTH = 8, 2048


def model(checkpointed: bool) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151_936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("cuda"):
        net = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    if checkpointed:
        net.gradient_checkpointing_enable({"use_reentrant": False})
    return net.train()


def variants(net: Any) -> Iterator[tuple[str, Any, AbstractContextManager[Any]]]:
    """Name, head and what surrounds a step. Liger's layers come last: they stay in the model."""
    from memcfg_liger.head import LigerHead
    from memcfg_liger.layers import patch_layers
    from memcfg_loss.chunked import ChunkedHead
    from memcfg_loss.full import FullHead

    from memcfg.head import transform_of

    transform = transform_of(net)
    triton = ChunkedHead(transform, None, "cuda", "triton")
    yield "whole logits", FullHead(), nullcontext()
    yield "chunked, triton", triton, nullcontext()
    yield "chunked, torch", ChunkedHead(transform, None, "cuda", "torch"), nullcontext()
    yield "Liger's loss", LigerHead(transform), nullcontext()
    patched = patch_layers(net)
    yield "Liger's layers and loss", LigerHead(transform), patched
    yield "Liger's layers, chunked triton", triton, patched


def measure(net: Any, head: Any, around: AbstractContextManager[Any]) -> dict[str, float]:
    from memcfg_loss.tokens import NLL

    attach_head(net, head)
    generator = torch.Generator("cuda").manual_seed(0)
    ids = torch.randint(0, 151_936, (ROWS, LENGTH), device="cuda", generator=generator)

    def step() -> torch.Tensor:
        net.zero_grad(set_to_none=True)
        with around:
            loss = net(input_ids=ids, head_call=lambda head, inner, hidden: head.loss_sum(inner, hidden, ids, NLL()))
            loss = loss / (ROWS * (LENGTH - 1))
            loss.backward()
        return loss.detach()

    step()
    net.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    loss = step().item()
    peak = torch.cuda.max_memory_allocated() / 2**30
    times = []
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return {"ms": statistics.median(times), "peak_gib": peak, "loss": loss}


def steps() -> list[dict[str, Any]]:
    results = []
    for checkpointed in (True, False):
        net = model(checkpointed)
        rows = {name: measure(net, head, around) for name, head, around in variants(net)}
        results.append({"checkpointing": checkpointed, "rows": rows})
        _show(checkpointed, rows)
        del net
        gc.collect()
        torch.cuda.empty_cache()
    return results


def _show(checkpointed: bool, rows: dict[str, dict[str, float]]) -> None:
    plain = rows["whole logits"]
    print(f"\n1.7 B model, {ROWS * LENGTH:,} tokens, {'full' if checkpointed else 'no'} checkpointing\n")
    print(
        "| head | peak GiB | against whole logits | tokens/s | against whole logits |\n| --- | --- | --- | --- | --- |"
    )
    for name, row in rows.items():
        memory, speed = row["peak_gib"] / plain["peak_gib"] - 1, plain["ms"] / row["ms"] - 1
        rate = ROWS * LENGTH / row["ms"] * 1000
        print(f"| {name} | {row['peak_gib']:.1f} | {memory:+.0%} | {rate:,.0f} | {speed:+.0%} |", flush=True)
