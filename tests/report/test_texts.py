"""What people read, word for word."""

import pytest

from memcfg import UNSET, Conflict, ConflictError, Decision, Note, Plan, PluginError, Problem, RequestError, RunError
from memcfg.registry.installed import Installed
from memcfg.registry.plugin import NotYet, Plugin
from memcfg.report.console import Terminal
from memcfg.report.errors import error_text
from memcfg.report.plan import show_plan, why
from memcfg.report.plugins import show_plugins
from memcfg.report.summary import header, summary
from memcfg.report.words import count, duration, gib, listed, of, value, wrapped
from memcfg.solver.decision import Pending
from memcfg.solver.expr import key

PLAN = Plan(
    decisions={
        "budget.bytes": Decision(24 * 2**30, "you", origin="command line", requested=24 * 2**30),
        "loss.type": Decision("chunked_nll", "default", "loss.chunked", "it holds no logits", ("trainer.name",)),
        "optimizer.fused": Decision("no", "yielded", "optimizer.fused", "the CPU has no fused step"),
        "packing.strategy": Decision("bfd_split", "you", origin="command line", requested="bfd-requeue"),
        "padding_free.enabled": Decision(
            True, "overridden", "packing.free", "documents that share a row must not see each other", requested=False
        ),
        "run.dir": Decision(None, "default"),
        "sft.completion_only": Decision(UNSET, "unset"),
        "world.size": Decision(1, "fact", role="fact"),
    },
    notes=(Note("deprecation", "packing.renamed", "`packing.strategy=bfd-requeue` is now called `bfd_split`"),),
    pending=(Pending("model.type", ("attention.state", "attention.positions")),),
)


def shown(things, capsys) -> str:
    Terminal(color=False).show(*things)
    return capsys.readouterr().out


def test_a_plan_tells_what_was_decided(capsys):
    assert shown(show_plan(PLAN), capsys) == (
        """\
plan for cpu

option                value        why
budget.bytes          24gib        you: command line
packing.strategy      bfd_split    you: command line (as `bfd-requeue`)
padding_free.enabled  true         you asked for `false`; overridden, because
                                   documents that share a row must not see each
                                   other [packing.free]
optimizer.fused       no           default that gave way, because the CPU has no
                                   fused step [optimizer.fused]
loss.type             chunked_nll  default, because it holds no logits
pending: `model.type` is not known yet; `attention.state` and
  `attention.positions` wait for it

deprecation: `packing.strategy=bfd-requeue` is now called `bfd_split`

3 other options as usual (`memcfg resolve --all`)
"""
    )


def test_all_of_a_plan(capsys):
    text = shown(show_plan(PLAN, everything=True), capsys)
    assert "world.size            1            found on this host" in text
    assert "sft.completion_only   unset        nothing proposes it" in text
    assert "run.dir               null         default\n" in text
    assert "default, because it holds no logits\n" + 35 * " " + "[loss.chunked]" in text
    assert "other option" not in text


def test_an_assumption_stands_at_the_top(capsys):
    decisions = {"device.type": Decision("cuda", "fact", role="fact")}
    text = shown(show_plan(Plan(decisions, assumed=("device.type",)), everything=True), capsys)
    assert text.startswith("plan for cuda, assuming device.type=cuda\n")
    assert "device.type  cuda   assumed" in text


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (Decision(1, "forced", "r", "it must"), "forced, because it must"),
        (
            Decision(1, "fallback", "r", "it cannot", requested=2),
            "you asked for `2`; answered by this, because it cannot",
        ),
        (Decision(1, "default"), "default"),
        (Decision(1, "you", origin="a.yaml", requested=1), "you: a.yaml"),
    ],
)
def test_a_reason(decision, reason):
    assert why(decision) == reason


