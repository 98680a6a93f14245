"""What is said before and after a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memcfg.report.words import count, duration, figure, gib, wrapped

SHOWN: Final = 4
"""Completions that the summary shows."""
WIDTH: Final = 30
"""Characters of a prompt or a completion that it shows."""
LEAST: Final = 0.0005
"""The smallest loss that is shown as one."""


def header(device: str, run_dir: str) -> str:
    """The line above a run."""
    from memcfg import __version__

    return f"memcfg {__version__} trains on {device} in {run_dir}"


def summary(report: Mapping[str, Any]) -> str:
    """The closing summary. Takes the engine's report as plain data; what it lacks is left out.

    Keys: steps, seconds, loss_first, loss_last, eval_loss_first, eval_loss_last, reward_first, reward_last, completions,
    tokens_per_second, peak_bytes, predicted_bytes, ledger, run_dir, model_dir, page."""
    rows = [(name, text) for name, text in _rows(report) if text]
    width = max((len(name) for name, _ in rows), default=0)
    steps = f" {count(report['steps'], 'step')}" if report.get("steps") is not None else ""
    lines = [f"trained{steps} in {duration(report['seconds'])}" if "seconds" in report else f"trained{steps}", ""]
    told = (line for name, text in rows for line in wrapped(text, " " * (width + 4), first=f"  {name:<{width}}  "))
    return "\n".join([*lines, *told, *_completions(report)])


def _completions(report: Mapping[str, Any]) -> list[str]:
    """A few completions that were sampled last, one to a line, each with its reward."""
    found = (report.get("completions") or [])[:SHOWN]
    width = max((len(_short(one["prompt"])) for one in found), default=0)
    rows = [
        f"  {figure(one['reward']):>6}  {_short(one['prompt']):<{width}}  {_short(one['completion'])}" for one in found
    ]
    return ["", "  sampled last, with their rewards", *rows] if rows else []


def _short(said: Any) -> str:
    """Text on one line; of a conversation its last message."""
    text = said[-1].get("content") if isinstance(said, list) and said else said
    line = " ".join(str(text or "").split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ledger: Mapping[str, Any] = report.get("ledger") or {}
    fixed = report.get("reward_last") is None  # else each loss is one over other completions
    yield "loss", change(report.get("loss_first"), report.get("loss_last"), share=fixed)
    yield "held-out loss", change(report.get("eval_loss_first"), report.get("eval_loss_last"), share=fixed)
    yield "reward", change(report.get("reward_first"), report.get("reward_last"), share=False)
    yield "tokens", _tokens(ledger)
    yield "rows", _dropped_rows(ledger)
    yield "fill", _percent(ledger.get("fill"))
    yield "speed", _if(report.get("tokens_per_second"), lambda rate: f"{rate:,.0f} tokens/s")
    yield "peak memory", _peak(report.get("peak_bytes"), report.get("step_bytes"), report.get("predicted_bytes"))
    yield "model", str(report.get("model_dir") or "")
    yield "run folder", str(report.get("run_dir") or "")
    yield "report", str(report.get("page") or "")


def change(first: float | None, last: float | None, *, share: bool = True) -> str:
    """A number before and after; with `share` also which part of its start is left, where there is one."""
    if first is None or last is None:
        return "" if last is None else figure(last)
    part = f" ({100 * last / first:.0f} % of its start)" if share and first >= LEAST and last >= 0 else ""
    return f"{figure(first)} → {figure(last)}{part}"


def _tokens(ledger: Mapping[str, Any]) -> str:
    if "tokens_kept" not in ledger:
        return ""
    lost = [(ledger.get("tokens_truncated"), "cut"), (ledger.get("tokens_dropped"), "dropped")]
    parts = [f"{number:,} {word}" for number, word in lost if number]
    read = f" of {ledger['tokens_in']:,} read" if "tokens_in" in ledger else ""
    return "; ".join([f"{ledger['tokens_kept']:,} kept{read}", *(parts or ["none lost"])])


def _dropped_rows(ledger: Mapping[str, Any]) -> str:
    if not ledger.get("rows_dropped"):
        return ""
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in (ledger.get("reasons") or {}).items())
    return f"{ledger['rows_dropped']:,} of {ledger.get('rows_in', 0):,} dropped" + (f": {reasons}" if reasons else "")


def _peak(measured: int | None, step: int | None, predicted: int | None) -> str:
    """What was measured, and by how much the prediction of a step differed from what a step took."""
    if not measured:
        return ""
    step = step or measured
    off = f" (predicted {gib(predicted)}, {100 * (predicted / step - 1):+.2f} %)" if predicted else ""
    more = "" if step == measured else f"{gib(measured)} while evaluating or saving, "
    return f"{more}{gib(step)}{' in a step' if more else ''}{off}"


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.1f} %"


def _if(number: Any, words: Any) -> str:
    return words(number) if number else ""
