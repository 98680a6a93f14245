"""Optimizers: what moves the parameters once a step's gradients are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Advise, Axis, Bool, Check, Default, Enum, Forbid, Ignored, Plugin, Require, Setting, key

BITSANDBYTES = ("adamw_8bit", "paged_adamw_8bit", "lion_8bit")
"""Optimizers of bitsandbytes."""

name = Enum(
    "optimizer.name",
    ("adamw", "adamw_bf16", "adamw_offload", *BITSANDBYTES, "adafactor", "sgd"), open=True,
    doc="the optimizer: adamw (states in the parameters' dtype), adamw_bf16 (states in bfloat16, stochastically rounded), "
    "adamw_offload (states and float32 weights in host memory), adamw_8bit, paged_adamw_8bit, lion_8bit (bitsandbytes), "
    "adafactor (second moment of rows and columns alone), sgd",
)  # fmt: skip
weight_decay = Setting(
    "optimizer.weight_decay", float, default=0.0, minimum=0.0,
    doc="decoupled weight decay of matrices; vectors (norms, biases) are not decayed",
)  # fmt: skip
betas = Setting("optimizer.betas", list, default=[0.9, 0.999], doc="decay of the first and second moment")
eps = Setting("optimizer.eps", float, default=1e-8, minimum=0.0, doc="added to the root of the second moment")
momentum = Setting("optimizer.momentum", float, default=0.0, minimum=0.0, maximum=1.0, doc="decay of the mean gradient")
fused = Setting("optimizer.fused", bool, doc="one kernel for all parameters")
in_backward = Bool(
    "optimizer.in_backward",
    doc="move each parameter as soon as its gradient is there and free the gradient, so that all are never alive at once",
)

eight_bit = name.isin(*BITSANDBYTES)
strategy = key("distributed.strategy")
PAPER_8BIT = "https://arxiv.org/abs/2110.02861"


def _unclipped(values: Mapping[str, Any]) -> str | None:
    norm = values["run.max_grad_norm"]
    return f"gradients cannot be shortened to {norm:g} together: add `run.max_grad_norm=null`" if norm else None


def _two_betas(values: Mapping[str, Any]) -> str | None:
    given = values["optimizer.betas"]
    numbers = [b for b in given if isinstance(b, int | float) and not isinstance(b, bool) and 0.0 <= b < 1.0]
    return None if len(numbers) == len(given) == 2 else f"needs two numbers from 0 to below 1, not {list(given)}"


def _no_eps(values: Mapping[str, Any]) -> str | None:
    return "zero divided by zero is no number" if values["optimizer.eps"] == 0 else None


def _one_micro_batch(values: Mapping[str, Any]) -> str | None:
    count = values["run.accumulation"]
    return f"`run.accumulation={count}` would move the parameters {count} times in a step" if count > 1 else None


plugin = Plugin(
    name="optimizer",
    doc="optimizers",
    options=[name, weight_decay, betas, eps, momentum, fused, in_backward],
    rules=[
        Default(
            name, "adamw", id="optimizer.name.default",
            because="AdamW is what fine-tuning recipes are tuned for",
        ),
        Default(
            fused, True, id="optimizer.fused.cuda", when=key("device.type") == "cuda",
            because="on a GPU one kernel replaces several for every parameter",
        ),
        Default(
            fused, False, id="optimizer.fused.cpu", when=key("device.type") == "cpu",
            because="on a CPU it gains nothing",
        ),
        Default(
            betas, [0.9, 0.99], id="optimizer.betas.lion", when=name == "lion_8bit",
            because="Lion's second decay is that of its only moment", ref="https://arxiv.org/abs/2302.06675",
        ),
        Default(in_backward, False, id="optimizer.in_backward.default", because="gradients are clipped together"),
        Default(
            key("run.max_grad_norm"), None, id="optimizer.in_backward.norm", when=in_backward.on,
            because="the length of all gradients is known only when the first ones are gone",
        ),
        Require(
            key("quantization.installed").on, when=eight_bit, id="optimizer.package.installed",
            because="the bitsandbytes package is not installed (`pip install bitsandbytes`)", suggest=["optimizer.name=adamw"], ref=PAPER_8BIT,
        ),
        Check(
            [betas], _two_betas, id="optimizer.betas.range", when=name.isin("adamw", "adamw_bf16", "adamw_offload", *BITSANDBYTES),
            because="each is the part of a moment that is kept from step to step",
        ),
        Check(
            [eps], _no_eps, id="optimizer.eps.zero", when=~name.isin("adafactor", "sgd", "lion_8bit"),
            because="a weight whose gradients were all zero has nothing else to be divided by",
        ),
        Check(
            ["run.max_grad_norm"], _unclipped, when=in_backward.on, id="optimizer.in_backward.clipping",
            because="the length of all gradients is known only when the first ones are gone",
        ),
        Check(
            ["run.accumulation"], _one_micro_batch, when=in_backward.on, id="optimizer.in_backward.accumulation",
            because="a gradient that is used at once cannot be added to",
        ),
        Forbid(
            in_backward.on & strategy.isin("ddp", "fsdp2", "zero2", "zero3"), id="optimizer.in_backward.ranks",
            because="gradients are averaged over processes after they are computed",
            suggest=["optimizer.in_backward=false", "distributed.strategy=none"],
        ),
        Forbid(
            in_backward.on & (key("run.on_oom") == "shrink"), id="optimizer.in_backward.on_oom",
            because="a backward pass that fails has moved some parameters already",
            suggest=["optimizer.in_backward=false", "run.on_oom=stop"],
        ),
        Forbid(
            in_backward.on & (name == "adamw_offload"), id="optimizer.in_backward.offload",
            because="each parameter would wait for the host in the middle of the backward pass",
            suggest=["optimizer.in_backward=false", "optimizer.name=adamw"],
        ),
        Forbid(
            name.isin("adamw_offload", "paged_adamw_8bit") & (key("device.type") == "cpu") & key("offload.rehearsal").off,
            id="optimizer.offload.accelerator", because="there is no accelerator whose memory it could free",
            suggest=["optimizer.name=adamw"],
        ),
        Forbid(
            (name == "adamw_offload") & strategy.isin("fsdp2", "zero2", "zero3"), id="optimizer.offload.sharded",
            because="sharded strategies move their own states to the host", suggest=["distributed.strategy=ddp"],
        ),
        Forbid(
            eight_bit & strategy.isin("fsdp2", "zero2", "zero3"), id="optimizer.eight_bit.sharded",
            because="the kernels of bitsandbytes do not know distributed tensors",
            suggest=["optimizer.name=adamw", "distributed.strategy=ddp"],
        ),
        Advise(
            "plain AdamW rounds its updates to bfloat16 and loses small ones: `optimizer=adamw_bf16` rounds them so that "
            "they count on average", id="optimizer.bf16.rounding",
            when=(name == "adamw") & (key("model.dtype") == "bfloat16") & (key("peft.method") == "none"),
        ),
        Ignored(betas, id="optimizer.betas.other", when=name.isin("adafactor", "sgd"), because="it has no such moments"),
        Ignored(eps, id="optimizer.eps.other", when=name.isin("adafactor", "sgd", "lion_8bit"), because="it divides by no root"),
        Ignored(
            fused, id="optimizer.fused.other", when=~name.isin("adamw", "sgd", "adamw_offload"), except_values=(False,),
            because="the optimizer has kernels of its own",
        ),
        Ignored(
            momentum, id="optimizer.momentum.other", when=name != "sgd", except_values=(0.0,),
            because="only `optimizer.name=sgd` reads it",
        ),
    ],
    provides={
        "optimizer.name": ("adamw", "adamw_bf16", "adamw_offload", *BITSANDBYTES, "adafactor", "sgd"),
    },
    axes=[
        Axis("optimizer.in_backward", (False, True), {True: "gradients are not clipped"}),
        Axis(
            "optimizer.name", ("adamw", "adamw_8bit", "adamw_offload"), {"adamw_8bit": "optimizer states in 8 bits"},
        ),
    ],
    groups={"optimizer": "what moves the parameters"},
    hooks="memcfg_optimizer.hooks",
)  # fmt: skip
