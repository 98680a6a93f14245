"""One process of the tests: trains each case that it is given, and the first one writes down what came out.

    python worker.py FOLDER CASES.json

A case is `{name, overrides}`. Python and torch are imported once for all cases: that is what takes the time."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def trained(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train the request in `folder`. What its files say, and a few of the saved weights of each tensor."""
    import memcfg
    from memcfg.engine.execute import train
    from memcfg.registry import load

    plan = memcfg.resolve([*overrides, f"run.dir={folder}"])
    train(plan, load().hooks(plan), folder)
    return read(folder) if os.environ.get("RANK", "0") == "0" else {}


def read(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    weights = load_file(next((folder / "model").glob("*model.safetensors")))
    return {
        "loss": [line["loss"] for line in lines],
        "eval_loss": [line["eval_loss"] for line in lines if "eval_loss" in line],
        "grad_norm": [line["grad_norm"] for line in lines if "grad_norm" in line],
        "more": {k: v for k, v in lines[-1].items() if "/" in k or k in ("mean_loss", "targets")},
        "ledger": json.loads((folder / "ledger.json").read_text()),
        "effective": json.loads((folder / "effective.json").read_text()),
        "weights": {name: tensor.double().flatten()[:64].tolist() for name, tensor in sorted(weights.items())},
        "sums": {name: float(tensor.double().sum()) for name, tensor in sorted(weights.items())},
        "numbers": sum(tensor.numel() for tensor in weights.values()),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    for case in json.loads(Path(sys.argv[2]).read_text()):
        import torch

        torch.set_num_threads(1)
        if any("zero3" in override for override in case["overrides"]):
            zero: Any = import_module("memcfg_distributed.zero")
            # These models are so small that nothing in them would be sharded otherwise: all of it, or the head alone
            zero.PERSISTENT = 0 if "padded" in case["name"] else 50_000
        place = folder / case["name"].replace(" ", "_").replace("/", "_")
        try:
            found = trained(place, case["overrides"])
        except Exception as error:
            if os.environ.get("RANK", "0") == "0":
                (folder / f"{place.name}.json").write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
            raise
        if os.environ.get("RANK", "0") == "0":
            (folder / f"{place.name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