def test_no_line_is_wider_than_eighty_columns(capsys):
    long = Decision("x" * 90, "you", origin="y" * 90 + " " + "z " * 60)
    text = shown(show_plan(Plan({"a" * 70 + ".b": long}), everything=True), capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("x") == 90
    assert text.count("a") >= 70


def test_a_conflict_is_told_as_a_chain_with_its_repairs():
    conflict = Conflict(
        ("packing.strategy", "truncation.max_length"),
        ("packing.needed",),
        "you chose `packing.strategy=bfd` (command line)\n"
        "`packing.needed` forbids `packing.strategy in (bfd, bfd_split, wrapped) and truncation.max_length=null`, "
        "because a packed row needs a length to fill",
    )
    error = ConflictError([conflict], [["packing=none"], ["truncation.max_length=1024", "run.dir=a b"]])
    assert (
        error_text(error)
        == """\
error: no plan satisfies this request

  you chose `packing.strategy=bfd` (command line)
  `packing.needed` forbids
    `packing.strategy in (bfd, bfd_split, wrapped) and truncation.max_length=null`,
    because a packed row needs a length to fill

  to repair it, append one of
    packing=none
    truncation.max_length=1024 'run.dir=a b'"""
    )


def test_several_conflicts_are_numbered():
    error = ConflictError([Conflict(("a",), ("r",), "one"), Conflict(("b",), ("s",), "two")], [["~packing"]])
    assert (
        error_text(error)
        == """\
error: no plan satisfies this request (2 conflicts)

  1. one

  2. two

  to repair it, append
    ~packing"""
    )


def test_a_conflict_without_repair_says_so():
    text = error_text(ConflictError([Conflict(("a",), ("r",), "one")], notes=[Note("note", "n", "by the way")]))
    assert text.endswith("  no single change repairs this\n\nnote: by the way")


def test_request_errors_stand_one_below_the_other():
    error = RequestError(
        Problem("no such option (command line)", key="packing.strategi", nearest=("packing.strategy",)),
        Problem("`None` is text here, not nothing (command line)", key="run.dir", fix="write `run.dir=null`"),
        "no data",
    )
    assert (
        error_text(error)
        == """\
error: `packing.strategi`: no such option (command line)
  did you mean `packing.strategy`?
error: `run.dir`: `None` is text here, not nothing (command line)
  write `run.dir=null`
error: no data"""
    )


def test_a_plugins_own_traceback_is_shown():
    error = PluginError("cannot be imported", "acme", "acme-kit", "Traceback\n  ValueError: no")
    assert (
        error_text(error)
        == """\
error: `acme (acme-kit)`: cannot be imported

  Traceback
    ValueError: no"""
    )


def test_errors_wrap_between_words_and_never_inside_what_is_pasted():
    command = "memcfg --config-dir a/very/long/folder experiment=with_a_long_name run.dir=elsewhere"
    text = error_text(RunError(Problem("x", fix=f"write `{command}` instead of what was written")))
    assert f"`{command}`" in text


def test_the_plugins_are_listed_with_what_is_wrong(capsys):
    good = Plugin(name="acme", provides={"loss.type": ("acme",)}, commands={"zap": "acme:main"},
                  not_yet=[NotYet(key("loss.type") == "acme", "it is new")])  # fmt: skip
    listing = show_plugins(
        [
            Installed("acme", "acme-kit", "1.2", "acme:plugin", good),
            Installed("bad", "bad-kit", "0.1", "bad:plugin", status="broken", error="ImportError: no module `x`"),
        ]
    )
    assert (
        shown(listing, capsys)
        == """\
plugin  from          status  contributes
acme    acme-kit 1.2  ok      loss.type=acme, command zap, not yet
                              loss.type=acme
bad     bad-kit 0.1   broken

broken: `bad` (bad-kit 0.1): ImportError: no module `x`
"""
    )


REPORT = {
    "steps": 80, "seconds": 41.23, "loss_first": 7.62, "loss_last": 5.03, "eval_loss_first": 7.6, "eval_loss_last": 5.1,
    "tokens_per_second": 3912.4, "peak_bytes": int(1.25 * 2**30), "run_dir": "runs/1", "model_dir": "runs/1/model",
    "ledger": {"tokens_in": 1000, "tokens_kept": 930, "tokens_truncated": 70, "tokens_dropped": 0, "fill": 0.9961,
               "rows_in": 50, "rows_dropped": 2, "reasons": {"no target": 2}},
}  # fmt: skip


def test_the_closing_summary():
    assert (
        summary(REPORT)
        == """\
trained 80 steps in 41.2 s

  loss           7.620 → 5.030 (66 % of its start)
  held-out loss  7.600 → 5.100 (67 % of its start)
  tokens         930 kept of 1,000 read; 70 cut
  rows           2 of 50 dropped: 2 no target
  fill           99.6 %
  speed          3,912 tokens/s
  peak memory    1.25 GiB
  model          runs/1/model
  run folder     runs/1"""
    )


@pytest.mark.parametrize(
    ("first", "last", "reward", "line"),
    [
        (7.62, 5.03, None, "7.620 → 5.030 (66 % of its start)"),
        (7.62, 5.03, 0.5, "7.620 → 5.030"),  # each over other completions: no part of anything
        (1e-9, -0.181, None, "0.000 → -0.181"),
        (0.0, 0.0, None, "0.000 → 0.000"),
        (0.5, -0.1, None, "0.500 → -0.100"),
        (0.0001, 0.002, None, "0.000 → 0.002"),
        (5e37, 5e37, 1.0, "5e+37 → 5e+37"),
    ],
)
def test_a_loss_shows_which_part_is_left_only_where_there_is_one(first, last, reward, line):
    said = summary({"loss_first": first, "loss_last": last, "reward_first": reward, "reward_last": reward})
    assert said.splitlines()[2].split(maxsplit=1)[1] == line


def test_the_summary_leaves_out_what_was_not_measured():
    report = {**REPORT, "predicted_bytes": int(1.26 * 2**30)}
    assert "  peak memory    1.25 GiB (predicted 1.26 GiB, +0.80 %)\n" in summary(report)
    report |= {"step_bytes": 2**30}
    told = "1.25 GiB while evaluating or saving, 1.00 GiB in a step (predicted 1.26 GiB, +26.00 %)"
    assert f"peak memory {told} model" in " ".join(summary(report).split())
    report = {**REPORT, "eval_loss_first": None, "eval_loss_last": None, "ledger": {}, "peak_bytes": 0}
    assert "held-out" not in summary(report)
    assert "peak" not in summary(report)
    assert "tokens  " not in summary(report)


def test_the_header_names_device_and_folder():
    assert header("cpu", "runs/1").endswith("trains on cpu in runs/1")


@pytest.mark.parametrize(
    ("thing", "text"),
    [(None, "null"), (True, "true"), (1e-5, "1e-05"), ([1, "a"], "[1, a]"), ({"a": None}, "{a: null}"), ("", "''")],
)
def test_values_are_shown_as_they_are_typed(thing, text):
    assert value(thing) == text


def test_sizes_counts_and_times():
    assert of("budget.bytes", 24 * 2**30) == "24gib"
    assert of("budget.bytes", 10**9) == "1000000000"
    assert of("run.steps", UNSET) == "unset"
    assert (gib(2**31), gib(2**20)) == ("2.00 GiB", "1 MiB")
    assert (count(1, "job"), count(2000, "job")) == ("1 job", "2,000 jobs")
    assert (duration(3.21), duration(200), duration(7300)) == ("3.2 s", "3 min 20 s", "2 h 01 min")
    assert listed(["a", "b", "c"]) == "`a`, `b` or `c`"
    assert wrapped("a\nb", indent="  ", first="") == ["a", "  b"]


def test_talk_can_be_silenced_and_results_not(capsys):
    terminal = Terminal(quiet=True)
    terminal.say("talk")
    terminal.show("result")
    terminal.fail("error: no")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result\n", "error: no\n")
