"""How torch's caching allocator asks the device for memory."""

from __future__ import annotations

from memcfg import Axis, Bool, Default, Forbid, Plugin, key

expandable = Bool(
    "allocator.expandable", doc="let segments grow in place, which wastes less to fragmentation", free=True
)

plugin = Plugin(
    name="allocator",
    doc="sets up torch's CUDA allocator",
    options=[expandable],
    rules=[
        Default(
            expandable, False, id="allocator.expandable.default", because="torch's own setting is kept unless asked otherwise"
        ),
        Forbid(
            expandable.on & (key("device.type") == "cpu"), id="allocator.expandable.cuda",
            because="only the CUDA allocator has segments", suggest=["allocator.expandable=false"],
            ref="https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
        ),
    ],
    axes=[Axis("allocator.expandable", (False, True))],
    groups={"allocator": "how device memory is asked for"},
    hooks="memcfg_allocator.hooks",
    active=expandable.on,
)  # fmt: skip
