"""The dispatch mode that sees every storage of a simulated step.

After each operation an output whose storage was not seen before is a birth; the end of that storage is its death. Views,
writes in place, tensors saved for the backward pass and checkpoints that compute again come out right because autograd
itself does them.

Any dispatch mode changes what it watches in one point: where autograd would write into a tensor that only it holds (a sum
of gradients, the zeros that a gather's backward adds to), it then makes a new tensor instead. The mode therefore answers such
an operation by the one in place that would have happened without it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memcfg.planner.clock import Clock
from memcfg.planner.hidden import MATMULS, temporaries
from memcfg.planner.host import NOTHING, Host
from memcfg.planner.machine import Machine
from memcfg.planner.repeats import Item, Round, rounds
from memcfg.planner.trace import Trace
from memcfg.planner.values import Values, tensors

Tensor = torch.Tensor
aten = torch.ops.aten

KIND_OF: Final = {
    "load": "weights", "input": "inputs", "forward": "activations", "loss": "logits", "backward": "workspace",
    "optimizer": "optimizer", "generation": "activations", "scoring": "activations",
}  # fmt: skip
"""What a storage is for, by the phase of its birth, unless more is known."""

LAST_REFERENCE: Final = 2
"""References to a gradient's storage when autograd holds the last one: its tensor's and that of the object for Python."""

IN_PLACE: Final = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.index_add.default: aten.index_add_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.index_put.default: aten.index_put_.default,
}
"""What autograd does in place unless it is watched."""

PRODUCTS_INTO: Final = frozenset(
    product.dtype_out for product in (aten.mm, aten.addmm) if "dtype_out" in product.overloads()
)
"""Products that are written in another type than their factors have: not every torch knows them on `meta`."""

FUSED: Final = "aten::_fused_"
"""Optimizers in one kernel, which write to what they are given and need nothing more; not all are known on `meta`."""

GROUPED: Final = "aten::_grouped_mm"
"""The products of a mixture of experts."""

_ENGINE_FRAMES: Final = ("inner", "_fn")


class _Operator:
    """What is asked of an operator at every call. Its own attributes are made anew each time they are looked at."""

    __slots__ = ("func", "fused", "in_place", "into", "multiplies", "name")

    def __init__(self, func: Any) -> None:
        self.func, self.name = func, func._schema.name
        self.in_place = IN_PLACE.get(func)
        self.into = func in PRODUCTS_INTO
        self.fused = self.name.startswith(FUSED) and not func._schema.returns
        self.multiplies = self.name in MATMULS


_OPERATORS: dict[int, _Operator] = {}


def _operator(func: Any) -> _Operator:
    found = _OPERATORS.get(id(func))
    if found is None:
        found = _OPERATORS[id(func)] = _Operator(func)  # holds the function: no other will have its address
    return found


_SHAPES: dict[Any, Any] = {}
"""What operations give, by what they are given: the same for every simulation of this process."""


class _Grave(weakref.ref):
    """A weak reference to a storage that knows the storage's number and address."""

    __slots__ = ("address", "number")
    address: int
    number: int


