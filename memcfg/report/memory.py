"""A prediction as tables and pictures for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import OutOfMemory
from memcfg.planner.budget import Budget, short_of_weights
from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Prediction, Timeline
from memcfg.report.tables import NARROW
from memcfg.report.words import GIB, count, gib, width, wrapped

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

COLORS: Final = {
    "weights": "#4e79a7", "gradients": "#f28e2b", "optimizer": "#76b7b2", "activations": "#59a14f",
    "cache": "#e15759", "logits": "#edc948", "workspace": "#b07aa1", "inputs": "#9c755f",
}  # fmt: skip
"""One hue for each kind, told apart by eyes that see few colours too; the same in the terminal, in HTML and in PNG."""

LETTERS: Final = {
    "weights": "W", "gradients": "G", "optimizer": "O", "activations": "A", "cache": "C", "logits": "L",
    "workspace": "K", "inputs": "I",
}  # fmt: skip
"""What stands for each kind where there is no colour."""

LEAST_SHARE: Final = 0.0005
"""Kinds that are less of the peak are not worth a line."""

ROWS: Final = 14
PIECES: Final = 6
BAR: Final = 24


def show_prediction(prediction: Prediction, budget: Budget | None, color: bool = True) -> list[Any]:
    """Headline, tables and timeline, as things to print in order."""
    parts: list[Any] = [*headline(prediction), *assumed(prediction), "", kinds(prediction), ""]
    parts += [phases(prediction), ""]
    if prediction.timeline.ms:
        parts += [*timeline(prediction.timeline, color), ""]
    parts += [*pieces(prediction), ""]
    return [*parts, *verdict(prediction, budget)]


def headline(prediction: Prediction) -> list[str]:
    trained = prediction.trained / max(1, prediction.parameters)
    what = f"{_billions(prediction.parameters)} parameters, {trained:.0%} of them trained" if trained < 0.995 else (
        f"{_billions(prediction.parameters)} parameters, all trained"
    )  # fmt: skip
    lines = [f"memory of one step on {prediction.machine}: {what}, {count(prediction.tokens, 'token')}", ""]
    rows = [
        ("allocated", prediction.allocated_bytes, "in use at the peak"),
        ("reserved", prediction.reserved_bytes, "held by the allocator"),
        ("least reserved", prediction.smallest_bytes, "the least it runs with"),
        ("outside", prediction.outside_bytes, "context and libraries"),
        ("host", prediction.host_bytes, "kept in host memory"),
    ]
    if not prediction.outside_bytes:
        rows = [rows[0], rows[4]]
    told = (
        f"  {name:<15}{gib(size):>11}  {what if width() >= NARROW else ''}".rstrip()
        for name, size, what in rows
        if size
    )
    return [*wrapped(lines[0]), "", *told]


def assumed(prediction: Prediction) -> list[str]:
    """What was taken for sizes that depend on the data."""
    lines = [line for text in prediction.assumed for line in wrapped(text, "  ", first="  ")]
    return ["", "reckoned with", *lines] if lines else []


def kinds(prediction: Prediction) -> Table:
    """What the peak is made of."""
    table = _table(f"at the peak ({prediction.peak_phase})", "", "share", "")
    for kind, size in prediction.kinds.items():
        share = size / max(1, prediction.allocated_bytes)
        if share < LEAST_SHARE:
            continue
        table.add_row(*_cells(kind, size, share, kind))
    return table


def phases(prediction: Prediction) -> Table:
    """The peak of each phase."""
    table = _table("peak in each phase", "", "share", "")
    for phase, size in prediction.phases.items():
        share = size / max(1, prediction.allocated_bytes)
        table.add_row(*_cells(phase, size, share, None))
    return table


def pieces(prediction: Prediction) -> Iterator[str]:
    """The largest things alive at the peak."""
    yield "largest at the peak"
    for piece in prediction.peak[:PIECES]:
        op = piece.op.removeprefix("aten::")
        said = f"{piece.kind:<12} {count(piece.count, 'tensor'):<13} {op}, made in {piece.phase}"
        yield from wrapped(said, " " * 14, first=f"  {gib(piece.bytes):>10}  ")


def verdict(prediction: Prediction, budget: Budget | None) -> list[str]:
    """Whether it fits, as one sentence."""
    if budget is None:
        return wrapped("no budget was given, and the card's memory is not known: add `budget=24gib`")
    whose = "the budget" if budget.source == "request" else f"{prediction.machine}'s memory"
    said = f"{whose} of {sized(budget.bytes)}"
    needed, verdict = prediction.needed_bytes, prediction.verdict(budget.bytes)
    alone = short_of_weights(prediction, budget)
    if alone is not None:
        takes = f"the weights alone take {gib(alone)} with what lies outside the allocator"
        return wrapped(f"too large: {takes}, {said} is less; the step needs {gib(needed)}")
    if verdict == "fits":
        return wrapped(f"fits: {gib(budget.bytes - needed)} of {said} are left")
    if verdict == "close":
        more = prediction.unforeseen_bytes
        beside = f", and streams of their own may hold {gib(more)} more" if more else ""
        return wrapped(f"too close to call: it needs {gib(needed)} of {said}{beside}")
    return wrapped(f"too large: it needs {gib(needed)}, {gib(needed - budget.bytes)} more than {said}")


def show_out_of_memory(error: OutOfMemory, prediction: Prediction) -> list[Any]:
    """What was in use when memory ran out, beside what the whole step needs."""
    told = wrapped(
        f"until then at most {gib(error.allocated_bytes)} were in use ({gib(error.reserved_bytes)} reserved); the step "
        f"needs {gib(prediction.allocated_bytes)} ({gib(prediction.smallest_bytes)} reserved at the least)"
    )
    return ["", *told, "", kinds(prediction), "", phases(prediction), ""]


def show_machine(machine: Machine) -> list[str]:
    """A machine's numbers."""
    tera = 1e12
    rows = (
        ("memory", gib(machine.memory or 0)), ("outside allocator", gib(machine.outside)), ("cublas workspace", gib(machine.blas)),
        ("matrix products", f"{machine.matmul / tera:.0f} Tflop/s, float32 {machine.matmul_float32 / tera:.0f}"),
        ("attention", f"{machine.attention}, with a mask {machine.attention_masked}"),
        ("memory bandwidth", f"{machine.bandwidth / tera:.2f} TB/s"), ("copies to the host", f"{machine.host_copy / 1e9:.0f} GB/s"),
    )  # fmt: skip
    told = (line for name, text in rows for line in wrapped(text, " " * 23, first=f"  {name:<19}  "))
    return [f"{machine.name}, capability {machine.capability / 10:g}", *told]


