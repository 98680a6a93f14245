"""How training went: curves of everything in `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from memcfg.report.pages.charts import Curve, Point, curves, finite
from memcfg.report.pages.frame import el, together

Lines = Sequence[Mapping[str, Any]]

HELD_OUT: Final = "eval_"
SPEED: Final = {
    "tokens_per_second": "tokens per second",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
}
"""What every run logs beside its loss."""
ASIDE: Final = ("step", "epoch", "loss", "mean_loss", "targets", "eval_loss", *SPEED)
"""Keys that are told elsewhere, or say nothing to a reader."""


def series(lines: Lines, key: str) -> list[Point]:
    """The points of one key by step, in order; what is no number is left out."""
    found = {}
    for line in lines:
        step, value = finite(line.get("step")), finite(line.get(key))
        if step is not None and value is not None:
            found[step] = value
    return sorted(found.items())


def loss(lines: Lines) -> Markup | None:
    """Training loss and held-out loss."""
    return curves(
        "Loss",
        [Curve("training", series(lines, "loss")), Curve("held-out", series(lines, "eval_loss"), 1, dashed=True)],
        said=False,
    )


def speed(lines: Lines) -> Markup | None:
    """Throughput, learning rate and gradient norm."""
    figures = [
        curves(title, [Curve(title, series(_trained(lines, key), key), hue)])
        for hue, (key, title) in enumerate(SPEED.items())
    ]
    drawn = [figure for figure in figures if figure is not None]
    return el("div", *drawn, cls="charts") if drawn else None


def _trained(lines: Lines, key: str) -> Lines:
    """Without the line before training: what was measured there is no training."""
    return [line for line in lines if line.get("step") != 0] if key == "tokens_per_second" else lines


def metrics(lines: Lines) -> Markup | None:
    """What the trainer logs of its own, each with its held-out values; families (`rewards/chosen`) stand together."""
    figures = [figure for key in _own(lines) if (figure := _both(lines, key)) is not None]
    return el("div", *figures, cls="charts") if figures else None


def _own(lines: Lines) -> Iterator[str]:
    seen = dict.fromkeys(key for line in lines for key in line)
    trained = [key for key in seen if key not in ASIDE and not key.startswith(HELD_OUT)]
    alone = [key.removeprefix(HELD_OUT) for key in seen if key.startswith(HELD_OUT) and key not in ASIDE]
    yield from dict.fromkeys([*trained, *alone])


def _both(lines: Lines, key: str) -> Markup | None:
    held = series(lines, HELD_OUT + key)
    return curves(key, [Curve("training", series(lines, key), 2), Curve("held-out", held, 1, dashed=True)])


def nothing() -> Markup:
    return together([el("p", "No step was logged.")])
