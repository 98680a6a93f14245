"""Sampling completions while training: what trainers that learn from their own samples share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memcfg import (
    Bool,
    Check,
    Default,
    Enum,
    Fact,
    Forbid,
    Ignored,
    Plugin,
    RenameKey,
    Require,
    Setting,
    key,
    only_when,
)

trainer = key("trainer.name")
groups = trainer.isin("grpo", "rloo")
online = trainer.isin("grpo", "rloo", "online_dpo")
samples = trainer.isin("grpo", "rloo", "online_dpo", "gkd")

backend = Enum("generation.backend", ("transformers",), open=True, doc="what samples the completions")
length = Setting("generation.max_new_tokens", int, default=512, minimum=1, unit="tokens", doc="longest completion")
longest = Setting(
    "generation.max_prompt_tokens", int, default=None, nullable=True, minimum=1, unit="tokens",
    doc="longest prompt to reckon with: memory is predicted for it, and a run with a longer one is refused",
)  # fmt: skip
temperature = Setting("generation.temperature", float, default=1.0, minimum=0.0, doc="temperature of sampling")
top_p = Setting("generation.top_p", float, default=1.0, minimum=0.0, maximum=1.0, doc="mass of tokens sampled from")
top_k = Setting("generation.top_k", int, default=0, minimum=0, unit="tokens", doc="most tokens sampled from; 0 is all")
min_p = Setting(
    "generation.min_p", float, default=None, nullable=True, minimum=0.0, maximum=1.0,
    doc="least probability, relative to the likeliest token; null sets none",
)  # fmt: skip
repetition = Setting("generation.repetition_penalty", float, default=1.0, minimum=0.0, doc="penalty on repeated tokens")
cache = Setting(
    "generation.cache",
    str,
    default=None,
    nullable=True,
    values=("dynamic", "static", "offloaded", "offloaded_static", "quantized"),
    doc="kind of key-value cache, as Transformers names it; null is its own",
)
continuous = Bool("generation.continuous_batching", doc="admit new prompts while others are still being completed")
graphs = Bool("generation.graphs", doc="record a token's work once and replay it, instead of launching each kernel")
cache_share = Setting(
    "generation.cache_share", float, default=0.5, minimum=0.0, maximum=1.0,
    doc="share of free GPU memory that continuous batching takes for its cache",
)  # fmt: skip
recent = Fact(
    "generation.continuous_ready", probe="memcfg_generation.facts:continuous",
    doc="whether the installed Transformers batches continuously as this needs (5.17)",
)  # fmt: skip
rows = Setting(
    "generation.batch_size", int, default=None, nullable=True, minimum=1, unit="completions",
    doc="completions sampled at a time, over all processes; null follows from `generation.steps`",
)  # fmt: skip
steps = Setting(
    "generation.steps", int, default=None, nullable=True, minimum=1, unit="micro-batches",
    doc="micro-batches sampled at a time; null is `run.accumulation`",
)  # fmt: skip

SIZES = ("run.batch_size", "run.accumulation", "world.size", "generation.batch_size", "generation.steps")


OTHERWISE = ["generation.continuous_batching=false"]
LAUNCHED = ["generation.graphs=false"]


def _static(values: Mapping[str, Any]) -> str | None:
    if values["generation.cache"] in (None, "static"):
        return None
    return f"`generation.cache={values['generation.cache']}` moves while it grows: leave it out, or write `generation.cache=static`"


def _known_to_continuous(values: Mapping[str, Any]) -> str | None:
    for name, usual in (("generation.repetition_penalty", 1.0), ("generation.min_p", None)):
        if values[name] != usual:
            return f"`{name}={values[name]}` is not known to continuous batching: add `generation.continuous_batching=false`"
    return None


GKD_TOKENS, SHARPER = 128, 0.9
"""The longest completion of a student, and the temperature of trainers that learn from likely completions."""
SAMPLING = {
    length.key: GKD_TOKENS, temperature.key: SHARPER, **{o.key: o.default for o in (longest, top_p, top_k, min_p, repetition, cache)},
}  # fmt: skip
"""What says how GKD samples, where it does, and its values if nobody says anything."""
SWITCHES = (continuous.key, graphs.key)
"""Keys, taken while the names still mean the options: modules of this package are called so too."""


def _unsampled(values: Mapping[str, Any]) -> str | None:
    if values["gkd.lmbda"] or values["gkd.seq_kd"]:
        return None
    given = [name for name, usual in SAMPLING.items() if values[name] != usual]
    given += [name for name in SWITCHES if values[name]]
    if not given:
        return None
    return f"`gkd.lmbda=0.0` learns from given completions alone, so `{given[0]}` is not read: raise `gkd.lmbda`, or leave it out"


def _greedy(values: Mapping[str, Any]) -> str | None:
    given = [option.key for option in (top_p, top_k, min_p) if values[option.key] != option.default]
    if values[temperature.key] > 0 or not given:
        return None
    return f"`generation.temperature=0.0` takes the likeliest token, so `{given[0]}` is not read"


def _one_way(values: Mapping[str, Any]) -> str | None:
    if values["generation.batch_size"] is None or values["generation.steps"] is None:
        return None
    return "`generation.batch_size` and `generation.steps` say the same thing: give one of the two"


def _whole_batches(values: Mapping[str, Any]) -> str | None:
    wanted, step = values["generation.batch_size"], values["run.batch_size"] * values["world.size"]
    if wanted is None or wanted % step == 0:
        return None
    return f"`generation.batch_size={wanted}` is not a multiple of the {step} rows that all processes take at a time"


def _explores(values: Mapping[str, Any]) -> str | None:
    cut = {
        "generation.temperature": (values["generation.temperature"] <= 0, "raise it, to 1.0 say"),
        "generation.top_p": (values["generation.top_p"] <= 0, "raise it, to 1.0 say"),
        "generation.top_k": (values["generation.top_k"] == 1, "raise it, or write 0 for all tokens"),
        "generation.min_p": ((values["generation.min_p"] or 0.0) >= 1, "lower it, or write null"),
    }
    for name, (alike, fix) in cut.items():
        if alike:
            return f"`{name}={values[name]}` makes all completions of a prompt the same: {fix}"
    return None


def _divides(values: Mapping[str, Any]) -> str | None:
    if values["generation.repetition_penalty"] > 0:
        return None
    return "`generation.repetition_penalty=0.0` is no divisor: 1.0 is no penalty, more than that is one"


def _moves(values: Mapping[str, Any]) -> str | None:
    chosen = values["generation.cache"] or ""
    if not chosen.startswith("offloaded") or values["device.type"] != "cpu":
        return None
    return f"`generation.cache={chosen}` has no device to leave: leave it out"


def _whole_steps(values: Mapping[str, Any]) -> str | None:
    step = values["run.batch_size"] * values["world.size"]
    if (values["generation.batch_size"] or 0) % step:
        return None  # said by another check
    sampled, accumulation = _sampled(values) // step, values["run.accumulation"]
    if not sampled % accumulation or not accumulation % sampled:
        return None
    return f"{sampled} micro-batches sampled at a time do not make whole steps of `run.accumulation={accumulation}`"


def _sampled(values: Mapping[str, Any]) -> int:
    """Completions sampled at a time, over all processes."""
    steps_at_a_time = values["generation.steps"] or values["run.accumulation"]
    return int(values["generation.batch_size"] or values["run.batch_size"] * values["world.size"] * steps_at_a_time)


def _whole_groups(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    def test(values: Mapping[str, Any]) -> str | None:
        sampled, group = _sampled(values), values[name]
        if sampled % group == 0:
            return None
        return f"{sampled} completions at a time do not divide into groups of `{name}={group}`"

    return test


def _whole_eval_groups(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    def test(values: Mapping[str, Any]) -> str | None:
        group, rows = values[f"{name}_eval"] or values[name], values["run.batch_size"] * values["world.size"]
        if values["run.eval_steps"] is None or rows % group == 0:
            return None
        return f"an evaluation batch of {rows} completions does not divide into groups of {group}"

    return test


plugin = Plugin(
    name="generation",
    doc="samples completions while training",
    options=[
        backend, length, longest, temperature, top_p, top_k, min_p, repetition, cache, continuous, graphs, cache_share, rows,
        steps, recent,
    ],
    rules=[
        Default(
            backend, "transformers", when=samples, id="generation.backend.default",
            because="it needs no second copy of the model and no other package",
        ),
        Default(
            continuous, False, when=samples & (backend == "transformers"), id="generation.continuous_batching.default",
            because="prompts are completed batch by batch",
        ),
        Default(
            graphs, False, when=samples & (backend == "transformers"), id="generation.graphs.default",
            because="it reserves memory for the longest completion at once, and not every model can be recorded",
        ),
        Default(
            length, GKD_TOKENS, when=trainer == "gkd", id="generation.max_new_tokens.gkd",
            because="distillation learns from every token, so short completions carry enough",
        ),
        Default(
            length, 64, when=trainer == "online_dpo", id="generation.max_new_tokens.online_dpo",
            because="two completions are sampled and judged for each prompt",
        ),
        Default(
            length, 16, when=online & (key("model.source") == "tiny"), id="generation.max_new_tokens.tiny",
            supersedes=["generation.max_new_tokens.online_dpo"],
            because="a small model that starts from noise learns nothing more from longer ones",
        ),
        Default(
            temperature, SHARPER, when=trainer.isin("gkd", "online_dpo"), id="generation.temperature.sharper",
            because="these trainers learn from likely completions rather than from exploring",
        ),
        Check(
            [temperature, top_p, top_k, min_p], _explores, when=online, id="generation.temperature.explores",
            because="completions are compared with others of the same prompt",
        ),
        Check(
            ["gkd.lmbda", "gkd.seq_kd", *SAMPLING, *SWITCHES],
            _unsampled, when=trainer == "gkd", id="generation.gkd.samples",
            because="only a trainer that samples reads how",
        ),
        Check(
            [temperature, top_p, top_k, min_p], _greedy, when=trainer == "gkd", id="generation.temperature.greedy",
            because="where nothing is drawn, nothing has to be left out of the draw",
        ),
        Check(
            [repetition], _divides, when=samples, id="generation.repetition_penalty.positive",
            because="scores of tokens that were there before are divided by it",
        ),
        Check(
            [cache, "device.type"], _moves, when=samples & (backend == "transformers"), id="generation.cache.device",
            because="an offloaded cache lies in host memory, and moves to the device layer by layer",
        ),
        Check(
            SIZES, _whole_steps, when=groups, id="generation.steps.whole",
            because="what is sampled at once is trained on in whole steps, or makes whole parts of one",
        ),
        Check(
            [rows, steps], _one_way, when=groups, id="generation.batch.one_way",
            because="the number of completions sampled at a time follows from either",
        ),
        Check(
            [rows, "run.batch_size", "world.size"], _whole_batches, when=groups, id="generation.batch.whole",
            because="what is sampled at once is trained on in whole micro-batches",
        ),
        Check(
            ["grpo.num_generations", *SIZES], _whole_groups("grpo.num_generations"), when=trainer == "grpo",
            id="generation.groups.grpo", because="advantages need all completions of a prompt",
        ),
        Check(
            ["rloo.num_generations", *SIZES], _whole_groups("rloo.num_generations"), when=trainer == "rloo",
            id="generation.groups.rloo", because="the baseline needs all completions of a prompt",
        ),
        Check(
            ["grpo.num_generations", "grpo.num_generations_eval", "run.eval_steps", *SIZES],
            _whole_eval_groups("grpo.num_generations"), when=trainer == "grpo", id="generation.eval_groups.grpo",
            because="advantages need all completions of a prompt, in evaluation too",
        ),
        Check(
            ["rloo.num_generations", "rloo.num_generations_eval", "run.eval_steps", *SIZES],
            _whole_eval_groups("rloo.num_generations"), when=trainer == "rloo", id="generation.eval_groups.rloo",
            because="the baseline needs all completions of a prompt, in evaluation too",
        ),
        Require(
            recent.on, when=continuous.on, id="generation.continuous_batching.version", suggest=OTHERWISE,
            because="Transformers' continuous batching has pages and a seed from 5.17 on",
        ),
        Forbid(
            continuous.on & key("distributed.strategy").isin("fsdp2", "zero3"), id="generation.continuous_batching.shards",
            because="each process takes as many steps as its own prompts need, and shards are gathered by all processes together",
            suggest=OTHERWISE,
        ),
        Forbid(
            continuous.on & key("peft.method").isin("prompt", "prefix", "p_tuning"), id="generation.continuous_batching.virtual",
            because="tokens that are trained before each prompt are not put there by it", suggest=OTHERWISE,
        ),
        Check(
            [repetition, min_p], _known_to_continuous, when=continuous.on, id="generation.continuous_batching.shapes",
            because="it takes temperature, `top_p` and `top_k` alone",
        ),
        Ignored(
            cache, when=continuous.on, id="generation.continuous_batching.cache",
            because="continuous batching has a cache of its own",
        ),
        Forbid(
            graphs.on & (key("device.type") == "cpu"), id="generation.graphs.device",
            because="only a CUDA device replays what was recorded", suggest=LAUNCHED,
        ),
        Forbid(
            graphs.on & continuous.on, id="generation.graphs.continuous",
            because="continuous batching gives the model another number of tokens each time", suggest=[*LAUNCHED, *OTHERWISE],
        ),
        Forbid(
            graphs.on & key("distributed.strategy").isin("fsdp2", "zero3"), id="generation.graphs.shards",
            because="what gathers shards for each token is not part of a recording", suggest=LAUNCHED,
        ),
        Forbid(
            graphs.on & key("peft.method").isin("prompt", "prefix", "p_tuning"), id="generation.graphs.virtual",
            because="tokens that are trained before each prompt are not put there by it", suggest=LAUNCHED,
        ),
        Forbid(
            graphs.on & key("quantization.mode").isin("nf4", "fp4", "int8"), id="generation.graphs.quantized",
            because="Transformers gives quantised models no forward of their own for single tokens", suggest=LAUNCHED,
        ),
        Check(
            [cache], _static, when=graphs.on, id="generation.graphs.cache",
            because="what is replayed writes to where it was recorded",
        ),
        RenameKey(
            "generation.paged", continuous, id="generation.paged.renamed", because="Transformers renamed the technique"
        ),
        *only_when(
            samples, backend, length, longest, temperature, top_p, top_k, min_p, repetition,
            because="this trainer samples no completions",
        ),
        *only_when(
            samples & (backend == "transformers"), cache, continuous, graphs,
            because="only the Transformers backend reads it",
        ),
        *only_when(continuous.on, cache_share, because="only continuous batching reads it"),
        *only_when(groups, rows, steps, because="only trainers that sample groups of completions read it"),
    ],
    provides={"generation.backend": ("transformers",)},
    groups={"generation": "what samples the completions"},
    hooks="memcfg_generation.hooks",
    active=samples,
)  # fmt: skip
