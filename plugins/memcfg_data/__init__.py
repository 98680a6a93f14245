"""Where the rows come from: the standard library's own documentation and source, or a JSON Lines file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Enum, Ignored, Plugin, Setting, key

source = Enum("data.source", ("stdlib", "jsonl"), open=True, doc="where the rows come from")
path = Setting("data.path", str, nullable=True, doc="the file to train on")
eval_path = Setting("data.eval_path", str, nullable=True, doc="a file to evaluate on; without it rows are held out")
eval_rows = Setting(
    "data.eval_rows", int, nullable=True, minimum=1, unit="rows",
    doc="rows held out for evaluation, chosen by their content; null holds out none",
)  # fmt: skip
limit = Setting("data.limit", int, nullable=True, minimum=1, unit="rows", doc="train on the first rows only")


def _path_given(values: Mapping[str, Any]) -> str | None:
    return "`data.source=jsonl` needs a file: add `data.path=FILE`" if values["data.path"] is None else None


def _one_eval_source(values: Mapping[str, Any]) -> str | None:
    if values["data.eval_path"] is None or values["data.eval_rows"] is None:
        return None
    return "`data.eval_path` names the evaluation rows, so `data.eval_rows` would hold out none: give one of the two"


plugin = Plugin(
    name="data",
    doc="reads the rows to train on",
    options=[source, path, eval_path, eval_rows, limit],
    rules=[
        Default(
            source, "stdlib", id="data.source.default",
            because="every Python carries real text and code in its standard library",
        ),
        Default(path, None, id="data.path.default", because="no file was named"),
        Default(eval_path, None, id="data.eval_path.default", because="no file was named"),
        Default(
            eval_rows, 256, id="data.eval_rows.stdlib", when=source == "stdlib",
            because="the standard library's rows come without an evaluation split",
        ),
        Default(
            eval_rows, None, id="data.eval_rows.default",
            because="rows of a user's own data are held out only on request",
        ),
        Default(limit, None, id="data.limit.default", because="all rows are used unless a limit is set"),
        Ignored(
            path, id="data.path.stdlib", when=source == "stdlib",
            because="the standard library is found where this Python keeps it; a file needs `data.source=jsonl`",
        ),
        Ignored(
            eval_path, id="data.eval_path.stdlib", when=source == "stdlib",
            because="evaluation rows are held out of the standard library's own (`data.eval_rows`)",
        ),
        Check([path], _path_given, id="data.path.jsonl", when=source == "jsonl",
              because="JSON Lines are read from a file"),
        Check([eval_path, eval_rows], _one_eval_source, id="data.eval.one_source",
              because="evaluation rows come from one place"),
    ],
    provides={"data.source": ("stdlib", "jsonl")},
    groups={"data": "where the rows come from"},
    hooks="memcfg_data.hooks",
    active=key("data.source").isin("stdlib", "jsonl"),
)  # fmt: skip
