"""How the work and the weights are spread over processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import (
    Advise,
    Bool,
    Check,
    Default,
    Enum,
    Fact,
    Forbid,
    Force,
    Ignored,
    NotYet,
    Plugin,
    Require,
    Setting,
    key,
    only_when,
)

trainer = key("trainer.name")
world = key("world.size")
online = trainer.isin("grpo", "rloo", "online_dpo")

strategy = Enum(
    "distributed.strategy",
    ("none", "ddp", "fsdp2", "zero2", "zero3"),
    doc="replicas (ddp) or shards of optimizer and gradients (zero2), or of weights too (fsdp2, zero3)",
)
processes = Setting(
    "distributed.processes", int, default=None, nullable=True, minimum=1, unit="processes",
    doc="processes to start on this machine; null leaves that to the launcher",
)  # fmt: skip
gather = Bool("zero3.gather_for_generation", doc="gather all weights of a ZeRO-3 model while it samples completions")
deepspeed = Fact(
    "distributed.deepspeed",
    probe="memcfg_distributed.facts:deepspeed",
    doc="whether the deepspeed package is installed",
)

zero = strategy.isin("zero2", "zero3")
shards = strategy.isin("fsdp2", "zero3")
optimizer = key("optimizer.name")
sampled_sharded = online & (strategy == "zero3")


def _as_launched(values: Mapping[str, Any]) -> str | None:
    wanted, started = values["distributed.processes"], values["world.size"]
    return f"{wanted} are wanted, and {started} were started" if wanted not in (None, started) else None


plugin = Plugin(
    name="distributed",
    doc="spreads the work over processes",
    options=[strategy, processes, gather, deepspeed],
    rules=[
        Default(strategy, "none", id="distributed.strategy.default", because="the run is a single process"),
        Default(
            strategy, "ddp", when=world >= 2, id="distributed.strategy.replicas",
            because="several processes were launched, and replicas suit every technique",
        ),
        Forbid(
            (strategy == "none") & (world >= 2), id="distributed.strategy.needed",
            because="there would be several processes, and each would train alone",
            suggest=["distributed.strategy=ddp"],
        ),
        Forbid(
            (key("run.on_oom") == "shrink") & strategy.isin("fsdp2", "zero2", "zero3"), id="distributed.on_oom.sharded",
            because="a process that runs out of memory by itself leaves the others waiting in the middle of a layer",
            suggest=["run.on_oom=stop", "distributed.strategy=ddp"],
        ),
        Require(
            deepspeed.on, when=zero, id="distributed.deepspeed.installed", because="the deepspeed package is not installed",
            suggest=["distributed.strategy=fsdp2"],
        ),
        Force(
            key("checkpointing.reentrant"), True,
            when=(strategy == "zero3") & (key("peft.method") != "none") & (key("checkpointing.mode") == "full"),
            id="distributed.zero3.reentrant",
            because="ZeRO-3 drops gathered weights between forward and recompute, which the other form of checkpointing "
            "takes for a changed graph when some weights are frozen",
            ref="https://github.com/deepspeedai/DeepSpeed/issues/4332",
        ),
        Forbid(
            (strategy == "zero3") & (key("peft.method") != "none") & (key("checkpointing.mode") == "selective"),
            id="distributed.zero3.selective",
            because="ZeRO-3 with frozen weights needs re-entrant checkpointing, which computes whole layers again",
            suggest=["checkpointing.mode=full", "distributed.strategy=fsdp2"],
        ),
        Forbid(
            shards & key("peft.merge").on, id="distributed.shards.merge",
            because="an adapter is merged into whole weights, and no process holds them",
            suggest=["peft.merge=false"],
        ),
        Forbid(
            shards & (trainer == "reward"), id="distributed.shards.reward",
            because="a reward model is saved as another architecture, which is made of whole weights",
            suggest=["distributed.strategy=zero2"],
        ),
        Forbid(
            shards & key("reference.sync").on, id="distributed.shards.sync",
            because="the reference would move towards a policy whose weights no process holds",
            suggest=["reference.sync=false", "distributed.strategy=zero2"],
        ),
        Forbid(
            (optimizer == "adafactor") & strategy.isin("fsdp2", "zero2", "zero3"), id="distributed.adafactor.shards",
            because="it needs the rows and columns of a matrix, and shards have neither whole",
            suggest=["optimizer.name=adamw", "distributed.strategy=ddp"],
        ),
        Forbid(
            (optimizer == "adamw_bf16") & (strategy == "fsdp2"), id="distributed.adamw_bf16.fsdp2",
            because="the random numbers that it rounds with are no distributed tensors",
            suggest=["optimizer.name=adamw", "distributed.strategy=ddp"],
        ),
        Forbid(
            (key("mlp.mode") == "tiled") & (strategy == "zero3"), id="distributed.tiled.zero3",
            because="the pieces are computed again inside the backward pass, where ZeRO-3 has let the weights go",
            suggest=["mlp.mode=whole", "distributed.strategy=fsdp2"],
        ),
        Default(
            gather, True, when=sampled_sharded, id="distributed.gather.default",
            because="sampling with whole weights is faster, where they fit",
        ),
        Ignored(
            gather, when=~online, except_values=(True,), id="distributed.gather.trainer",
            because="only GRPO, RLOO and Online DPO sample from the sharded model",
        ),
        Ignored(
            gather, when=strategy != "zero3", except_values=(True,), id="distributed.gather.zero3",
            because="weights are sharded while sampling under ZeRO-3 alone",
        ),
        Check(
            ["distributed.processes", "world.size"], _as_launched, id="distributed.processes.launched",
            because="a launcher has started the processes already",
        ),
        Advise(
            "there is one process: `distributed.processes=N` starts several on this machine, and `torchrun -m memcfg` on any "
            "number", id="distributed.strategy.alone", when=(strategy != "none") & (world == 1),
        ),
        *only_when(strategy != "none", processes, because="a single process has nothing to spread"),
    ],
    provides={"distributed.strategy": ("ddp", "fsdp2", "zero2", "zero3")},
    not_yet=[
        NotYet(
            (strategy == "fsdp2") & key("quantization.mode").isin("nf4", "fp4"),
            "bitsandbytes loses how its four-bit weights were packed when torch makes shards of them",
        )
    ],
    groups={"distributed": "how the work is spread over processes"},
    active=strategy != "none",
    hooks="memcfg_distributed.hooks",
)  # fmt: skip
