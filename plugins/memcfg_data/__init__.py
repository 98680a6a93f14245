"""Where the rows come from: the standard library's own documentation and source, files, or the hub.

    rows = memcfg_data.dataset([{"messages": [...]}, ...])

makes a data set of rows that exist already, whose nested values stay as they are. It is loaded when it is first used, so
that importing this module stays light.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Enum, Forbid, Ignored, Plugin, Setting, key, only_when

FILES = ("jsonl", "parquet")
SOURCES = ("stdlib", *FILES, "hub")

source = Enum("data.source", SOURCES, open=True, doc="where the rows come from")
path = Setting(
    "data.path", str, nullable=True, doc="what to train on: a file, a folder, a pattern, or a name on the hub"
)
eval_path = Setting("data.eval_path", str, nullable=True, doc="files to evaluate on; without them rows are held out")
eval_rows = Setting(
    "data.eval_rows", int, nullable=True, minimum=1, unit="rows",
    doc="rows held out for evaluation, chosen by their content; null holds out none",
)  # fmt: skip
limit = Setting("data.limit", int, nullable=True, minimum=1, unit="rows", doc="train on the first rows only")
columns = Setting(
    "data.columns",
    list,
    default=None,
    nullable=True,
    doc="the columns to read; null: those of the form that the rows have",
)
on_error = Setting(
    "data.on_error", str, default="stop", values=("stop", "skip"),
    doc="what a row that cannot be read does: stop with its line, or be left out and counted",
)  # fmt: skip
streaming = Bool("data.streaming", doc="read rows while training goes on instead of all of them before it")
workers = Setting(
    "data.num_proc", int, default=None, minimum=1, nullable=True, unit="processes",
    doc="processes that prepare rows; null: one, whose tokenizer uses all cores",
)  # fmt: skip
template = Setting(
    "data.chat_template", str, nullable=True,
    doc="how conversations become text: plain, chatml or a Jinja file; null: as the tokenizer says",
)  # fmt: skip
config = Setting("data.config", str, default=None, nullable=True, doc="which part of a data set of the hub")
split = Setting("data.split", str, default="train", doc="the split to train on")
eval_split = Setting("data.eval_split", str, default=None, nullable=True, doc="the split to evaluate on")
revision = Setting("data.revision", str, default=None, nullable=True, doc="version of a data set of the hub")

on_hub = source == "hub"


def _path_given(values: Mapping[str, Any]) -> str | None:
    if values["data.path"] is not None:
        return None
    what = ("a name", "NAME") if values["data.source"] == "hub" else ("a file", "FILE")
    return f"`data.source={values['data.source']}` needs {what[0]}: add `data.path={what[1]}`"


def _one_eval_source(values: Mapping[str, Any]) -> str | None:
    named = next((k for k in ("data.eval_path", "data.eval_split") if values.get(k) is not None), None)
    if named is None or values["data.eval_rows"] is None:
        return None
    return f"`{named}` names the evaluation rows, so `data.eval_rows` would hold out none: give one of the two"


def _nothing_held_out(values: Mapping[str, Any]) -> str | None:
    if values["data.eval_rows"] is None:
        return None
    return "rows cannot be held out of a stream, which is never seen whole: name evaluation rows of their own"


def _evaluated(values: Mapping[str, Any]) -> str | None:
    named = [values.get(name) for name in ("data.eval_rows", "data.eval_path", "data.eval_split")]
    if values["run.eval_steps"] is None or any(value is not None for value in named):
        return None
    more = "data.eval_split=NAME" if values["data.source"] == "hub" else "data.eval_path=FILE"
    text = f"no rows are there to evaluate on every {values['run.eval_steps']} steps: add `data.eval_rows=N`"
    return text if values["data.source"] == "stdlib" else f"{text} or `{more}`"


plugin = Plugin(
    name="data",
    doc="reads the rows to train on",
    options=[
        source, path, eval_path, eval_rows, limit, columns, on_error, streaming, workers, template, config, split,
        eval_split, revision,
    ],
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
        Default(streaming, False, id="data.streaming.default",
                because="rows that are read once are kept, and then need neither time nor memory"),
        Default(template, "plain", id="data.chat_template.tiny", when=key("model.source") == "tiny",
                because="the small model's tokenizer knows no conversations"),
        Default(template, None, id="data.chat_template.default", because="a tokenizer brings its own"),
        Ignored(
            path, id="data.path.stdlib", when=source == "stdlib",
            because="the standard library is found where this Python keeps it; a file needs `data.source=jsonl`",
        ),
        Ignored(
            eval_path, id="data.eval_path.stdlib", when=source == "stdlib",
            because="evaluation rows are held out of the standard library's own (`data.eval_rows`)",
        ),
        Ignored(eval_path, id="data.eval_path.hub", when=on_hub,
                because="a data set of the hub is evaluated on one of its splits (`data.eval_split`)"),
        Ignored(on_error, id="data.on_error.stdlib", when=source == "stdlib", except_values=("stop",),
                because="the standard library has no rows that cannot be read"),
        Ignored(columns, id="data.columns.stdlib", when=source == "stdlib", except_values=(None,),
                because="the standard library's rows are prompts and completions"),
        *only_when(on_hub, config, split, eval_split, revision, because="only `data=hub` has parts, splits and versions"),
        Forbid(streaming.on & ~(key("trainer.name") == "sft"), id="data.streaming.sft_only",
               because="the other trainers prepare all rows before the first step",
               suggest=["data.streaming=false"]),
        Check([source, path], _path_given, id="data.path.needed", when=source.isin(*FILES, "hub"),
              because="files and data sets of the hub must be named"),
        Check([eval_path, eval_rows], _one_eval_source, id="data.eval.one_source",
              because="evaluation rows come from one place"),
        Check([eval_split, eval_rows], _one_eval_source, id="data.eval_split.one_source", when=on_hub,
              because="evaluation rows come from one place"),
        Check([source, "run.eval_steps", eval_rows, eval_path, eval_split], _evaluated, id="data.eval.needed",
              when=source.isin(*SOURCES), because="an evaluation needs rows that are not trained on"),
        Check([eval_rows], _nothing_held_out, id="data.streaming.eval_rows", when=streaming.on & source.isin(*FILES, "hub"),
              because="a stream is read in its order"),
    ],
    provides={"data.source": SOURCES},
    groups={"data": "where the rows come from"},
    hooks="memcfg_data.hooks",
    preflight="memcfg_data.preflight:look",
    active=source.isin(*SOURCES),
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """`dataset`, loaded with Arrow and datasets when it is asked for."""
    if name == "dataset":
        from memcfg_data.table import dataset

        return dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
