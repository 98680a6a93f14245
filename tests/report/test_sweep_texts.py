"""What a sweep says, word for word."""

from memcfg.commands.job import Outcome
from memcfg.compose.pruning import Excluded
from memcfg.report.console import Terminal
from memcfg.report.sweep import show_excluded, show_sweep, sweep_csv, sweep_markdown

GOOD = {"loss_first": 6.0, "loss_last": 5.0312, "eval_loss_last": 5.5, "tokens_per_second": 1234.5,
        "peak_bytes": 3 * 2**30, "seconds": 12.34}  # fmt: skip
JOBS = [
    Outcome(0, ("run.steps=9", "packing=bfd"), "swept/0", "completed", results=GOOD),
    Outcome(1, ("run.steps=9", "packing=none"), "swept/1", "failed", "out of memory", 1),
]
LENGTH = "you chose `packing.strategy=bfd`\n`packing.length` forbids it, because a row needs a length | to fill"
EXCLUDED = [
    Excluded(("run.steps=9", f"packing={name}"), ("packing.length", "packing.free"), LENGTH)
    for name in ("wrapped", "bfd_split", "a", "b", "c", "d", "e", "f")
] + [Excluded(("run.steps=9", "loss=x"), ("loss.x",), "`loss.x` forbids it, because it does")]


def shown(things, capsys) -> str:
    Terminal(color=False).show(*things)
    return capsys.readouterr().out


def test_a_sweep_compares_its_jobs(capsys):
    assert (
        shown(show_sweep(JOBS), capsys)
        == """\
2 jobs, 1 completed, 1 failed
with run.steps=9

job  overrides                 outcome    loss, memory, speed, or why not
  0  packing=bfd               completed  5.031, 3.00 GiB, 1,234 tokens/s
  1  packing=none              failed     out of memory
"""
    )


def test_points_that_cannot_be_run_are_grouped_by_the_rules(capsys):
    assert (
        shown(show_excluded(EXCLUDED, [job.overrides for job in JOBS]), capsys)
        == """\
9 of 11 points cannot be run

  8 points: `packing.free` and `packing.length`
    you chose `packing.strategy=bfd`
    `packing.length` forbids it, because a row needs a length | to fill
    - packing=wrapped
    - packing=bfd_split
    - packing=a
    - packing=b
    - packing=c
    - packing=d
    and 2 more

  1 point: `loss.x`
    `loss.x` forbids it, because it does
    - loss=x
"""
    )


def test_a_sweep_as_a_table_for_programs():
    assert (
        sweep_csv(JOBS, EXCLUDED[:1])
        == """\
job,run.steps,packing,status,loss_first,loss_last,eval_loss_last,tokens_per_second,peak_bytes,seconds,folder,reason
0,9,bfd,completed,6.0,5.0312,5.5,1234.5,3221225472,12.34,swept/0,
1,9,none,failed,,,,,,,swept/1,out of memory
,9,wrapped,pruned,,,,,,,,"packing.length, packing.free"
"""
    )


def test_a_sweep_as_a_page():
    assert (
        sweep_markdown(JOBS, EXCLUDED[-1:])
        == """\
# Sweep

2 jobs, 1 completed, 1 failed

In every job: `run.steps=9`

| job | `packing` | outcome | loss | held-out loss | tokens/s | peak memory | seconds |
| --- | --- | --- | --- | --- | --- | --- | --- |
| 0 | bfd | completed | 5.0312 | 5.5000 | 1,234 | 3.00 GiB | 12.3 |
| 1 | none | failed |  |  |  |  |  |

## Jobs without a result

Job 1 (failed), `run.steps=9 packing=none`:

```
out of memory
```

## Points that cannot be run

```
1 of 3 points cannot be run

  1 point: `loss.x`
    `loss.x` forbids it, because it does
    - loss=x
```
"""
    )


def test_cells_cannot_break_the_table():
    page = sweep_markdown([Outcome(0, ("a=x|y",), "", "completed")], [])
    assert "| 0 | x\\|y | completed |" in page
