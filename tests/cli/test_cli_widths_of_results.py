"""What commands print that train or predict fits the terminal too. (Here alone: the planner loads torch.)"""

import pytest

from memcfg import Plan
from memcfg.planner.budget import Budget
from memcfg.planner.inverse import Inverse
from memcfg.planner.machine import named
from memcfg.planner.prediction import Piece, Prediction, Timeline
from memcfg.planner.search import Ladder, Rung
from memcfg.planner.sets import Set
from memcfg.report.checked import checked_text
from memcfg.report.console import Terminal
from memcfg.report.ladder import show_ladder
from memcfg.report.memory import show_machine, show_prediction
from memcfg.report.summary import summary

pytestmark = pytest.mark.torch

KINDS = {"weights": 2**30, "activations": 2**31, "logits": 3 * 2**20}
PREDICTION = Prediction(
    allocated_bytes=3 * 2**30, reserved_bytes=4 * 2**30, smallest_bytes=3 * 2**30, outside_bytes=2**29, host_bytes=2**20, step_ms=12.0,
    phases={"forward": 2**30, "backward": 3 * 2**30}, kinds=KINDS, peak_phase="backward",
    peak=(Piece("activations", "forward", "aten::scaled_dot_product_attention", 2**30, 12),),
    timeline=Timeline((0.0, 1.0), {kind: (size, size) for kind, size in KINDS.items()}, ((0.0, "forward"), (1.0, "backward"))),
    machine="h100", parameters=10**9, trained=10**7, tokens=4096,
)  # fmt: skip
REPORT = {
    "steps": 80, "seconds": 41.2, "loss_first": 7.62, "loss_last": 5.03, "eval_loss_first": 7.6, "eval_loss_last": 5.1,
    "tokens_per_second": 3912.4, "peak_bytes": 2**30, "run_dir": "runs/1", "model_dir": "runs/1/model",
    "ledger": {"tokens_in": 1000, "tokens_kept": 930, "tokens_truncated": 70, "rows_in": 50, "rows_dropped": 2,
               "reasons": {"no target left": 2}},
}  # fmt: skip


class Found:
    canaries = {"isolation": "documents that share a row do not see each other"}
    effective = {"packing.strategy": {"effective": "bfd_split", "evidence": "12 documents in 4 rows of the first step"}}
    seconds, loss, peak_bytes = 3.0, 7.5, 2**30


RUNG = Rung(
    Set(Plan({}), {"checkpointing.mode": "full", "loss.kernel": "torch"}, ("fewer bits of the optimizer's state",)),
    PREDICTION,
)
LADDER = Ladder(
    2**31, named("h100"), (RUNG,), RUNG, RUNG, 10.0, 12, 96, ("`optimizer.name=adamw_8bit`: eight bits of state",)
)
NOTHING = Ladder(2**20, named("h100"), (), RUNG, RUNG, 10.0, 12, 96)


@pytest.mark.parametrize("columns", [80, 40])
def test_results_that_take_long_fit_too(capsys, too_wide, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    terminal.show(
        *show_ladder(LADDER, Inverse(4096, 12, "rtx4090")), *show_ladder(NOTHING, None), *show_machine(named("h100"))
    )
    terminal.show(*show_prediction(PREDICTION, Budget(2**31, "request"), color=False))
    terminal.show(summary(REPORT), checked_text(Found()))
    assert too_wide(capsys.readouterr().out, columns) == []
