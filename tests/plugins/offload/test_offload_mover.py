"""Tensors come back bit for bit, whatever views they are; what must stay stays; the host does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from memcfg_offload import host
from memcfg_offload.host import Host, Span, Stack, files, memory, refuse_beyond
from memcfg_offload.mover import Handle, Mover
from memcfg_offload.shape import part_of
from memcfg_offload.transfer import Direct
from torch.autograd.graph import saved_tensors_hooks

from memcfg import RunError

pytestmark = pytest.mark.torch

Tensor = torch.Tensor


def mover(min_bytes: int = 0, limit: int = 5, transfer: Any = None, chunk: int = 1 << 12) -> Mover:
    return Mover(Stack(memory(pin=False), chunk), transfer or Direct(), device="cpu", min_bytes=min_bytes, limit=limit)


def views(x: Tensor, w: Tensor) -> Tensor:
    """A square matrix with its transpose, rows that overlap, and a broadcast."""
    h = torch.sin(x @ w)
    return (h @ h.T).pow(2).sum() + (h[2:5] * h[1:4]).sum() + (h[:1].expand(6, 6) * h).sum()


def gradients(made: Mover | None, function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    if made is None:
        function(*leaves).backward()
    else:
        with saved_tensors_hooks(made.pack, made.unpack):
            function(*leaves).backward()
        made.finish()
    return [x.grad for x in leaves if x.grad is not None]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("chunk", [7, 64, 1 << 12], ids=["pieces of 7 bytes", "64", "4096"])
def test_views_of_one_storage_come_back_bit_for_bit(limit: int, chunk: int) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(6, 6), torch.randn(6, 6)
    made = mover(limit=limit, chunk=chunk)
    for moved, plain in zip(gradients(made, views, x, w), gradients(None, views, x, w), strict=True):
        assert torch.equal(moved, plain)
    assert made.tensors > 0


SHAPES: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.randn(5, 7),
    "transposed": lambda: torch.randn(5, 7).T,
    "a slice": lambda: torch.randn(64, 7)[3:6],
    "every other column": lambda: torch.randn(5, 64)[:, ::9],
    "a broadcast row": lambda: torch.randn(1, 7).expand(6, 7),
    "a broadcast slice": lambda: torch.randn(64, 7)[5:6].expand(3, 6, 7),
    "a number": lambda: torch.randn(()),
    "one element": lambda: torch.randn(100)[17:18],
    "bool": lambda: torch.randn(5, 7) > 0,
    "int64": lambda: torch.arange(9).view(3, 3).T,
    "bfloat16": lambda: torch.randn(5, 7).bfloat16()[:, 2:],
    "complex": lambda: torch.randn(4, 4, dtype=torch.complex64).T,
    "odd bytes": lambda: torch.arange(5, dtype=torch.uint8)[1:4],
}


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES.keys())
def test_a_tensor_comes_back_as_it_was(make: Callable[[], Tensor]) -> None:
    torch.manual_seed(0)
    x, made = make(), mover()
    packed = made.pack(x)
    assert isinstance(packed, Handle)
    expected = x.clone()
    made._stash.clear()
    packed.entry.data = None  # nothing is left on the device
    back = made.unpack(packed)
    assert (back.dtype, back.shape) == (x.dtype, x.shape)
    assert torch.equal(back, expected)


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (lambda: torch.zeros(0, 4), "nothing to move"),
        (lambda: torch.zeros(4, 4).to_sparse(), "no storage of its own"),
        (lambda: torch.nn.Parameter(torch.randn(4, 4)), "a parameter"),
        (lambda: torch.nn.Parameter(torch.randn(4, 4)).T, "a view of a parameter"),
        (lambda: torch.randn(4, dtype=torch.complex64).conj(), "a conjugate has its bytes in another form"),
        (lambda: torch.empty(4, device="meta"), "on another device"),
    ],
)
def test_what_stays(make: Callable[[], Tensor], because: str) -> None:
    x = make()
    assert mover().pack(x) is x, because


def test_small_tensors_stay() -> None:
    made = mover(min_bytes=1024)
    small, large = torch.zeros(255), torch.zeros(256)
    assert made.pack(small) is small
    assert isinstance(made.pack(large), Handle)


def test_storages_of_parameters_and_buffers_stay_whatever_looks_at_them() -> None:
    layer, made = torch.nn.Linear(4, 4), mover()
    layer.register_buffer("table", torch.randn(8, 4))
    made.keep(layer)
    for tensor in (layer.weight.detach(), layer.weight.data.T, layer.weight.detach()[1:], layer.table[2:4]):
        assert made.pack(tensor) is tensor
    assert isinstance(made.pack(layer.weight.detach().clone()), Handle)


def test_what_is_saved_several_times_is_moved_once() -> None:
    made, x = mover(), torch.randn(8, 8)
    packed = [made.pack(x), made.pack(x.T), made.pack(x[:, 2:].T), made.pack(x.view(64))]
    assert (made.tensors, made.bytes) == (1, 8 * 8 * 4)
    for handle, expected in zip(packed, (x, x.T, x[:, 2:].T, x.view(64)), strict=True):
        assert torch.equal(made.unpack(handle), expected)


def test_what_was_written_to_in_between_is_moved_again() -> None:
    made, x = mover(), torch.zeros(8)
    first = made.pack(x)
    x.add_(1)
    second = made.pack(x)
    assert made.tensors == 2
    made._stash.clear()
    first.entry.data = second.entry.data = None
    assert torch.equal(made.unpack(first), torch.zeros(8))
    assert torch.equal(made.unpack(second), torch.ones(8))


def test_an_address_that_is_used_again_is_no_view_of_what_lay_there() -> None:
    made, memory_, seen = mover(limit=1), bytearray(64 * 4), set()
    for value in range(20):
        x = torch.frombuffer(memory_, dtype=torch.float32).fill_(value)  # a new storage over the same bytes
        handle = made.pack(x)
        seen.add(x.data_ptr())
        del x
        made._make_room(1 << 40)  # nothing is kept on the device
        assert torch.equal(made.unpack(handle), torch.full((64,), float(value)))
    assert made.tensors == 20
    assert len(seen) == 1, "the test needs an address that is used again"


def test_a_part_of_a_large_storage_is_moved_by_itself() -> None:
    table = torch.randn(1000, 8)
    assert part_of(table[10:12]).data.numel() == 2 * 8 * 4
    assert part_of(table[5:6].expand(50, 8)).data.numel() == 8 * 4
    assert part_of(table[:900]).data.numel() == 1000 * 8 * 4, "most of it: all of it"


def test_a_graph_can_be_gone_through_twice() -> None:
    made, x = mover(), torch.randn(6, 6, requires_grad=True)
    with saved_tensors_hooks(made.pack, made.unpack):
        y = (x @ x.T).exp().sum()
        (first,) = torch.autograd.grad(y, x, retain_graph=True)
        (second,) = torch.autograd.grad(y, x)
    assert torch.equal(first, second)


class Slow:
    """Copies that end only when the computation waits for them."""

    beside = True

    def __init__(self) -> None:
        self.pending: list[list[Any]] = []
        self.most = 0

    def out(self, data: Tensor, span: Span) -> list[Any]:
        return self._later(lambda: Direct().out(data, span))

    def back(self, span: Span, size: int, device: torch.device) -> tuple[Tensor, list[Any]]:
        made = torch.full((size,), 255, dtype=torch.uint8)
        return made, self._later(lambda: made.copy_(Direct().back(span, size, device)[0]))

    def _later(self, work: Callable[[], Any]) -> list[Any]:
        event = [work]
        self.pending.append(event)
        self.most = max(self.most, len(self.pending))
        return event

    def wait(self, event: list[Any]) -> None:
        """One stream: what was begun earlier is through, too."""
        while any(e is event for e in self.pending):
            self.pending.pop(0)[0]()


class Logged(Slow):
    """Beside that, when the computation waits for which copy. `quick`: each copy ends at once."""

    def __init__(self, quick: bool) -> None:
        super().__init__()
        self.quick, self.events, self.log = quick, list[list[Any]](), list[tuple[str, int]]()

    def _later(self, work: Callable[[], Any]) -> list[Any]:
        event = super()._later(work)
        self.events.append(event)
        self.log.append(("begun", len(self.events)))
        if self.quick:
            super().wait(event)
        return event

    def wait(self, event: list[Any]) -> None:
        self.log.append(("waited", 1 + next(i for i, e in enumerate(self.events) if e is event)))
        super().wait(event)


def test_what_is_let_go_and_when_does_not_depend_on_how_fast_copies_are() -> None:
    """The allocator then sees the same order in each run."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(12):
            x = (x @ x).sin()
        return x.sum()

    torch.manual_seed(0)
    x, quick, slow = torch.randn(9, 9), Logged(quick=True), Logged(quick=False)
    for transfer in (quick, slow):
        gradients(mover(limit=3, transfer=transfer), chain, x)
    assert quick.log == slow.log


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_is_in_flight_than_the_stash_allows_and_nothing_is_read_before_it_is_there(limit: int) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(12):
            x = (x @ x).sin()
        return x.sum()

    torch.manual_seed(0)
    x, slow = torch.randn(9, 9), Slow()
    (moved,), (plain,) = gradients(mover(limit=limit, transfer=slow), chain, x), gradients(None, chain, x)
    assert torch.equal(moved, plain)
    assert slow.most <= limit + 1, "what is needed now comes on top of what is prepared"
    assert not slow.pending