def sized(size: int) -> str:
    """Bytes in both units that people write, where they differ."""
    if size >= GIB // 100 and size % (GIB // 1024):
        return f"{size / 1e9:.4g} GB ({size / GIB:.2f} GiB)"
    return gib(size)


def timeline(line: Timeline, color: bool) -> list[Text | str]:
    """Live bytes through the step, kinds stacked, one column for each stretch of time."""
    from rich.text import Text

    room = width() - 12
    columns = _columns(line, room)
    top = max(sum(column.values()) for column in columns)
    lines: list[Text | str] = ["live memory through one step"]
    for row in range(ROWS, 0, -1):
        label = gib(top * row / ROWS) if row in (ROWS, ROWS // 2) else ""
        text = Text(f"{label:>10} ")
        for column in columns:
            kind = _at(column, top * (row - 0.5) / ROWS)
            text.append(
                " " if kind is None else "█" if color else LETTERS[kind], COLORS.get(kind or "", "") if color else ""
            )
        lines.append(text)
    lines.append(Text(" " * 11 + _phase_line(line, room)))
    return [*lines, *_legend([k for k, sizes in line.kinds.items() if max(sizes) > LEAST_SHARE * top], color)]


def _legend(kinds: Sequence[str], color: bool) -> list[Text | str]:
    """What stands for each kind, on as many lines as it takes."""
    from rich.text import Text

    lines = [Text()]
    for kind in kinds:
        if len(lines[-1]) + len(kind) + 4 > width():
            lines.append(Text())
        lines[-1].append("█ " if color else f"{LETTERS[kind]} ", COLORS[kind] if color else "")
        lines[-1].append(f"{kind}  ")
    return list(lines)


def _columns(line: Timeline, width: int) -> list[dict[str, int]]:
    """The highest sample of each column's stretch of time."""
    end = max(line.ms[-1], 1e-9)
    found: list[dict[str, int]] = [{} for _ in range(width)]
    for i, ms in enumerate(line.ms):
        at = min(width - 1, int(ms / end * width))
        sample = {kind: sizes[i] for kind, sizes in line.kinds.items()}
        if sum(sample.values()) >= sum(found[at].values()):
            found[at] = sample
    for at in range(1, width):
        found[at] = found[at] or found[at - 1]
    return found


def _at(column: dict[str, int], height: float) -> str | None:
    """The kind that lies at this height of the stack."""
    for kind, size in column.items():
        if height < size:
            return kind
        height -= size
    return None


def _phase_line(line: Timeline, width: int) -> str:
    """The phases' names where they begin, as far as there is room."""
    end, text = max(line.ms[-1], 1e-9), ""
    for ms, phase in line.phases:
        at = int(ms / end * width)
        if at >= len(text) and at + len(phase) + 2 <= width and not text.rstrip().endswith(f"|{phase}"):
            text = text.ljust(at) + f"|{phase} "
    return text


def _table(title: str, *more: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title, min_width=24 if width() >= NARROW else None)
    for i, name in enumerate(more[: None if width() >= NARROW else 2]):
        table.add_column(name, justify="right" if i < 2 else "left")
    return table


def _cells(name: str, size: int, share: float, kind: str | None) -> tuple[Any, ...]:
    """The bar is left out where there is no room."""
    told = (name, gib(size), f"{share:.0%}")
    return (*told, _bar(share, kind)) if width() >= NARROW else told


def _bar(share: float, kind: str | None) -> Any:
    from rich.text import Text

    return Text("█" * max(1, round(share * BAR)) if share > 0.004 else "", COLORS[kind] if kind else "")


def _billions(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"


Parts = Sequence[Any]
