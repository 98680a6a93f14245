"""What leaves the device for a while: activations between forward and backward, optimizer states while sampling."""

from __future__ import annotations

from memcfg import Axis, Bool, Default, Enum, Fact, Forbid, Ignored, Plugin, Setting, key, only_when

activations = Enum(
    "offload.activations",
    ("none", "checkpoint_inputs", "all", "disk"),
    doc="what leaves the device: the inputs that checkpointing keeps, every saved tensor, or every one to disk",
    free=True,
)
threshold = Setting(
    "offload.min_bytes", int, default=1024, minimum=0, unit="bytes", doc="smaller tensors stay on the device", free=True
)
streams = Setting(
    "offload.streams", bool, default=True, doc="copy beside the computation, on a stream of its own", free=True
)
stash = Setting(
    "offload.stash", int, default=5, minimum=1, unit="tensors", doc="copies that may be in flight at a time", free=True
)
pin = Setting("offload.pin", bool, default=True, doc="copy through page-locked host memory, which is faster", free=True)
path = Setting(
    "offload.path", str, default=None, nullable=True, doc="folder of `disk`; null is the system's temporary one",
    free=True,
)  # fmt: skip
phases = Bool(
    "offload.phases", doc="keep optimizer states and gradients on the host while completions are sampled", free=True
)
rehearsal = Fact(
    "offload.rehearsal",
    probe="memcfg_offload.facts:rehearsal",
    doc="whether `MEMCFG_OFFLOAD_REHEARSAL=1` asks for copies though there is no device to free, as memcfg's tests do",
)

on = activations != "none"
moving = on | phases.on
online = key("trainer.name").isin("grpo", "rloo", "online_dpo")

plugin = Plugin(
    name="offload",
    doc="keeps activations, and optimizer states while sampling, in host memory",
    options=[activations, threshold, streams, stash, pin, path, phases, rehearsal],
    rules=[
        Default(
            activations, "none", id="offload.activations.default", because="copies cost time where the device has room"
        ),
        Forbid(
            on & (key("device.type") == "cpu") & rehearsal.off, id="offload.device.accelerator",
            because="there is no accelerator whose memory it could free", suggest=["offload.activations=none"],
        ),
        Default(
            phases, False, when=online, id="offload.phases.default", because="copies cost time where the device has room"
        ),
        Forbid(
            phases.on & (key("device.type") == "cpu") & rehearsal.off, id="offload.phases.accelerator",
            because="there is no accelerator whose memory it could free", suggest=["offload.phases=false"],
        ),
        Forbid(
            phases.on & key("optimizer.name").isin("adamw_offload", "paged_adamw_8bit"), id="offload.phases.states",
            because="this optimizer's states lie in host memory, or move there by themselves",
            suggest=["offload.phases=false", "optimizer.name=adamw"],
        ),
        Forbid(
            (activations == "checkpoint_inputs") & (key("checkpointing.mode") == "none"), id="offload.checkpoint_inputs.none",
            because="without checkpointing there are no checkpoint inputs to move",
            suggest=["offload.activations=all", "checkpointing.mode=full"],
        ),
        Ignored(
            pin, when=activations == "disk", except_values=(False,), id="offload.pin.disk",
            because="files are read and written through ordinary memory",
        ),
        *only_when(online, phases, because="this trainer samples no completions between its steps"),
        *only_when(on, threshold, streams, stash, because="nothing is offloaded"),
        *only_when(moving, pin, because="nothing is offloaded"),
        *only_when(activations == "disk", path, because="only `offload.activations=disk` writes files"),
    ],
    axes=[Axis("offload.activations", ("none", "checkpoint_inputs", "all"))],
    groups={"offload": "what leaves the device between forward and backward"},
    hooks="memcfg_offload.hooks",
    active=moving,
)  # fmt: skip
