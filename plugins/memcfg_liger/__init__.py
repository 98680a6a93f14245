"""Liger Kernel: fused Triton kernels for the model's layers and for losses that never build the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Fact, Forbid, Ignored, Plugin, Require, Setting, key, only_when
from memcfg.heads import UNKNOWN

enabled = Bool("liger.enabled", doc="use Liger's kernels")
layers = Setting("liger.layers", bool, default=True, doc="patch norms, rotary embeddings and feed-forward layers")
installed = Fact("liger.installed", probe="memcfg_liger.facts:installed", doc="whether liger-kernel is installed")

trainer, kernel = key("trainer.name"), key("loss.kernel")
sft, dpo, kto, grpo = trainer == "sft", trainer == "dpo", trainer == "kto", trainer == "grpo"
fused = kernel == "liger"
PAPER = "https://arxiv.org/abs/2410.10989"
OTHER = ["loss.kernel=torch"]


def _only(name: str, harmless: Any) -> Any:
    def test(values: Mapping[str, Any]) -> str | None:
        if values[name] == harmless:
            return None
        return f"Liger's fused loss would not read `{name}={values[name]}`: add `loss.kernel=torch`"

    return test


plugin = Plugin(
    name="liger",
    doc="Liger's fused kernels",
    options=[enabled, layers, installed],
    rules=[
        Default(
            enabled, False, True, id="liger.enabled.default",
            because="memcfg's own kernels need no other package",
        ),
        Default(
            key("loss.type"), "nll", when=sft & enabled.on, id="liger.loss.nll",
            because="Liger fuses the head with the plain loss itself", ref=PAPER,
        ),
        Default(
            kernel, "liger", "triton", "torch", when=enabled.on, id="liger.kernel.default",
            because="Liger is on, and its fused loss never builds the logits", ref=PAPER,
            supersedes=["loss.kernel.plain", "loss.kernel.gpu"],
        ),
        Forbid(
            sft & enabled.on & (key("loss.type") == "chunked_nll"), id="liger.loss.chunked_nll",
            because="both replace the output head and its loss",
            suggest=["loss.type=nll", "liger.enabled=false"],
        ),
        Forbid(
            enabled.on & (key("device.type") == "cpu"), id="liger.device.cuda",
            because="its Triton kernels need a GPU", suggest=["liger.enabled=false"],
        ),
        Require(
            installed.on, when=enabled.on, id="liger.package.installed",
            because="the liger-kernel package is not installed", suggest=["liger.enabled=false"],
        ),
        Require(
            trainer.isin("sft", "dpo", "grpo", "kto", "gkd"), when=enabled.on, id="liger.trainer.supported",
            because="Liger has fused losses for SFT, DPO, GRPO, KTO and GKD only", suggest=["liger.enabled=false"],
        ),
        Require(
            enabled.on, when=fused, id="liger.kernel.enabled", because="the fused loss is one of Liger's kernels",
            suggest=OTHER,
        ),
        Require(
            key("loss.type").isin("nll", "dft"), when=fused & sft, id="liger.kernel.sft",
            because="Liger fuses the plain and the dynamic fine-tuning loss only", suggest=OTHER,
        ),
        Forbid(
            fused & key("model.type").isin(*UNKNOWN), id="liger.kernel.unknown_head",
            because="what this architecture's output head does to its logits is not known", suggest=["loss.kernel=full"],
        ),
        Forbid(
            fused & key("peft.head").on, id="liger.kernel.head",
            because="Liger's fused loss reads the head's own weight, without the adapter", suggest=OTHER,
        ),
        Forbid(
            fused & (dpo | kto | grpo) & key("peft.method").isin("prompt", "prefix", "p_tuning"), id="liger.kernel.prompt",
            because="Liger's fused losses would count the virtual tokens", suggest=OTHER,
        ),
        Forbid(
            fused & (dpo | kto) & (key("reference.mode") == "precompute"), id="liger.kernel.precompute",
            because="Liger's fused losses compute the reference's log-probabilities themselves", suggest=OTHER,
        ),
        Forbid(
            fused & (dpo | kto | grpo) & key("moe.aux").on, id="liger.kernel.moe",
            because="Liger's fused losses leave the routers' balancing loss out", suggest=OTHER,
        ),
        Forbid(
            fused & key("dpo.loss").isin("ipo", "aot", "aot_unpaired", "sft", "sigmoid_norm", "mixture"),
            id="liger.kernel.dpo_loss", because="Liger has no fused form of this DPO loss", suggest=OTHER,
        ),
        Forbid(
            fused & dpo & ~key("dpo.f_divergence").isin("reverse_kl"), id="liger.kernel.f_divergence",
            because="Liger's DPO loss knows the reverse KL divergence only", suggest=OTHER,
        ),
        Forbid(
            fused & key("dpo.weighting").on, id="liger.kernel.weighting",
            because="Liger's DPO loss has no weight for each pair", suggest=OTHER,
        ),
        Check(["dpo.ld_alpha"], _only("dpo.ld_alpha", None), when=fused & dpo, id="liger.kernel.ld_alpha",
              because="Liger's DPO loss sums over whole completions"),
        Forbid(
            fused & (key("kto.loss") == "apo_zero_unpaired"), id="liger.kernel.kto_loss",
            because="Liger has a fused form of the plain KTO loss only", suggest=OTHER,
        ),
        Check(["kto.desirable_weight"], _only("kto.desirable_weight", 1.0), when=fused & kto,
              id="liger.kernel.desirable", because="Liger's KTO loss has no weights"),
        Check(["kto.undesirable_weight"], _only("kto.undesirable_weight", 1.0), when=fused & kto,
              id="liger.kernel.undesirable", because="Liger's KTO loss has no weights"),
        Forbid(
            fused & key("grpo.entropy_adaptive").on, id="liger.kernel.entropy_adaptive",
            because="Liger's GRPO loss computes no entropy", suggest=OTHER,
        ),
        Forbid(
            fused & key("grpo.head_fp32").on, id="liger.kernel.head_fp32",
            because="Liger's GRPO loss computes the head in the model's dtype", suggest=OTHER,
        ),
        Check(["grpo.entropy_coef"], _only("grpo.entropy_coef", 0.0), when=fused & grpo,
              id="liger.kernel.entropy", because="Liger's GRPO loss computes no entropy"),
        Check(["grpo.top_entropy_quantile"], _only("grpo.top_entropy_quantile", 1.0), when=fused & grpo,
              id="liger.kernel.quantile", because="Liger's GRPO loss computes no entropy"),
        Check(["grpo.off_policy_threshold"], _only("grpo.off_policy_threshold", None), when=fused & grpo,
              id="liger.kernel.off_policy", because="Liger's GRPO loss leaves no completion out"),
        Ignored(
            key("loss.chunk_mib"), when=fused, id="liger.kernel.chunk",
            because="Liger chooses the size of its own chunks",
        ),
        *only_when(enabled.on, layers, because="Liger is off"),
    ],
    provides={"loss.kernel": ("liger",)},
    groups={"liger": "Liger's fused kernels"},
    hooks="memcfg_liger.hooks",
    active=enabled.on,
)  # fmt: skip
