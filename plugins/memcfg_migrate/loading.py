"""Model, adapter, quantisation and data: what stands beside a trainer's own arguments in scripts and YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from memcfg.report.words import listed
from memcfg_migrate.becomes import inert, learning, other, to
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.schedule import Length, rows_of

ATTENTION: Final = {
    "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex", "flash_attention_2": "flash2",
    "flash_attention_3": "flash3", "kernels-community/flash-attn2": "flash2", "kernels-community/flash-attn3": "flash3",
    "kernels-community/vllm-flash-attn3": "flash3",
}  # fmt: skip
FORMATS: Final = {"json": "jsonl", "parquet": "parquet"}
SUFFIXES: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
REVISION: Final = (
    "the newest version of a model is taken: download the one you want and name its folder in `model.path`"
)

FROM_PRETRAINED: Final = (
    Arg("from_pretrained.path", "str?", None),
    Arg("from_pretrained.dtype", "str?", None),
    Arg("from_pretrained.torch_dtype", "str?", None),
    Arg("from_pretrained.attn_implementation", "str?", None),
    Arg("from_pretrained.trust_remote_code", "bool", False),
    Arg("from_pretrained.revision", "str?", None, learning(REVISION, "main")),
    Arg("from_pretrained.load_in_4bit", "bool", False),
    Arg("from_pretrained.load_in_8bit", "bool", False),
    Arg("from_pretrained.use_kernels", "bool", False, other("`liger=on` brings fused kernels")),
    Arg("from_pretrained.quantization_config", "any", None, learning("only `BitsAndBytesConfig` is known: see `quantization`")),
    *inert(
        "memcfg places the model and never caches keys while training", **{
            "from_pretrained.device_map": None, "from_pretrained.use_cache": None, "from_pretrained.low_cpu_mem_usage": None,
            "from_pretrained.token": None,
        },
    ),
)  # fmt: skip

LORA: Final = (
    Arg("LoraConfig.r", "int", 8, None),
    Arg("LoraConfig.lora_alpha", "int", 8, None),
    Arg("LoraConfig.lora_dropout", "float", 0.0, None),
    Arg("LoraConfig.target_modules", "any", None),
    Arg("LoraConfig.modules_to_save", "list?", None),
    Arg("LoraConfig.use_rslora", "bool", False),
    Arg("LoraConfig.use_dora", "bool", False),
    Arg("LoraConfig.task_type", "any", None),
    *(
        Arg(f"LoraConfig.{name}", "any", default)
        for name, default in {
            "bias": "none", "fan_in_fan_out": False, "init_lora_weights": True, "layers_to_transform": None,
            "layers_pattern": None, "rank_pattern": {}, "alpha_pattern": {}, "exclude_modules": None,
            "target_parameters": None, "loftq_config": {}, "layer_replication": None, "lora_bias": False,
            "trainable_token_indices": None, "inference_mode": False, "ensure_weight_tying": False, "eva_config": None,
            "corda_config": None, "lora_ga_config": None, "kasa_config": None, "velora_config": None,
            "monteclora_config": None, "arrow_config": None, "megatron_config": None, "megatron_core": "megatron.core",
            "use_qalora": False, "qalora_group_size": 16, "use_bdlora": None, "alora_invocation_tokens": None,
            "revision": None,
        }.items()
    ),
)  # fmt: skip

BITS_AND_BYTES: Final = (
    Arg("BitsAndBytesConfig.load_in_4bit", "bool", False),
    Arg("BitsAndBytesConfig.load_in_8bit", "bool", False),
    Arg("BitsAndBytesConfig.bnb_4bit_quant_type", "str", "fp4"),
    Arg("BitsAndBytesConfig.bnb_4bit_use_double_quant", "bool", False),
    Arg("BitsAndBytesConfig.bnb_4bit_compute_dtype", "str", "float32"),
    Arg("BitsAndBytesConfig.bnb_4bit_quant_storage", "str", "uint8"),
    *(
        Arg(f"BitsAndBytesConfig.{name}", "any", default, other("eight-bit weights have no settings here"))
        for name, default in {
            "llm_int8_threshold": 6.0, "llm_int8_skip_modules": None, "llm_int8_enable_fp32_cpu_offload": False,
            "llm_int8_has_fp16_weight": False,
        }.items()
    ),
)  # fmt: skip

LOAD_DATASET: Final = (
    Arg("load_dataset.path", "str?", None),
    Arg("load_dataset.name", "str?", None),
    Arg("load_dataset.split", "str?", None),
    Arg("load_dataset.eval_split", "str?", None),
    Arg("load_dataset.data_files", "any", None),
    Arg("load_dataset.data_dir", "str?", None, learning("name files or a folder with `data.path`")),
    Arg("load_dataset.revision", "str?", None),
    Arg("load_dataset.streaming", "bool", False, to("data.streaming")),
    Arg("load_dataset.columns", "list?", None, to("data.columns")),
    Arg("load_dataset.fraction", "float?", None, learning("one data set is read, whole or to `data.limit` rows")),
    *inert(
        "rows are read in the process that prepares them", **{
            "load_dataset.num_proc": None, "load_dataset.cache_dir": None, "load_dataset.token": None,
        },
    ),
    Arg("load_dataset.trust_remote_code", "bool", False, learning("code that comes with data is never run")),
)  # fmt: skip


def weights(said: Said, out: Outcome, path: str, trust: str, what: str = "model") -> None:
    """Where the weights come from. The arguments are named by what calls them in this form of config; `what` is missing
    where `path` says nothing."""
    if said[path] is not None:
        out.carry("model.source", "hub", said.text(path))
        out.carry("model.path", said[path], said.text(path))
    else:
        out.remark("open", "the model", f"no {what} is named: append `model=hub model.path=FOLDER_OR_NAME`")
    if said[trust]:
        out.carry("model.trust_remote_code", True, said.text(trust))


def model(said: Said, out: Outcome, path: str, attention: str, trust: str) -> None:
    """Where the weights come from, and the attention."""
    weights(said, out, path, trust)
    name = said[attention]
    if name is None:
        return
    if name in ATTENTION:
        out.carry("attention.implementation", ATTENTION[name], said.text(attention))
        if "/" in name:
            text = "the installed package is used; `attention.implementation=kernels` takes the hub's, if you trust its code"
            out.remark("differs", said.text(attention), text)
    elif "/" in name:
        out.carry("attention.implementation", "kernels", said.text(attention))
        out.carry("attention.repository", name, said.text(attention))
        out.remark(
            "open",
            said.text(attention),
            "code of the hub runs only with `attention.trust_remote_code=true`: append it if you trust it",
        )
    else:
        menu = listed(dict.fromkeys(ATTENTION.values()))
        out.remark("other", said.text(attention), f"`attention.implementation` is {menu}; memcfg chooses one that fits")


def lora(said: Said, out: Outcome) -> None:
    """A `LoraConfig`, with peft's defaults."""
    names = {
        "r": "peft.rank", "lora_alpha": "peft.alpha", "lora_dropout": "peft.dropout", "target_modules": "peft.targets",
        "modules_to_save": "peft.modules_to_save", "use_rslora": "peft.rslora", "use_dora": "peft.dora",
    }  # fmt: skip
    out.carry("peft.method", "lora", "`LoraConfig`")
    for name, key in names.items():
        name = f"LoraConfig.{name}"
        value = said[name]
        out.carry(key, sorted(value) if isinstance(value, (set, frozenset)) else value, said.text(name), name in said)
    for name in ("LoraConfig.task_type", "LoraConfig.inference_mode"):
        if name in said:
            out.remark("same", said.text(name), "the trainer decides it")
    known = {f"LoraConfig.{name}" for name in (*names, "task_type", "inference_mode")}
    rest = [a.name for a in LORA if a.name not in known and a.name in said]
    if rest:
        further = {name.removeprefix("LoraConfig."): said[name] for name in rest}
        out.carry("peft.config", further, ", ".join(map(said.text, rest)))


