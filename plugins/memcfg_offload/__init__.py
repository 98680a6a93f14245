"""Activations kept in host memory, or on disk, between forward and backward."""

from __future__ import annotations

from memcfg import Axis, Default, Enum, Fact, Forbid, Ignored, Plugin, Setting, key, only_when

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
rehearsal = Fact(
    "offload.rehearsal",
    probe="memcfg_offload.facts:rehearsal",
    doc="whether `MEMCFG_OFFLOAD_REHEARSAL=1` asks for copies though there is no device to free, as memcfg's tests do",
)

on = activations != "none"

plugin = Plugin(
    name="offload",
    doc="keeps activations in host memory between forward and backward",
    options=[activations, threshold, streams, stash, pin, path, rehearsal],
    rules=[
        Default(
            activations, "none", id="offload.activations.default", because="copies cost time where the device has room"
        ),
        Forbid(
            on & (key("device.type") == "cpu") & rehearsal.off, id="offload.device.accelerator",
            because="there is no accelerator whose memory it could free", suggest=["offload.activations=none"],
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
        *only_when(on, threshold, streams, stash, pin, because="nothing is offloaded"),
        *only_when(activations == "disk", path, because="only `offload.activations=disk` writes files"),
    ],
    axes=[Axis("offload.activations", ("none", "checkpoint_inputs", "all"))],
    groups={"offload": "what leaves the device between forward and backward"},
    hooks="memcfg_offload.hooks",
    active=on,
)  # fmt: skip
