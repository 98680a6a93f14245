"""Two more heads that never build the logits: cut-cross-entropy, and torch's own `linear_cross_entropy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Fact, Forbid, Ignored, Plugin, Require, key
from memcfg.heads import UNKNOWN

cut = Fact("cce.installed", probe="memcfg_cce.facts:cut", doc="whether cut-cross-entropy is installed")
linear = Fact("cce.torch_linear", probe="memcfg_cce.facts:linear", doc="whether torch has linear_cross_entropy (2.13)")

kernel = key("loss.kernel")
cce, torch_linear = kernel == "cce", kernel == "torch_linear"
PAPER = "https://arxiv.org/abs/2411.09009"
OTHER = ["loss.kernel=triton", "loss.kernel=torch"]

NO_ENTROPY = "the packages give log-probabilities and no entropy"


def _without_entropy(values: Mapping[str, Any]) -> str | None:
    for name, usual in (("grpo.entropy_coef", 0.0), ("grpo.top_entropy_quantile", 1.0)):
        if values[name] != usual:
            return f"`{name}={values[name]}` needs entropies: add `loss.kernel=torch`"
    return None


plugin = Plugin(
    name="cce",
    doc="heads of other packages: cut-cross-entropy, torch's linear_cross_entropy",
    options=[cut, linear],
    rules=[
        Require(
            cut.on, when=cce, id="cce.package.installed", suggest=OTHER, ref=PAPER,
            because="the cut-cross-entropy package is not installed",
        ),
        Forbid(
            cce & (key("device.type") == "cpu"), id="cce.device.cuda", suggest=["loss.kernel=torch"],
            because="its Triton kernels need a GPU",
        ),
        Require(
            linear.on, when=torch_linear, id="cce.torch.version", suggest=OTHER,
            because="torch has `linear_cross_entropy` from 2.13 on",
        ),
        Forbid(
            (cce | torch_linear) & (key("loss.type") == "dft"), id="cce.loss.dft", suggest=OTHER,
            because="the packages know the plain negative log-likelihood only",
        ),
        Forbid(
            (cce | torch_linear) & key("model.type").isin(*UNKNOWN), id="cce.kernel.unknown_head", suggest=["loss.kernel=full"],
            because="what this architecture's output head does to its logits is not known",
        ),
        Forbid(
            (cce | torch_linear) & key("peft.head").on, id="cce.head", suggest=OTHER,
            because="the packages read the head's own weight, without the adapter",
        ),
        Forbid(
            (cce | torch_linear) & key("grpo.entropy_adaptive").on, id="cce.entropy.adaptive", suggest=OTHER,
            because=NO_ENTROPY,
        ),
        Check(
            ["grpo.entropy_coef", "grpo.top_entropy_quantile"], _without_entropy,
            when=(cce | torch_linear) & (key("trainer.name") == "grpo"), id="cce.entropy.grpo", because=NO_ENTROPY,
        ),
        Forbid(
            (cce | torch_linear) & key("grpo.head_fp32").on, id="cce.head_fp32", suggest=OTHER,
            because="the packages compute the head in the model's dtype",
        ),
        Ignored(
            key("loss.chunk_mib"), when=cce | torch_linear, id="cce.chunk",
            because="the packages choose the size of their own blocks",
        ),
    ],
    provides={"loss.kernel": ("cce", "torch_linear")},
    hooks="memcfg_cce.hooks",
    active=cce | torch_linear,
)  # fmt: skip
