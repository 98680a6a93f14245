"""What `memcfg_vllm.engine` and `memcfg_vllm.server` take for granted of vLLM: names, arguments, fields and addresses.

A test looks each up in the source of a vllm that is installed, or unpacked somewhere, without importing it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """A function or class of `module`, called with these keyword arguments (`kwargs` of a class are its fields)."""

    module: str
    name: str
    arguments: tuple[str, ...] = ()


CHECKED = ("0.31.0", "0.32.0", "0.33.0")
"""The releases whose source was looked at."""
RAN = ("0.32.0",)
"""Those that really sampled for a run, in both modes: the build for CPUs."""

CALLS = (
    Call("vllm.entrypoints.llm", "LLM.__init__", ("model", "dtype", "tensor_parallel_size", "gpu_memory_utilization",
         "seed", "trust_remote_code", "enforce_eager", "runner", "kwargs")),
    Call("vllm.engine.arg_utils", "EngineArgs", ("load_format", "distributed_executor_backend", "generation_config",
         "logprobs_mode", "max_model_len", "enable_sleep_mode", "model_impl", "max_num_batched_tokens", "tokenizer")),
    Call("vllm.entrypoints.llm", "LLM.sleep", ("level",)),
    Call("vllm.entrypoints.llm", "LLM.wake_up", ("tags",)),
    Call("vllm.entrypoints.llm", "LLM.reset_prefix_cache"),
    Call("vllm.entrypoints.llm", "LLM.generate", ("prompts", "sampling_params", "use_tqdm")),
    Call("vllm.entrypoints.llm", "LLM.collective_rpc", ("method", "kwargs")),
    Call("vllm.v1.worker.gpu_worker", "Worker.reload_weights", ("kwargs",)),
    Call("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.reload_weights", ("weights_iterator", "weights_path")),
    Call("vllm.v1.engine.core_client", "EngineCoreClient.shutdown"),
    Call("vllm.sampling_params", "SamplingParams", ("n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
         "seed", "max_tokens", "logprobs", "stop_token_ids", "detokenize", "structured_outputs")),
    Call("vllm.sampling_params", "StructuredOutputsParams", ("regex",)),
    Call("vllm.outputs", "RequestOutput.__init__", ("outputs",)),
    Call("vllm.outputs", "CompletionOutput", ("token_ids", "logprobs", "finish_reason")),
    Call("vllm.logprobs", "Logprob", ("logprob",)),
    Call("vllm.distributed.weight_transfer.base", "ParamMeta", ("name", "dtype", "shape")),
    Call("vllm.distributed.weight_transfer.base", "WeightSource.metadata"),
    Call("vllm.distributed.weight_transfer.base", "TrainerInitInfo", ("rank",)),
    Call("vllm.distributed.weight_transfer.clients", "HTTPVLLMWeightSyncClient.__init__", ("base_url", "timeout")),
    Call("vllm.distributed.weight_transfer.nccl_engine", "NCCLTrainerInitInfo", ("master_address", "master_port", "world_size")),
    Call("vllm.distributed.weight_transfer.nccl_engine", "NCCLTrainerWeightTransferEngine.trainer_init",
         ("init_info", "client", "source")),
    Call("vllm.distributed.weight_transfer.nccl_engine", "NCCLTrainerWeightTransferEngine.send_weights"),
    Call("vllm.entrypoints.openai.completion.protocol", "CompletionRequest", ("model", "prompt", "temperature", "top_p",
         "top_k", "min_p", "repetition_penalty", "seed", "max_tokens", "logprobs", "stop_token_ids", "return_token_ids",
         "structured_outputs")),
    Call("vllm.entrypoints.openai.completion.protocol", "CompletionResponseChoice", ("token_ids", "logprobs", "finish_reason")),
    Call("vllm.entrypoints.openai.completion.protocol", "CompletionLogProbs", ("token_logprobs",)),
)  # fmt: skip

ROUTES = {
    "/health": ("vllm.entrypoints.serve.instrumentator.health",),
    "/version": ("vllm.entrypoints.serve.instrumentator.basic",),
    "/v1/models": ("vllm.entrypoints.openai.models.api_router",),
    "/v1/completions": ("vllm.entrypoints.openai.completion.api_router",),
    "/collective_rpc": ("vllm.entrypoints.serve.dev.rpc.api_router",),
    "/reset_prefix_cache": ("vllm.entrypoints.serve.dev.cache.api_router",),
    "/server_info": ("vllm.entrypoints.serve.dev.server_info.api_router",),
    "/get_world_size": ("vllm.entrypoints.rl.online.api_router", "vllm.entrypoints.serve.dev.rlhf.api_router"),
}
"""The addresses that are asked of a server, each with the module that answers there (and where it was in older releases)."""