def test_300_steps_of_different_shapes_take_no_more_of_the_host_than_the_largest() -> None:
    made = mover(chunk=1 << 10)
    capacities = []
    for step in range(300):
        x = torch.randn(2 + step * 7 % 13, 8)
        gradients(made, lambda x: (x @ x.T).exp().sum(), x)
        capacities.append(made.stack.capacity)
    assert capacities[-1] == capacities[12]
    assert made.stack._used == 0
    assert not made._entries
    assert not made._known


def test_what_a_graph_still_holds_is_not_written_over() -> None:
    made, x = mover(), torch.randn(6, 6, requires_grad=True)
    with saved_tensors_hooks(made.pack, made.unpack):
        kept = (x @ x.T).exp().sum()
    made.finish()
    gradients(made, lambda x: (x @ x).cos().sum(), torch.randn(6, 6))
    (late,) = torch.autograd.grad(kept, x)
    (plain,) = torch.autograd.grad((x @ x.T).exp().sum(), x)
    assert torch.equal(late, plain)


def test_chunks_on_disk(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(6, 6), torch.randn(6, 6)
    made = Mover(Stack(files(str(tmp_path / "new")), 64), Direct(), device="cpu", min_bytes=0, limit=2)
    for moved, plain in zip(gradients(made, views, x, w), gradients(None, views, x, w), strict=True):
        assert torch.equal(moved, plain)
    assert made.stack.capacity > 0
    assert not list((tmp_path / "new").iterdir()), "the files are gone as soon as they are open"


def test_a_folder_that_cannot_be_written_is_an_error_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"`offload\.path`: cannot keep"):
        files(str(tmp_path / "file"))(1 << 10)


def test_too_little_host_memory_is_told_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host", lambda: Host(total=100 << 30, free=8 << 30))
    refuse_beyond(2 << 30)
    with pytest.raises(RunError, match=r"`offload\.activations`: the host has 8\.0 GiB of 100\.0 GiB left"):
        refuse_beyond(4 << 30)
    with pytest.raises(RunError):
        memory(pin=False)(4 << 30)


def test_the_hosts_memory_is_read() -> None:
    found = host.host()
    assert 0 < found.free <= found.total


@pytest.fixture
def mesh() -> Iterator[Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("fake", rank=0, world_size=2, store=_fake_store())
    try:
        yield init_device_mesh("cpu", (2,))
    finally:
        dist.destroy_process_group()


def _fake_store() -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def test_a_distributed_tensor_moves_its_local_part(mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Shard

    whole = DTensor.from_local(torch.randn(3, 4), mesh, [Shard(0)])
    made = mover()
    handle = made.pack(whole)
    assert isinstance(handle, Handle)
    assert made.bytes == 3 * 4 * 4
    back = made.unpack(handle)
    assert isinstance(back, DTensor)
    assert (back.shape, back.placements) == (whole.shape, whole.placements)
    assert torch.equal(back.to_local(), whole.to_local())
