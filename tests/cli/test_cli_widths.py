"""What is printed fits the terminal: eighty columns, or forty."""

import re

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

COMMANDS = [
    ("--help",),
    ("plugins",),
    ("resolve", "packing=bfd_split", "trainer=dpo"),
    ("resolve", "--all"),
    ("resolve", "packing=bfd", "truncation.max_length=null"),
    ("resolve", "packing.strategi=bfd", "run.max_length=3", "lr=1"),
    ("explain", "batch.layout", "packing=bfd_split"),
    ("why-not", "loss.type=nll", "trainer=sft"),
    ("why-not", "truncation.max_length=null", "packing=bfd"),
    ("diff", "packing=bfd", "packing=none"),
    ("resolv",),
    ("run", "nowhere"),
    ("report", "nowhere"),
]


def too_wide(text: str, columns: int) -> list[str]:
    """Lines that are wider than `columns` without need: what is to be pasted, and a word of its own, are not broken."""
    return [line for line in text.splitlines() if len(line) > columns and not _one_piece(line, columns)]


def _one_piece(line: str, columns: int) -> bool:
    stuck = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "_"), line)
    indent = len(line) - len(line.lstrip())
    return indent + max(map(len, stuck.split())) > columns * 0.75


@pytest.mark.parametrize("columns", [80, 40])
def test_what_commands_print_fits(memcfg, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in COMMANDS:
        _, out, err = memcfg(*words)
        assert out + err, words
        assert too_wide(out + err, columns) == [], words


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
def test_results_that_take_long_fit_too(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    terminal.show(
        *show_ladder(LADDER, Inverse(4096, 12, "rtx4090")), *show_ladder(NOTHING, None), *show_machine(named("h100"))
    )
    terminal.show(*show_prediction(PREDICTION, Budget(2**31, "request"), color=False))
    terminal.show(summary(REPORT), checked_text(Found()))
    assert too_wide(capsys.readouterr().out, columns) == []


def test_a_narrow_table_is_a_paragraph_for_each_row(memcfg, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = memcfg("resolve", "packing=bfd_split")[1]
    assert "packing.strategy\n  value: bfd_split\n  why: you: command line,\n    packing/bfd_split.yaml\n" in text


def test_colour_is_there_where_it_is_wanted(memcfg, monkeypatch):
    assert "\033" not in "".join(memcfg("resolve")[1:])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\033[" in memcfg("resolve")[1]
    assert "\033[1;31merror:\033[0m" in memcfg("resolve", "x=1")[2]
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("resolve",), ("resolve", "x=1")):
        assert "\033" not in "".join(memcfg(*words)[1:])
    monkeypatch.delenv("NO_COLOR")
    assert "\033" not in memcfg("resolve", "--no-color")[1]


def test_verbose_says_more_and_quiet_less(memcfg):
    assert memcfg("resolve")[2] == ""
    assert re.fullmatch(r"took \d+\.\d\d s\n", memcfg("resolve", "-v")[2])
    assert memcfg("resolve", "-v", "-q")[2] == ""
