"""Kahneman-Tversky Optimization: single completions marked desirable or not, against a frozen reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Enum, Forbid, Ignored, Plugin, RemovedKey, Setting, key, only_when
from memcfg.dropout import dropout_rules

here = key("trainer.name") == "kto"

loss = Enum("kto.loss", ("kto", "apo_zero_unpaired"), doc="how a marked completion becomes a loss")
beta = Setting("kto.beta", float, default=0.1, minimum=0.0, doc="how strongly the policy is tied to the reference")
desirable = Setting("kto.desirable_weight", float, default=1.0, minimum=0.0, doc="weight of desirable completions")
undesirable = Setting(
    "kto.undesirable_weight", float, default=1.0, minimum=0.0, doc="weight of undesirable completions"
)
dropout = Bool("kto.disable_dropout", doc="switch dropout off in policy and reference")

needs_pairs = here & (loss == "kto")
PAPER = "https://arxiv.org/abs/2402.01306"
watching = Setting(
    "kto.watch_tokens", bool, default=False, free=True,
    doc="log entropy and mean logits of completions too, for one more product of hidden states and head",
)  # fmt: skip

REMOVED = "filter or pre-truncate the data set instead; `truncation.max_length` bounds prompt and completion together"


def _two_rows(values: Mapping[str, Any]) -> str | None:
    return (
        None if values["run.batch_size"] > 1 else "`run.batch_size=1` leaves no other completion to pair a prompt with"
    )


def _weighed(values: Mapping[str, Any]) -> str | None:
    nothing = values["kto.desirable_weight"] == values["kto.undesirable_weight"] == 0
    return (
        "`kto.desirable_weight` and `kto.undesirable_weight` are both 0: nothing would be learned" if nothing else None
    )


plugin = Plugin(
    name="kto",
    doc="preference optimisation on single completions, marked desirable or not",
    options=[loss, beta, desirable, undesirable, dropout, watching],
    rules=[
        *dropout_rules(dropout, True, because="policy and reference would differ by chance with it"),
        Check(
            [desirable, undesirable], _weighed, when=here, id="kto.weights.any",
            because="the loss is the weighted sum of both kinds of rows",
        ),
        Default(loss, "kto", when=here, id="kto.loss.default", because="it is the loss of the KTO paper", ref=PAPER),
        Default(
            key("run.learning_rate"), 1e-6, when=here, id="kto.run.learning_rate",
            because="a policy that starts from its reference is moved in small steps",
        ),
        Default(
            key("run.learning_rate"), 1e-3, when=here & (key("model.source") == "tiny"), id="kto.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            key("run.batch_size"), 8, when=here & (key("model.source") == "tiny"), id="kto.run.batch_size.tiny",
            because="its KL term is estimated from the rows of one micro-batch",
        ),
        Forbid(
            needs_pairs & (key("reference.mode") == "precompute"), id="kto.reference.precompute",
            because="its KL term pairs the rows of a micro-batch, which are not known before training",
            suggest=["reference.mode=live", "kto.loss=apo_zero_unpaired"],
        ),
        Check(
            ["run.batch_size"], _two_rows, when=needs_pairs, id="kto.batch.two_rows",
            because="its KL term pairs each prompt with another row's completion", ref=PAPER,
        ),
        Forbid(
            needs_pairs & (key("batching.mode") == "tokens"), id="kto.batching.rows",
            because="its KL term pairs rows of one micro-batch, and a token budget may leave a single row in it",
            suggest=["batching.mode=rows", "kto.loss=apo_zero_unpaired"],
        ),
        Forbid(
            needs_pairs & (key("run.on_oom") == "shrink"), id="kto.on_oom.rows",
            because="its KL term is estimated over the rows of one micro-batch, which halves would change",
            suggest=["run.on_oom=stop", "kto.loss=apo_zero_unpaired"],
        ),
        Ignored(
            key("truncation.mode"), when=here, except_values=("keep_start",), id="kto.truncation.mode",
            because="KTO cuts the end of the completion, so that each prompt stays whole",
        ),
        RemovedKey(
            "kto.max_prompt_length", advice=REMOVED, id="kto.max_prompt_length.removed",
            because="a limit on the prompt alone cut prompts in the middle",
        ),
        RemovedKey(
            "kto.max_completion_length", advice=REMOVED, id="kto.max_completion_length.removed",
            because="a limit on the completion alone hid what was lost",
        ),
        *only_when(here, loss, beta, desirable, undesirable, dropout, watching, because="only `trainer=kto` reads it"),
    ],
    provides={"trainer.name": ("kto",)},
    hooks="memcfg_kto.hooks",
    active=here,
)  # fmt: skip
