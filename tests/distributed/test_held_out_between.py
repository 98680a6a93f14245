"""Between two steps held-out rows go through the sharded model and a checkpoint is written: the next step finds its weights.

Losses do not call the output layer that shares a group with the last norm; torch before 2.13 then waited for it in the next
forward, and gathered nothing once the checkpoint had made shards of everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.distributed]


def test_steps_go_on_after_a_checkpoint(
    tmp_path: Path, in_processes: Callable[..., dict[str, dict[str, Any]]]
) -> None:  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "one and {n}"}}\n' for n in range(24)))
    case = {
        "name": "between",
        "overrides": [
            "data=jsonl", f"data.path={tmp_path / 'rows.jsonl'}", "data.eval_rows=3", "model.hidden=32", "model.layers=2",
            "model.tied=false", "run.steps=3", "run.log_steps=1", "run.eval_steps=1", "run.save_steps=1", "distributed=fsdp2",
        ],
    }  # fmt: skip
    found = in_processes(tmp_path / "two", [case], 2)["between"]
    assert len(found["grad_norm"]) == 3
    assert len(found["eval_loss"]) == 4
