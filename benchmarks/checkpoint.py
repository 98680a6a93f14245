"""What it costs to seal a checkpoint: weights of a given size are written, then sent to the disk alone, or sealed (sent to
the disk, read through for their checksums, listed).

    python benchmarks/checkpoint.py [--gib 2] [--pairs 3] [--folder .]

Each pair is one of either in turn; printed are medians in seconds, and sealing beside what writing takes anyway.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from memcfg.engine import checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("."))
    asked = parser.parse_args()
    weights = {f"layer{n}": torch.randn(int(asked.gib * 2**25)) for n in range(8)}
    times: dict[str, list[float]] = {"writing": [], "disk": [], "sealing": [], "reading": []}
    for _ in range(asked.pairs):
        for sealed in (False, True):
            once(weights, asked.folder, sealed, times)
    found = {name: statistics.median(seconds) for name, seconds in times.items()}
    anyway = found["writing"] + found["disk"]
    print({name: round(seconds, 2) for name, seconds in found.items()})
    print(f"sealing adds {(found['sealing'] - found['disk']) / anyway:.1%} to writing {asked.gib:g} GiB")


def once(weights: dict[str, torch.Tensor], where: Path, sealed: bool, times: dict[str, list[float]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=where))
    try:
        begin = time.perf_counter()
        save_file(weights, folder / "model.safetensors")
        written = time.perf_counter()
        if sealed:
            checkpoint.seal(folder, 1, {})
        else:
            to_disk(folder / "model.safetensors")
        end = time.perf_counter()
        times["writing"].append(written - begin)
        times["sealing" if sealed else "disk"].append(end - written)
        if sealed:
            checkpoint.read(folder, checkpoint.Sums())
            times["reading"].append(time.perf_counter() - end)
    finally:
        shutil.rmtree(folder)


def to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    main()
