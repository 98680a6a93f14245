"""What grows with the number of processes and of documents, without either.

    python benchmarks/scaling.py ranks                     memory of one rank, simulated: no GPU
    python benchmarks/scaling.py packing [--documents N]   packing in shards: time, memory and the fill that shards cost

`ranks` simulates one of 8, 64 and 1,024 processes of `distributed=fsdp2`. `packing` places lengths (lognormal, median 245
tokens, rows of 2,048), all at once and in shards, and says what a billion documents would take at that rate."""

from __future__ import annotations

import argparse
import resource
import time
from itertools import product
from typing import Final

import numpy as np

GIB: Final = 1 << 30
SHAPES: Final = ("llama3-8b", "llama3-70b", "llama3-405b")
WORLDS: Final = (8, 64, 1024)
STEPS: Final = {
    "as it is": "",
    "offload, tiled MLP": "offload=checkpoint_inputs mlp=tiled",
}
CAPACITY: Final = 2048
BILLION: Final = 1_000_000_000


def ranks(tokens: int, card: str) -> None:
    """A table of what one rank needs: the least of a card under which its step still runs."""
    from memcfg.compose import resolve
    from memcfg.planner.simulate import simulate
    from memcfg.registry import load

    registry = load()
    print(f"one row of {tokens:,} tokens to a rank, {card}\n")
    print(
        "| shape | ranks | step | shards at the peak GiB | needs GiB | on the card | seconds |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for shape, world, (name, words) in product(SHAPES, WORLDS, STEPS.items()):
        said = f"assume.device={card} assume.world.size={world} distributed=fsdp2 model=shape model.preset={shape} run.batch_size=1"
        began = time.perf_counter()
        plan = resolve([*said.split(), f"truncation.max_length={tokens}", *words.split()], registry=registry)
        found = simulate(plan, registry.hooks(plan))
        kept = sum(found.kinds.get(kind, 0) for kind in ("weights", "optimizer", "gradients"))
        needs = found.smallest_bytes + found.outside_bytes
        verdict = found.verdict(card_bytes(card))
        taken = time.perf_counter() - began
        print(
            f"| {shape} | {world} | {name} | {kept / GIB:.1f} | {needs / GIB:.1f} | {verdict} | {taken:.0f} |",
            flush=True,
        )


def card_bytes(card: str) -> int:
    from memcfg.core.cards import CARDS

    return CARDS[card].memory


def packing(documents: int) -> None:
    """A table of shard sizes: rows over the bound that the tokens set, time, and what a billion documents would take."""
    from memcfg_packing.placement import place

    lengths = np.random.default_rng(0).lognormal(np.log(245), 1.0, documents).astype(np.int64).clip(1)
    print(f"{documents:,} documents, {lengths.sum():,} tokens, rows of {CAPACITY:,}\n")
    print(
        "| strategy | documents in a shard | rows | fill | seconds | a billion, one core |\n| --- | --- | --- | --- | --- | --- |"
    )
    for strategy in ("bfd", "bfd_split"):
        for size in [n for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000) if n <= documents]:
            began = time.perf_counter()
            rows = kept = 0
            for start in range(0, documents, size):
                placed = place(lengths[start : start + size], CAPACITY, strategy)
                rows, kept = rows + len(placed.counts), kept + int(placed.lengths.sum())
            seconds = time.perf_counter() - began
            minutes = seconds / documents * BILLION / 60
            print(
                f"| {strategy} | {size:,} | {rows:,} | {kept / (rows * CAPACITY):.4%} | {seconds:.1f} | {minutes:.0f} min |",
                flush=True,
            )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\npeak memory of the process: {most / GIB:.1f} GiB, {most / documents:.0f} bytes a document")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ranks", "packing"))
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--card", default="h100")
    parser.add_argument("--documents", type=int, default=10_000_000)
    asked = parser.parse_args()
    if asked.what == "ranks":
        ranks(asked.tokens, asked.card)
    else:
        packing(asked.documents)


if __name__ == "__main__":
    main()
