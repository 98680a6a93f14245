"""Live memory through a step as a PNG. Needs matplotlib, which comes with `memcfg[plots]`."""

from __future__ import annotations

import io

from memcfg.errors import Problem, RunError
from memcfg.planner.budget import Budget
from memcfg.planner.prediction import Prediction
from memcfg.report.memory import COLORS
from memcfg.report.words import GIB


def png(prediction: Prediction, budget: Budget | None) -> bytes:
    """The picture. Raises `RunError` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = 'pip install "memcfg[plots]", or `--html FILE`, which needs nothing'
        raise RunError(
            Problem("drawing a PNG needs matplotlib, which is not installed", key="--png", fix=fix)
        ) from error
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    line = prediction.timeline
    sizes = [[size / GIB for size in line.kinds[kind]] for kind in line.kinds]
    if sizes:
        axes.stackplot(
            line.ms, sizes, labels=list(line.kinds), colors=[COLORS[kind] for kind in line.kinds], step="post"
        )
    for ms, phase in line.phases:
        axes.axvline(ms, color="0.5", linewidth=0.6, linestyle=":")
        axes.annotate(phase, (ms, 1.0), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    top = axes.get_ylim()[1]
    limit = None if budget is None else (budget.bytes - prediction.outside_bytes) / GIB
    if limit is not None and 0 < limit < 1.5 * top:
        axes.axhline(limit, color="#e15759", linestyle="--", linewidth=1)
    axes.set_xlabel("milliseconds (estimate)")
    axes.set_ylabel("GiB")
    axes.set_title(f"memory of one step on {prediction.machine}", loc="left", pad=18)
    axes.margins(x=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