class Tracker(TorchDispatchMode):
    """`watching` switches it on and off without leaving it. `phase` is set by whoever runs the step, and so is `fine`
    (see `memcfg.simulated`), which is only of interest for a `whole` model. At the next operation after there is anything in
    `interrupts` it stops: what is raised while a storage is buried would be lost."""

    def __init__(self, machine: Machine, *, whole: bool = True) -> None:
        super().__init__()
        self.machine, self.clock, self.whole = machine, Clock(machine), whole
        self.trace, self.values = Trace(), Values()
        self.watching, self.phase, self.fine = True, "load", True
        self.host = Host(self.clock.copy, self.clock.work, self.values.of)
        self._size: Callable[[Tensor], int] = whole_bytes
        self._alive: dict[int, _Grave] = {}
        self._shapes = _SHAPES
        self._workspaces: set[str] = set()
        self.interrupts: Sequence[int] = ()
        self._bury = self._died

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing here is compiled, and each operation would pay for the guard

    # ---------------------------------------------------------------------------------------------- what is told

    def enter(self, step: int, phase: str) -> None:
        self.clock.unlike()
        self.phase = phase
        self.trace.mark(step, phase)

    def told(self, size: int, kind: str, op: str) -> int:
        """A storage that no tensor shows. Returns its number, for `ended`."""
        number = self.trace.born(size, kind, self.phase, op, self.clock.ms)
        if self.clock.heard is not None:
            self.clock.heard.told.append(number)
        return number

    def ended(self, number: int) -> None:
        self.trace.died(number, self.clock.ms)
        if self.clock.heard is not None:
            self.clock.heard.told.append(-number)

    def emptied(self) -> None:
        """Whole cached segments are given back to the device."""
        self.clock.unlike()
        self.trace.empty_cache()

    def repeated(self, items: Iterable[Item], alike: Callable[[Item], Any]) -> Iterator[Item]:
        """Those of `items` that are to be run one after the other: see `memcfg.simulated.repeated`."""
        return rounds(self, items, alike) if self.watching and self.clock.heard is None else iter(items)

    def aged(self, done: Round, count: int) -> bool:
        """Whether all that a round has left is known, which then counts as left by the round that is `count` rounds later."""
        left = set(done.born) - done.dead
        graves = []
        for grave in reversed(self._alive.values()):  # in the order of their numbers
            if grave.number <= done.base:
                break
            graves.append(grave)
        if {grave.number for grave in graves} != left:
            return False
        for grave in graves:
            grave.number += count * len(done.born)
        return True

    @contextmanager
    def sized(self, size: Callable[[Tensor], int]) -> Iterator[None]:
        """Within this, a new tensor's storage is as large as `size` says."""
        before, self._size = self._size, size
        try:
            yield
        finally:
            self._size = before

    def number(self, tensor: Tensor) -> int | None:
        """The number of a tensor's storage in the trace."""
        grave = self._alive.get(tensor.untyped_storage()._cdata)
        return None if grave is None else grave.number

    def name(self, tensor: Tensor, kind: str) -> None:
        """Say what a tensor's storage is for."""
        self.clock.unlike()
        number = self.number(tensor) if tensor.is_meta else None
        if number is not None:
            self.trace.births[number - 1].kind = kind

    def arrived(self, tensor: Tensor) -> None:
        """A weight is on the device."""
        if self.watching:
            self.see(tensor, "load")

    def see(self, tensor: Tensor, op: str = "", kind: str | None = None) -> None:
        """Note the birth of a tensor's storage, if it is new."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._alive:
            return
        size = self._size(tensor)
        if size:
            grave = self._alive[address] = _Grave(storage, self._bury)
            grave.address = address
            grave.number = self.told(size, kind or self._kind(), op)

    def flash(self, sizes: Sequence[int], op: str) -> None:
        """Births that end at once, the last one first: what a kernel uses while it runs."""
        for number in reversed([self.told(size, "workspace", op) for size in sizes if size]):
            self.ended(number)

    # -------------------------------------------------------------------------------------------- what is seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.interrupts:
            raise KeyboardInterrupt
        if not self.watching:
            return func(*args, **kwargs)
        op = _operator(func)
        if op.in_place is not None and _held_by_autograd(func, args):
            func = op.in_place
            op = _operator(func)
        out = self.host.answer(func, args, kwargs)
        if out is not NOTHING:
            return out
        key, out = self._run(op, args, kwargs)
        new = False
        name = op.name
        for tensor in tensors(out):
            if tensor.is_meta:
                new = True
                self.see(tensor, name)
        if new or _on_device(args):
            if op.multiplies:
                self._need_workspace(name, args)
            hidden = temporaries(func, args, out, self.machine)
            if hidden:
                self.flash(hidden, name)
            native = self.phase == "optimizer" or (self.phase == "backward" and not torch.is_grad_enabled())
            self.clock.run(func, args, kwargs, out, key, native=native, hooked=not native and _hooked())
        return out

    def _run(self, op: _Operator, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The operation's result, and what makes it equal to others. Layers repeat: shapes are looked up, not derived
        again, where the results are new and dense."""
        func = op.func
        if self.values.concerns(args):
            answer = self.values.answer(func, args, kwargs)
            if answer is not None:
                return None, answer
            out = _called(func, args, kwargs)
            self.values.follow(func, args, kwargs, out)
            return None, out
        answer = self.values.answer(func, args, kwargs)
        if answer is not None:
            return None, answer
        if op.into:
            return None, kwargs["out"]
        if op.fused:
            return None, None
        try:
            key = (op, _signature(args), _signature(kwargs.items()) if kwargs else None)
            known = self._shapes.get(key)
        except TypeError:
            return None, _called(func, args, kwargs)
        if known is None:
            out = _called(func, args, kwargs)
            self._shapes[key] = _written(key, args, kwargs, out) or _recipe(func, args, out)
            return key, out
        if known is False:
            return key, _called(func, args, kwargs)
        if isinstance(known, _Written):
            return key, args[0] if known.name is None else kwargs[known.name]
        return key, _made(known)

    def _kind(self) -> str:
        if self.phase == "backward" and torch.is_grad_enabled():
            return "activations"  # a checkpoint computes them again
        return KIND_OF[self.phase]

    def _need_workspace(self, name: str, args: Any) -> None:
        """cuBLAS takes one workspace for each thread that multiplies, cuBLASLt another for products with a bias."""
        thread = "autograd" if self.phase == "backward" else "caller"
        self._workspace(thread, self.machine.blas)
        if name == "aten::addmm" and args[0].dim() == 1:
            self._workspace(f"bias, {thread}", self.machine.blas_bias)

    def _workspace(self, name: str, size: int) -> None:
        if size and name not in self._workspaces:
            self._workspaces.add(name)
            self.told(size, "workspace", "cublas")

    def _died(self, grave: Any) -> None:
        self._alive.pop(grave.address, None)
        self.values.forget(grave.address)
        if not self.watching:
            return
        birth = self.trace.births[grave.number - 1]
        if birth.phase == "optimizer" and birth.kind == "optimizer" and self.phase == "optimizer":
            birth.kind = "workspace"
        self.ended(grave.number)


