"""`SFTConfig`, and `GKDConfig`, which extends it."""

from __future__ import annotations

from memcfg_migrate.becomes import carry, inert, learning, there, to
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.trl.shared import common, router, rows, tokens

STRATEGIES = {"bfd": "bfd", "bfd_split": "bfd_split", "bfd-requeue": "bfd_split", "wrapped": "wrapped"}
LOSSES = ("nll", "chunked_nll", "dft")


def arguments() -> list[Arg]:
    return [
        *common(), *rows(), *tokens(), router(),
        Arg("dataset_text_field", "str", "text", learning("texts are in the column `text`: rename yours")),
        Arg("dataset_kwargs", "dict?", None, learning("rows with `input_ids` are taken as they are; others are always prepared")),
        Arg("max_length", "int?", 1024, to("truncation.max_length")),
        Arg("max_seq_length", "int?", None, _old_length),
        Arg("truncation_mode", "str", "keep_start"),
        *inert("rows are shuffled in every epoch", shuffle_dataset=False),
        Arg("packing", "bool", False), Arg("packing_strategy", "str", "bfd"), Arg("eval_packing", "bool?", None),
        Arg("padding_free", "bool", False),
        Arg("completion_only_loss", "bool?", None, to("sft.completion_only")),
        Arg("assistant_only_loss", "bool", False, to("sft.assistant_only")),
        Arg("loss_type", "str?", None),
        Arg("num_of_sequences", "any", None, learning("removed from TRL")),
        Arg("dataset_batch_size", "any", None, learning("removed from TRL; packing sees all rows at once here")),
    ]  # fmt: skip


def _old_length(said: Said, name: str, out: Outcome) -> None:
    out.remark("there", said.text(name), "removed from TRL: `max_length` is its name now")
    out.carry("truncation.max_length", said[name], said.text(name))


def own(said: Said, out: Outcome) -> None:
    _packing(said, out)
    _loss(said, out)
    smoothing = said["label_smoothing_factor"]
    carry(said, "label_smoothing_factor", out, "loss.label_smoothing", smoothing)
    if smoothing:
        text = "1.10 fails at the first step (`num_valid_tokens`), 1.16 runs the model a second time for it"
        out.remark("there", said.text("label_smoothing_factor"), text)


def _packing(said: Said, out: Outcome) -> None:
    packs, strategy = said["packing"], said["packing_strategy"]
    if strategy not in STRATEGIES:
        out.remark("there", said.text("packing_strategy"), "refused when rows are packed, after the model is loaded")
    elif packs:
        text = f"{said.text('packing')}, {said.text('packing_strategy')}"
        out.carry("packing.strategy", STRATEGIES[strategy], text)
        if said["max_length"] is None:
            out.remark("there", said.text("packing"), "refused without `max_length`, after the model is loaded")
    elif "packing_strategy" in said:
        out.remark("there", said.text("packing_strategy"), "not read, because `packing` is false")
    _packed_evaluation(said, out, packs)
    _padding_free(said, out, packs, strategy)
    if not (packs and strategy in ("bfd_split", "bfd-requeue", "wrapped")) and said["max_length"] is not None:
        carry(said, "truncation_mode", out, "truncation.mode", said["truncation_mode"])
    elif "truncation_mode" in said:
        why = "no `max_length` is set" if said["max_length"] is None else "packing cuts nothing off"
        out.remark("there", said.text("truncation_mode"), f"not read, because {why}")


def _packed_evaluation(said: Said, out: Outcome, packs: bool) -> None:
    evaluation = said["eval_packing"]
    if packs and evaluation is not None:
        out.carry("packing.eval", evaluation, said.text("eval_packing"))
    elif evaluation:
        text = "evaluation rows are packed and then laid out as one document: documents see each other, and nothing says so"
        out.remark("there", said.text("eval_packing"), text)
        out.remark("learning", said.text("eval_packing"), "evaluation rows are packed only where training rows are")


def _padding_free(said: Said, out: Outcome, packs: bool, strategy: str) -> None:
    if packs and strategy == "wrapped" and not said["padding_free"]:
        out.remark(
            "there", said.text("packing_strategy"), "documents that share a row see each other, without a warning"
        )
    if not said["padding_free"]:
        return
    out.carry("padding_free.enabled", True, said.text("padding_free"))
    if not packs and said["max_length"] is not None:
        text = f"refused without packing while {said.text('max_length')}; here both hold"
        out.remark("there", said.text("padding_free"), text)


def _loss(said: Said, out: Outcome) -> None:
    loss = said["loss_type"]
    if loss is None:
        return
    if loss not in LOSSES:
        out.remark("there", said.text("loss_type"), "refused when the trainer is made")
        out.remark(
            "learning", said.text("loss_type"), "`loss.type` is `chunked_nll`, `nll`, `dft` or what a plugin adds"
        )
    elif loss == "nll" and not said["use_liger_kernel"]:
        text = "TRL's `nll` never holds whole logits since its head is fused: that is `chunked_nll` here"
        out.remark("differs", said.text("loss_type"), text)
        out.carry("loss.type", "chunked_nll", said.text("loss_type"), given=False)
    else:
        out.carry("loss.type", loss, said.text("loss_type"))
        if loss == "chunked_nll" and said["use_liger_kernel"]:
            out.remark(
                "there", f"{said.text('loss_type')} with Liger", "1.10 refuses the pair, 1.16 warns and takes `nll`"
            )


def gkd_arguments() -> list[Arg]:
    mine = ("completion_only_loss", "assistant_only_loss")
    return [
        *(arg for arg in arguments() if arg.name not in mine),
        *(Arg(name, "bool?", {"assistant_only_loss": False}.get(name), there("not read by `GKDTrainer`")) for name in mine),
        Arg("temperature", "float", 0.9), Arg("lmbda", "float", 0.5, to("gkd.lmbda")),
        Arg("beta", "float", 0.5, to("gkd.beta")), Arg("max_new_tokens", "int", 128),
        Arg("teacher_model_name_or_path", "str?", None, to("gkd.teacher")),
        Arg("teacher_model_init_kwargs", "dict?", None, learning("the teacher is loaded as the student is")),
        Arg("disable_dropout", "bool", True, to("gkd.disable_dropout")),
        Arg("seq_kd", "bool", False, to("gkd.seq_kd")),
    ]  # fmt: skip


def gkd_own(said: Said, out: Outcome) -> None:
    """GKD's collator is its own: it neither packs nor leaves out padding, and its loss is the divergence."""
    for name in ("packing", "padding_free"):
        if said[name]:
            out.remark("there", said.text(name), "refused, or not read: its collator is its own")
    for name in ("packing_strategy", "eval_packing", "truncation_mode", "loss_type", "label_smoothing_factor"):
        if name in said:
            said[name]
            out.remark("there", said.text(name), "not read by `GKDTrainer`")
    samples = said["lmbda"] > 0 or said["seq_kd"]
    for name, key in (("temperature", "generation.temperature"), ("max_new_tokens", "generation.max_new_tokens")):
        if samples:
            carry(said, name, out, key, said[name])
        elif name in said:
            out.remark("there", said.text(name), "not read: nothing is sampled under `lmbda=0`")
