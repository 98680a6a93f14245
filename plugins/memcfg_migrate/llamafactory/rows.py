"""The data of a LLaMA-Factory config: one name, looked up in its list of data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from memcfg_migrate.loading import SUFFIXES
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.reading import first_object
from memcfg_migrate.said import Said
from memcfg_migrate.schedule import Length, rows_of

FORMS: Final = "rows are `text`, `messages`, or `prompt` and `completion` (for pairs: `chosen` and `rejected`)"


def carry_data(said: Said, out: Outcome) -> Length | None:
    """The one data set; its file is looked up in `dataset_info.json`, as LLaMA-Factory does."""
    out.carry("truncation.max_length", said["cutoff_len"], said.text("cutoff_len"), given=True)
    _held_out(said, out)
    _template(said, out)
    folder, names = said["dataset_dir"], said["dataset"]
    if not names:
        out.remark("open", "the data", "no data set is named: append `data=jsonl data.path=FILE`")
        if "dataset_dir" in said:
            out.remark("there", said.text("dataset_dir"), "not read without a `dataset`")
        return None
    if len(names) > 1:
        text = f"{len(names)} data sets; one is read: put their rows into one file, then `data=jsonl data.path=FILE`"
        out.remark("open", said.text("dataset"), text)
        return None
    return _named(str(names[0]), Path(folder), said, out)


def _named(name: str, folder: Path, said: Said, out: Outcome) -> Length | None:
    info, text = first_object(folder / "dataset_info.json", Path(said.source.path).parent), said.text("dataset")
    entry = info.get(name) if info is not None else None
    if not isinstance(entry, dict):
        why = "is not in it" if info is not None else "is not there"
        out.remark("open", text, f"`{folder / 'dataset_info.json'}` {why}: append `data=jsonl data.path=FILE`")
        return None
    out.remark("open", f"rows of {text}", FORMS)
    file, hub = entry.get("file_name"), entry.get("hf_hub_url")
    if isinstance(file, str) and Path(file).suffix in SUFFIXES:
        path = str(folder / file)
        out.carry("data.source", SUFFIXES[Path(file).suffix], text)
        out.carry("data.path", path, text)
        rows = rows_of(path, Path(said.source.path).parent)
        return None if rows is None else Length(rows, rows_from=f"counted in `{path}`")
    if isinstance(hub, str):
        out.carry("data.source", "hub", text)
        out.carry("data.path", hub, text)
    else:
        out.remark(
            "open", text, "JSON Lines, Parquet and data sets of the hub are read: append `data=jsonl data.path=FILE`"
        )
    return None


def _held_out(said: Said, out: Outcome) -> None:
    size = said["val_size"]
    if size >= 1:
        out.carry("data.eval_rows", int(size), said.text("val_size"))
    elif size:
        out.remark("open", said.text("val_size"), "rows are held out by their number: append `data.eval_rows=N`")
    if said["eval_dataset"] is not None:
        out.remark("open", said.text("eval_dataset"), "name a file in `data.eval_path`")


def _template(said: Said, out: Outcome) -> None:
    name = said["template"]
    if name in ("plain", "chatml"):
        out.carry("data.chat_template", name, said.text("template"))
    elif name is not None:
        text = "conversations become text by the tokenizer's own template; look at a row with `python -m memcfg check`"
        out.remark("differs", said.text("template"), text)
