"""The data of an axolotl config: one data set, and the form that its rows must have here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from memcfg import Problem
from memcfg_migrate.loading import SUFFIXES
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said
from memcfg_migrate.schedule import Length, rows_of

MESSAGES: Final = "a conversation is in the column `messages`, with `role` and `content`"
FORMS: Final = {
    "chat_template": MESSAGES,
    "completion": "texts are in the column `text`",
    "alpaca": "rows are `prompt` and `completion`: write the instruction and its input into the one, the output into the other",
}
"""What to say of a form of rows."""
TEMPLATES: Final = ("plain", "chatml")


def carry_data(said: Said, out: Outcome, beside: Path) -> Length | None:
    """The one entry of `datasets`; how many rows it has, where that can be counted at once."""
    _template(said, out)
    entries, stream = said["datasets"], said["pretraining_dataset"]
    if stream:
        entries = stream if isinstance(stream, list) else [stream]
        out.carry("data.streaming", True, said.text("pretraining_dataset"))
    name = "pretraining_dataset" if stream else "datasets"
    entries = [{"path": entry} if isinstance(entry, str) else entry for entry in entries or ()]
    _held_out(said, out)
    if not entries:
        out.remark("open", "the data", "no data set is named: append `data=jsonl data.path=FILE`")
        return None
    if len(entries) > 1:
        text = f"{len(entries)} data sets; one is read: put their rows into one file, then `data=jsonl data.path=FILE`"
        out.remark("open", f"`{name}` ({said.where(name)})", text)
        return None
    if not isinstance(entries[0], dict) or not isinstance(entries[0].get("path"), str):
        out.problems.append(Problem(f"its entries are mappings with a `path` ({said.where(name)})", key=name))
        return None
    return _entry(entries[0], f"`{name}` ({said.where(name)})", out, beside)


def _entry(entry: dict[str, Any], text: str, out: Outcome, beside: Path) -> Length | None:
    files = entry.get("data_files")
    path = files if isinstance(files, str) else entry["path"]
    source = SUFFIXES.get(Path(path).suffix)
    out.carry("data.source", source or "hub", text)
    out.carry("data.path", path, text)
    split = entry.get("split")
    if source is None and split not in (None, "train"):
        out.carry("data.split", split, text)
    if source is None and entry.get("name") is not None:
        out.carry("data.config", entry["name"], text)
    _form(entry, text, out)
    rows = rows_of(path, beside) if source else None
    return None if rows is None else Length(rows, rows_from=f"counted in `{path}`")


def _form(entry: dict[str, Any], text: str, out: Outcome) -> None:
    kind = entry.get("type")
    known = next((form for name, form in FORMS.items() if str(kind).startswith(name)), None)
    if known is not None:
        out.remark("open", f"`type={kind}` of {text}", known)
    else:
        what = "a mapping" if isinstance(kind, dict) else f"`{kind}`"
        forms = "rows are `text`, `messages`, or `prompt` and `completion` (for pairs: `chosen` and `rejected`)"
        out.remark("open", f"`type` of {text}", f"{what} is not read: {forms}")
    for name in sorted(set(entry) - {"path", "type", "data_files", "split", "name", "ds_type"}):
        out.remark(
            "learning", f"`{name}={entry[name]}` of {text}", "columns and roles are not renamed: change the rows"
        )


def _template(said: Said, out: Outcome) -> None:
    name = said["chat_template"]
    if name is None or name == "tokenizer_default":
        return
    if name in TEMPLATES:
        out.carry("data.chat_template", name, said.text("chat_template"))
    else:
        text = "templates are `plain`, `chatml`, the tokenizer's own, or a Jinja file: name one in `data.chat_template`"
        out.remark("learning", said.text("chat_template"), text)


def _held_out(said: Said, out: Outcome) -> None:
    size, tests = said["val_set_size"], said["test_datasets"]
    if size and size >= 1:
        out.carry("data.eval_rows", int(size), said.text("val_set_size"))
    elif size:
        out.remark("open", said.text("val_set_size"), "rows are held out by their number: append `data.eval_rows=N`")
    if not tests:
        return
    first = tests[0] if isinstance(tests[0], dict) else {"path": tests[0]}
    files = first.get("data_files") if isinstance(first.get("data_files"), str) else first.get("path")
    if len(tests) == 1 and isinstance(files, str) and Path(files).suffix in SUFFIXES:
        out.carry("data.eval_path", files, said.text("test_datasets"))
    elif len(tests) == 1 and first.get("split"):
        out.carry("data.eval_split", first["split"], said.text("test_datasets"))
    else:
        out.remark("open", f"`test_datasets` ({said.where('test_datasets')})", "name a file in `data.eval_path`")