def quantization(said: Said, out: Outcome) -> None:
    """A `BitsAndBytesConfig`, or the switches that `from_pretrained` once took."""
    prefix = "BitsAndBytesConfig."
    four = next((n for n in (f"{prefix}load_in_4bit", "from_pretrained.load_in_4bit") if said[n]), None)
    eight = next((n for n in (f"{prefix}load_in_8bit", "from_pretrained.load_in_8bit") if said[n]), None)
    if four and eight:
        out.remark("there", f"{said.text(four)} and {said.text(eight)}", "refused: weights have four bits or eight")
    if four:
        carry_four_bits(
            said, out, said.text(four), f"{prefix}bnb_4bit_quant_type", f"{prefix}bnb_4bit_use_double_quant",
            f"{prefix}bnb_4bit_quant_storage",
        )  # fmt: skip
        compute = f"{prefix}bnb_4bit_compute_dtype"
        out.carry("quantization.compute_dtype", plain(said[compute]), said.text(compute), compute in said)
    elif eight:
        out.carry("quantization.mode", "int8", said.text(eight))
    for arg in BITS_AND_BYTES if not four else ():
        if arg.name.startswith(f"{prefix}bnb_4bit") and arg.name in said:
            out.remark("there", said.text(arg.name), "not read, because the weights have no four bits")