def _hooked() -> bool:
    """Whether what an operation saves for the backward pass goes through hooks in Python."""
    return torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def whole_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's storage."""
    return tensor.untyped_storage().nbytes()


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation's result. A number that lies on the host may meet tensors on any device, except that some operators
    have not heard of it on `meta`: there it is taken along."""
    if func._schema.name == GROUPED and args[0].is_meta and args[0].dtype != torch.bfloat16:
        return _grouped(func, args, kwargs)
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        given = list(tensors(args))
        if not any(t.is_meta for t in given) or not any(_number(t) for t in given):
            raise
        moved = [
            torch.empty((), dtype=a.dtype, device="meta") if isinstance(a, Tensor) and _number(a) else a for a in args
        ]
        return func(*moved, **kwargs)


def _grouped(func: Any, args: Any, kwargs: Any) -> Tensor:
    """Products of groups of rows (experts) in a type that `meta` does not know them in: as in bfloat16, which it does."""
    half = [
        torch.empty_strided(a.shape, a.stride(), dtype=torch.bfloat16, device="meta")
        if isinstance(a, Tensor) and a.dtype.is_floating_point
        else a
        for a in args
    ]
    out = func(*half, **{k: v for k, v in kwargs.items() if k != "out_dtype"})
    return torch.empty_strided(out.shape, out.stride(), dtype=kwargs.get("out_dtype") or args[0].dtype, device="meta")


def _number(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not tensor.dim()


def _held_by_autograd(func: Any, args: Any) -> bool:
    """Whether autograd, unwatched, would have written the result into the first argument: it holds the last reference."""
    left, right = args[0], args[1]
    if torch.is_grad_enabled() or not left.is_meta or not _dense(left):
        return False
    if func is aten.add.Tensor and not (isinstance(right, Tensor) and _alike(left, right)):
        return False
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in _ENGINE_FRAMES:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_name != "_engine_run_backward":
        return False
    return torch._C._storage_Use_Count(left.untyped_storage()._cdata) == LAST_REFERENCE


def _alike(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype


def _dense(tensor: Tensor) -> bool:
    """Whether a tensor fills its range of memory, each element once."""
    return tensor.is_contiguous() or _span(tensor) == tensor.numel()


def _span(tensor: Tensor) -> int:
    """Elements from the first to the last that a tensor reaches."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _on_device(args: Sequence[Any]) -> bool:
    """Whether an operation without results works on the device."""
    first = next(tensors(args[:1]), None)
    return first is not None and first.is_meta


def _signature(things: Any) -> tuple[Any, ...]:
    """What an operation's results depend on. Raises `TypeError` for what cannot be compared."""
    return tuple([
        (t.shape, t.stride(), t.storage_offset(), t.dtype, t.is_meta)
        if isinstance(t, Tensor)
        else _signature(t)
        if isinstance(t, (list, tuple))
        else _constant(t)
        for t in things
    ])  # fmt: skip


def _constant(thing: Any) -> Any:
    if isinstance(thing, (torch.UntypedStorage, torch.TypedStorage)):
        raise TypeError("a storage is not compared by what it holds")
    return type(thing), thing


class _Written:
    """The recipe of an operation that gives back what it wrote to: its first argument, or the one called `name`."""

    def __init__(self, name: str | None) -> None:
        self.name = name


def _written(key: Any, args: Any, kwargs: Any, out: Any) -> _Written | None:
    """That recipe, if the operation left everything about its arguments but their contents as it was."""
    if (key[0], _signature(args), _signature(kwargs.items()) if kwargs else None) != key:
        return None  # it gave one of them another shape
    if args and out is args[0]:
        return _Written(None)
    return next((_Written(name) for name, value in kwargs.items() if out is value and isinstance(out, Tensor)), None)


def _recipe(func: Any, args: Any, out: Any) -> Any:
    """How to make the same results again: shape, strides and dtype of each; False where they are more than that."""
    if any(argument.alias_info is not None for argument in func._schema.arguments):
        return False
    results = list(out) if isinstance(out, (tuple, list)) else [out]
    inside = {t.untyped_storage()._cdata for t in tensors(args)}
    made: list[Any] = []
    for result in results:
        if isinstance(result, Tensor):
            storage = result.untyped_storage()
            if not result.is_meta or storage._cdata in inside or not _fills(result):
                return False
            inside.add(storage._cdata)
            made.append((tuple(result.shape), result.stride(), result.dtype))
        elif result is None or isinstance(result, (int, float, bool)):
            made.append(result)
        else:
            return False
    return type(out), made


def _fills(tensor: Tensor) -> bool:
    """Whether a tensor is all that its storage holds."""
    size = _span(tensor) * tensor.element_size()
    return not tensor.storage_offset() and tensor.untyped_storage().nbytes() == size


def _made(recipe: Any) -> Any:
    kind, parts = recipe
    results = [
        torch.empty_strided(part[0], part[1], dtype=part[2], device="meta") if isinstance(part, tuple) else part
        for part in parts
    ]
    return kind(results) if kind in (tuple, list) else results[0]
