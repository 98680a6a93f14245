"""A run's folder, made by hand."""

import json

import pytest

from memcfg import Decision, Note, Plan, planfile

PLAN = Plan(
    decisions={
        "trainer.name": Decision("sft", "default"),
        "packing.strategy": Decision("bfd_split", "you", origin="command line", requested="bfd-requeue"),
        "padding_free.enabled": Decision(
            True, "forced", "packing.free", "documents must not see `each other`", ("packing.strategy",)
        ),
        "loss.type": Decision("chunked_nll", "default", "loss.chunked", "it holds no logits", ("trainer.name",)),
        "data.token": Decision("hunter2", "you", origin="command line", requested="hunter2", secret=True),
        "device.type": Decision("cpu", "fact", role="fact", origin="probed"),
    },
    active=("packing", "sft"),
    notes=(Note("deprecation", "packing.renamed", "`bfd-requeue` is now called `bfd_split`"),),
    versions={"memcfg": "0.1.0"},
)

METRICS = [
    {"step": 0, "loss": 7.5, "tokens_per_second": 9000.0, "eval_loss": 7.6, "eval_rewards/chosen": 0.1},
    *(
        {"step": s, "loss": 7.5 - s / 10, "tokens_per_second": 400.0 + s, "learning_rate": 1e-3, "grad_norm": 2.0,
         "rewards/chosen": s / 5, "epoch": 0.1}
        for s in range(1, 11)
    ),
    {"step": 11, "loss": None, "eval_loss": 5.5},
]  # fmt: skip

FILES = {
    "run.json": {
        "status": "completed", "command": ["memcfg", "packing=bfd", "run.dir=a b"], "started": "2026-01-01T10:00:00+0000",
        "python": "3.11.7", "platform": "Linux", "machine": {"cpus": 2, "memory_bytes": 2**34}, "versions": {"torch": "2.13.0"},
    },
    "effective.json": {
        "packing.strategy": {"resolved": "bfd_split", "effective": "bfd_split", "evidence": "4 documents in 1 row"},
        "padding_free.enabled": {"resolved": True, "effective": False, "evidence": "positions do not restart"},
    },
    "ledger.json": {
        "tokens_in": 1000, "tokens_kept": 900, "tokens_truncated": 60, "tokens_dropped": 40, "tokens_supervised": 700,
        "tokens_seen": 500, "tokens_padded": 20, "rows_in": 50, "rows_dropped": 2, "bins": 9, "fill": 0.96,
        "reasons": {"no target left": 2}, "notes": ["the rows are a stream"], "eval": None,
    },
    "batches.json": {
        "steps": 10, "micro_batches": 10, "rows": 20, "documents": 60, "tokens": 500, "positions": 520,
        "bins": [[1, 4, 20, 60], [5, 16, 40, 440]], "filled": [0] * 18 + [4, 16], "first": [[64, [30, 20, 10]], [64, [64]]],
    },
    "memory.json": {"measured": {"peak_bytes": 2**30, "source": "resident set of the process"}, "predicted": None},
    "report.json": {
        "steps": 10, "seconds": 12.5, "tokens_per_second": 480.0, "peak_bytes": 2**30,
        "canaries": {"isolation": "documents that share a row do not see each other"},
    },
}  # fmt: skip


@pytest.fixture
def write_run():
    """`write_run(folder)`: the folder of a run of ten steps."""

    def write(folder):
        folder.mkdir(parents=True)
        for name, data in FILES.items():
            (folder / name).write_text(json.dumps(data))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS))
        planfile.save(PLAN, folder / "resolved.yaml")
        return folder

    return write


@pytest.fixture
def run_folder(tmp_path, write_run):
    return write_run(tmp_path / "a-run")
