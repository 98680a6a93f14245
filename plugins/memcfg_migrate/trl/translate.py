"""From what a TRL config says to overrides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from memcfg import Problem, RequestError
from memcfg.compose.spelling import nearest
from memcfg.report.words import listed
from memcfg_migrate import hf, hf_memory, loading
from memcfg_migrate.becomes import translate
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Given, Said, Source
from memcfg_migrate.schedule import Length
from memcfg_migrate.trl.trainers import BESIDE, MODEL, SCRIPT, TRAINERS, Trainer

FORGOTTEN: Final = "nothing here reads it beside the other arguments"


def outcome(source: Source, chosen: str | None, length: Length) -> Outcome:
    """What becomes of it. `chosen`: the trainer that the user named. Raises `RequestError` where none can be told."""
    trainer = TRAINERS[chosen or _trainer(source)]
    source.given = dict(_unfolded(source.given))
    plain = "TrainingArguments" in source.trainers
    args = {a.name: a for a in (*BESIDE, *SCRIPT, *MODEL, *trainer.args(plain))}
    said, out = Said(source, args.values()), Outcome("TRL", source.path, trainer.name)
    out.carry("trainer.name", trainer.name, f"`{trainer.config}`")
    counted = _surroundings(said, out)
    hf.training(said, out, _length(length, counted, said))
    _memory(said, out, trainer)
    trainer.own(said, out)
    translate(said, out)
    _rest(said, out, trainer)
    return out


def _trainer(source: Source) -> str:
    """The one trainer whose config this can be."""
    found = [t.name for t in TRAINERS.values() if t.config in source.trainers or t.trainer in source.trainers]
    if not found:
        found = list(_able(source))
    if len(found) == 1:
        return found[0]
    which = found or list(TRAINERS)
    text = "more than one trainer could read this" if found else "no trainer reads this"
    fix = f"say which: {listed([f'--trainer {name}' for name in which])}"
    raise RequestError(Problem(text, key=source.path, fix=fix))


def _able(source: Source) -> Iterator[str]:
    """Trainers that know every argument that any of them knows, and at least one of their own."""
    names = {name for name in source.given if "." not in name}
    everyone = {t.name: {a.name for a in t.args()} for t in TRAINERS.values()}
    beside = {a.name for a in (*BESIDE, *SCRIPT, *MODEL)}
    base = {a.name for a in hf.arguments()}
    known = (set().union(*everyone.values()) & names) - beside - base
    for name, own in everyone.items():
        others = set().union(*(args for other, args in everyone.items() if other != name and not TRAINERS[other].rare))
        if known <= own and (not TRAINERS[name].rare or known & (own - others)):
            yield name


def _unfolded(given: dict[str, Given]) -> Iterator[tuple[str, Given]]:
    """Arguments with those of `model_init_kwargs` and of the one entry of `datasets` beside them."""
    for name, found in given.items():
        yield name, found
        inner = found.value
        if name == "model_init_kwargs" and isinstance(inner, dict):
            yield from _inner("from_pretrained", found, inner)
        elif name == "datasets" and isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict):
            yield from _inner("load_dataset", found, inner[0])


def _inner(prefix: str, outer: Given, inner: dict[str, Any]) -> Iterator[tuple[str, Given]]:
    for name, value in inner.items():
        yield f"{prefix}.{name}", Given(f"{outer.label}.{name}", value, outer.where)


def _surroundings(said: Said, out: Outcome) -> Length | None:
    """Model, adapter, quantisation, data; what is known of the data's length."""
    said["model_init_kwargs"], said["trust_remote_code"]
    script = said["model_name_or_path"] is not None
    path = "model_name_or_path" if script else "from_pretrained.path"
    attention = "attn_implementation" if "attn_implementation" in said else "from_pretrained.attn_implementation"
    trust = "trust_remote_code" if said["trust_remote_code"] else "from_pretrained.trust_remote_code"
    loading.model(said, out, path, attention, trust)
    if any(name.startswith("LoraConfig.") for name in said.source.given):
        loading.lora(said, out)
    else:
        _script_lora(said, out)
    loading.quantization(said, out)
    _script_quantization(said, out)
    return _data(said, out)


def _script_lora(said: Said, out: Outcome) -> None:
    """Adapter arguments of `ModelConfig`."""
    names = {
        "lora_r": "peft.rank", "lora_alpha": "peft.alpha", "lora_dropout": "peft.dropout",
        "lora_target_modules": "peft.targets", "lora_modules_to_save": "peft.modules_to_save", "use_rslora": "peft.rslora",
        "use_dora": "peft.dora",
    }  # fmt: skip
    uses, parameters = said["use_peft"], said["lora_target_parameters"]
    if "lora_task_type" in said:
        out.remark("same", said.text("lora_task_type"), "the trainer decides it")
    if uses:
        out.carry("peft.method", "lora", said.text("use_peft"))
        if parameters:
            out.carry("peft.config", {"target_parameters": parameters}, said.text("lora_target_parameters"))
    elif parameters:
        out.remark("there", said.text("lora_target_parameters"), "not read, because `use_peft` is false")
    for name, key in names.items():
        value = said[name]
        if uses:
            one = isinstance(value, list) and len(value) == 1 and name == "lora_target_modules"
            out.carry(key, value[0] if one else value, said.text(name), name in said)
        elif name in said:
            out.remark("there", said.text(name), "not read, because `use_peft` is false")