def carry_four_bits(said: Said, out: Outcome, text: str, kind: str, double: str, storage: str) -> None:
    out.carry("quantization.mode", said[kind], f"{text}, {said.text(kind)}")
    out.carry("quantization.double", bool(said[double]), said.text(double), double in said)
    if said[storage] is not None and plain(said[storage]) != "uint8":
        out.carry("quantization.storage", plain(said[storage]), said.text(storage))


def plain(dtype: Any) -> str:
    """A dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def data(said: Said, out: Outcome, beside: Path, evaluates: bool) -> Length | None:
    """The one data set of a `load_dataset` call or of a YAML file; its rows, where they can be counted at once."""
    name = said["load_dataset.path"]
    if name is None:
        out.remark("open", "the data", "no data set is named: append `data=jsonl data.path=FILE`")
        for arg in LOAD_DATASET:
            if arg.name in said and arg.becomes is None:
                out.remark("there", said.text(arg.name), "not read, because no data set is named")
        return None
    files = _data_files(said, out, evaluates)
    if isinstance(files, list):
        text = "one file, folder or pattern is read: put the files into a folder, or write a pattern"
        out.remark("open", said.text("load_dataset.data_files"), text)
    elif name in FORMATS and files is not None:
        return _files(FORMATS[name], files, "load_dataset.data_files", said, out, beside)
    elif files is not None or name in ("csv", "text", "arrow"):
        text = "JSON Lines, Parquet and data sets of the hub are read: convert it, then `data=jsonl data.path=FILE`"
        out.remark("open", said.text("load_dataset.path"), text)
    elif Path(name).suffix in SUFFIXES:
        return _files(SUFFIXES[Path(name).suffix], name, "load_dataset.path", said, out, beside)
    else:
        return _hub(name, said, out, evaluates)
    return None


def _data_files(said: Said, out: Outcome, evaluates: bool) -> Any:
    """The training files; those to evaluate on are carried."""
    files = said["load_dataset.data_files"]
    if isinstance(files, dict):
        files, held_out = files.get("train"), files.get("test", files.get("validation"))
        if isinstance(held_out, str) and evaluates:
            out.carry("data.eval_path", held_out, said.text("load_dataset.data_files"))
    return files[0] if isinstance(files, list) and len(files) == 1 else files


def _files(source: str, path: str, name: str, said: Said, out: Outcome, beside: Path) -> Length | None:
    """Local files, which have no splits and versions."""
    out.carry("data.source", source, said.text(name))
    out.carry("data.path", path, said.text(name))
    for unused in ("load_dataset.name", "load_dataset.revision", "load_dataset.eval_split"):
        if said[unused] is not None:
            out.remark("there", said.text(unused), "files have no parts, versions and splits beside `train`")
    limited = _split(said, out, named=False)
    rows = rows_of(path, beside)
    return limited or (None if rows is None else Length(rows, rows_from=f"counted in `{path}`"))


def _hub(name: str, said: Said, out: Outcome, evaluates: bool) -> Length | None:
    out.carry("data.source", "hub", said.text("load_dataset.path"))
    out.carry("data.path", name, said.text("load_dataset.path"))
    for argument, key in (("name", "data.config"), ("revision", "data.revision"), ("eval_split", "data.eval_split")):
        value = said[f"load_dataset.{argument}"]
        if value is not None and (evaluates or argument != "eval_split"):
            out.carry(key, value, said.text(f"load_dataset.{argument}"))
        elif value is not None:
            out.remark("there", said.text(f"load_dataset.{argument}"), "not read, because `eval_strategy=no`")
    return _split(said, out, named=True)


def _split(said: Said, out: Outcome, named: bool) -> Length | None:
    """`train[:1000]` is a split and a limit; other slices have no equivalent."""
    split = said["load_dataset.split"]
    if split is None or split == "train":
        return None
    name, _, piece = split.partition("[")
    first = piece.removesuffix("]").removeprefix(":")
    whole = not piece or (piece.startswith(":") and first.isdigit())
    if not whole:
        out.remark("learning", said.text("load_dataset.split"), "only the first N rows can be taken: `data.limit=N`")
    if named and name != "train":
        out.carry("data.split", name, said.text("load_dataset.split"))
    if not (piece and whole):
        return None
    out.carry("data.limit", int(first), said.text("load_dataset.split"))
    return Length(int(first), rows_from="`data.limit`")
