"""The context around forward and backward in which activations are moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from memcfg.engine.forward import backbone_of, causal_model
from memcfg_offload.mover import Mover

LEAST = {"checkpoint_inputs": 1, "all": 10}
"""Tensors as large as the hidden states that a layer saves at the very least."""


class Offload(AbstractContextManager["Offload"]):
    """Re-enterable. `checkpoint_inputs` moves what the layers' checkpoint function saves, which is what it is given;
    otherwise everything that the backbone saves is moved: the head and the loss come after it and keep what they save."""

    def __init__(self, model: torch.nn.Module, mover: Mover, *, inputs_only: bool) -> None:
        self.model, self.mover, self.inputs_only = model, mover, inputs_only
        self._inside = 0
        self.largest = (0, 0)
        """Rows and positions of each in the forward with most of both so far."""
        self._stack: ExitStack | None = None
        backbone = backbone_of(causal_model(model))
        backbone.register_forward_pre_hook(self._enter_backbone, with_kwargs=True)
        backbone.register_forward_hook(self._leave_backbone, always_call=True)

    def __enter__(self) -> Offload:
        if self._stack is not None:
            raise RuntimeError("the offload context is entered already")
        self.mover.keep(self.model)
        with ExitStack() as stack:
            stack.callback(self.mover.finish)
            if self.inputs_only:
                stack.enter_context(self._checkpoints())
            else:
                stack.enter_context(saved_tensors_hooks(self._pack, self.mover.unpack))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        stack, self._stack, self._inside = self._stack, None, 0
        if stack is not None:
            stack.close()

    def _pack(self, tensor: torch.Tensor) -> Any:
        return self.mover.pack(tensor) if self._inside else tensor

    @contextmanager
    def _checkpoints(self) -> Iterator[None]:
        """Every checkpointed layer's checkpoint function moves what it saves. Put back afterwards, whatever happens."""
        replaced = [m for m in self.model.modules() if getattr(m, "gradient_checkpointing", False) is True]
        before: list[tuple[torch.nn.Module, Any]] = [
            (m, m._gradient_checkpointing_func) for m in replaced if hasattr(m, "_gradient_checkpointing_func")
        ]
        try:
            for module, function in before:
                setattr(module, "_gradient_checkpointing_func", self._moving(function))  # noqa: B010
            yield
        finally:
            for module, function in before:
                setattr(module, "_gradient_checkpointing_func", function)  # noqa: B010

    def _moving(self, checkpoint: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            # Inside, autograd uses the hooks of the checkpoint itself, or none: only its inputs come here.
            with saved_tensors_hooks(self.mover.pack, self.mover.unpack):
                return checkpoint(*args, **kwargs)

        return call

    def _enter_backbone(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inside += self._stack is not None
        tokens = kwargs.get("input_ids", kwargs.get("inputs_embeds", args[0] if args else None))
        if self._inside and torch.is_grad_enabled() and isinstance(tokens, torch.Tensor):
            self._refuse_too_much(int(tokens.shape[0]), int(tokens.shape[1]), module)

    def _leave_backbone(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._inside = max(0, self._inside - 1)

    def _refuse_too_much(self, rows: int, positions: int, backbone: torch.nn.Module) -> None:
        """Raise `RunError` before anything is computed, if there is no room for what these tokens will save for certain."""
        tokens = rows * positions
        if tokens <= self.largest[0] * self.largest[1]:
            return
        self.largest = (rows, positions)
        config: Any = getattr(backbone, "config", None)
        layers, width = getattr(config, "num_hidden_layers", None), getattr(config, "hidden_size", None)
        if not isinstance(layers, int) or not isinstance(width, int):
            return
        each = width * next(backbone.parameters()).element_size()
        least = LEAST["checkpoint_inputs" if self.inputs_only else "all"] * tokens * layers * each
        if self.mover.device != "meta" and least > self.mover.stack.capacity:
            self.mover.stack.refuse(least - self.mover.stack.capacity)
