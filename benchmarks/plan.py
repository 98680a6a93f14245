"""What `python -m memcfg plan` costs: processor seconds of all its processes and the clock's, imports apart, with nothing kept from
before.

    python benchmarks/plan.py --out plans.jsonl [--only sft-1.7b,grpo]

Each request runs in a process of its own, one after the other. A line holds the seconds and the answer, so that the answers of
two versions can be compared. Other programs slow processor time by tens of per cent, the clock's by multiples."""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

REQUESTS: Final[dict[str, str]] = {
    "sft-1.7b": "assume.device=rtx4090 model.preset=qwen3-1.7b run.batch_size=4 budget=24gib",
    "sft-8b-all": "assume.device=h100 model.preset=qwen3-8b run.batch_size=2 truncation.max_length=4096 budget=80gib plan.allow=all",
    "grpo-0.6b": "assume.device=rtx4090 trainer=grpo model.preset=qwen3-0.6b generation.max_prompt_tokens=256 budget=24gib",
    "sft-135m": "assume.device=h100 model.preset=smollm2-135m run.batch_size=4 truncation.max_length=1024 budget=3gib",
    "packed-1b": "assume.device=a100 model.preset=llama3-1b run.batch_size=4 truncation.max_length=4096 packing=bfd budget=12gib",
    "too-large-8b": "assume.device=rtx4090 model.preset=qwen3-8b run.batch_size=2 budget=24gib",
    "dpo-0.6b": "assume.device=rtx4090 trainer=dpo model.preset=qwen3-0.6b run.batch_size=4 budget=10gib",
}  # fmt: skip


def planned(name: str) -> dict[str, Any]:
    """The answer to a request, and what it took."""
    import peft  # noqa: F401
    import torch
    import transformers.models  # noqa: F401

    import memcfg.commands.plan
    import memcfg.planner.inverse  # noqa: F401
    from memcfg.cli import main

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache, redirect_stdout(io.StringIO()) as said:
        os.environ["XDG_CACHE_HOME"] = cache
        began, clock = sum(os.times()[:4]), time.monotonic()
        code = main(["plan", "--json", "--quiet", "model=shape", *REQUESTS[name].split()])
        seconds, waited = sum(os.times()[:4]) - began, time.monotonic() - clock
    answer = json.loads(said.getvalue())
    answer.pop("offers", None)
    found = {
        "case": name,
        "seconds": round(seconds, 1),
        "clock": round(waited, 1),
        "cores": len(os.sched_getaffinity(0)),
    }
    return found | {"torch": torch.__version__, "code": code, "answer": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="names that contain one of these, between commas")
    asked = parser.parse_args()
    with Path(asked.out).open("a", encoding="utf-8") as file:
        for name in (name for name in REQUESTS if any(part in name for part in asked.only.split(","))):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
                line = alone.submit(planned, name).result()
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                f"{name} {line['seconds']} s, {line['clock']} s by the clock, {line['answer'].get('tried')} sets looked at",
                flush=True,
            )


if __name__ == "__main__":
    main()