def _script_quantization(said: Said, out: Outcome) -> None:
    """Quantisation arguments of `ModelConfig`."""
    four, eight = said["load_in_4bit"], said["load_in_8bit"]
    if four and eight:
        text = f"{said.text('load_in_4bit')} and {said.text('load_in_8bit')}"
        out.remark("there", text, "refused: weights have four bits or eight")
    if four:
        loading.carry_four_bits(
            said,
            out,
            said.text("load_in_4bit"),
            "bnb_4bit_quant_type",
            "use_bnb_nested_quant",
            "bnb_4bit_quant_storage",
        )
    elif eight:
        out.carry("quantization.mode", "int8", said.text("load_in_8bit"))
    for name in ("bnb_4bit_quant_type", "use_bnb_nested_quant", "bnb_4bit_quant_storage"):
        if name in said and not four:
            said[name]
            out.remark("there", said.text(name), "not read, because `load_in_4bit` is false")


def _data(said: Said, out: Outcome) -> Length | None:
    several, evaluates = said["datasets"], said["eval_strategy"] != "no"
    beside = Path(said.source.path).parent
    if several:
        if said["dataset_name"] is not None:
            out.remark("there", said.text("dataset_name"), "not read, because `datasets` is there")
        if len(several) > 1:
            text = "one data set is read: put the rows into one file or folder, then `data=jsonl data.path=FILE`"
            out.remark("open", said.text("datasets"), text)
            return None
        _entries(said, out, several)
        _not_named(said, out, "`datasets` is there")
        return loading.data(said, out, beside, evaluates)
    if said["dataset_name"] is None:
        _not_named(said, out, "no `dataset_name` is given")
        return loading.data(said, out, beside, evaluates)
    out.carry("data.source", "hub", said.text("dataset_name"))
    out.carry("data.path", said["dataset_name"], said.text("dataset_name"))
    for name, key in (("dataset_config", "data.config"), ("dataset_train_split", "data.split")):
        if said[name] is not None:
            out.carry(key, said[name], said.text(name), name in said)
    if evaluates:
        out.carry("data.eval_split", said["dataset_test_split"], said.text("dataset_test_split"))
    elif "dataset_test_split" in said:
        out.remark("there", said.text("dataset_test_split"), "not read, because `eval_strategy=no`")
    return None


def _not_named(said: Said, out: Outcome, why: str) -> None:
    for name in ("dataset_config", "dataset_train_split", "dataset_test_split"):
        if name in said:
            out.remark("there", said.text(name), f"not read, because {why}")


def _entries(said: Said, out: Outcome, several: list[Any]) -> None:
    if not isinstance(several[0], dict):
        out.problems.append(
            Problem(f"its entries are mappings with a `path` ({said.where('datasets')})", key="datasets")
        )


def _length(asked: Length, counted: Length | None, said: Said) -> Length:
    """What the user said of the rows, else what was counted, except where rows are joined by packing."""
    packs = "packing" in said.args and said["packing"]
    if asked.rows is not None or counted is None or packs:
        return asked
    return Length(counted.rows, asked.processes, counted.rows_from)


def _memory(said: Said, out: Outcome, trainer: Trainer) -> None:
    hf_memory.checkpointing(said, out, selective=trainer.name in ("sft", "gkd"))
    names = ("dtype", "torch_dtype", "from_pretrained.dtype", "from_pretrained.torch_dtype")
    name = next((n for n in names if n in said), "dtype")
    dtype = said[name]
    hf_memory.precision(said, out, dtype, said.text(name))
    hf_memory.spread(said, out)


def _rest(said: Said, out: Outcome, trainer: Trainer) -> None:
    """What could not be read, what is no argument, and what was of a wrong kind: each is listed."""
    for unread in said.source.unread:
        out.remark("unread", f"`{unread.label}`", f"`{unread.text}`", unread.where)
    for kind, key, text in said.source.remarks:
        out.remark(kind, key, text)
    for given in said.unknown():
        owner, _, name = given.label.rpartition(".")
        beside = [name.removeprefix(f"{owner}.") for name in said.args if owner and name.startswith(f"{owner}.")]
        names = beside if owner else [name for name in said.args if "." not in name]
        text = f"no argument of `{owner or trainer.config}` ({given.where})"
        out.problems.append(Problem(text, key=given.label, nearest=nearest(name, names)))
    out.problems += said.problems
    out.written = said.kept()
    for name in said.forgotten():
        out.remark("learning", said.text(name), FORGOTTEN)
