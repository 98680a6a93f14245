"""How fast packing is, beside TRL's `pack_dataset`, in one run: `python benchmarks/packing.py` (needs `pip install trl==1.16.0`).

Documents have lognormal lengths (median 245 tokens) and two columns, as supervised fine-tuning packs them: `input_ids`
and `labels` (int32); from 200,000 documents on the ids alone, to spare memory. What is timed, each several times after a
warm-up, the median taken:

- index: where documents go, from their lengths. TRL has no function for it alone; what it takes to pack lists of booleans,
  which cost next to nothing to copy, in one global call, stands for it.
- end to end: a data set of Arrow chunks in, packed Arrow out, in memory, with each library's defaults (TRL packs 1,000
  documents at a time).
- files: the same with a memory-mapped file in and packed rows that are memory-mapped too: a file out, which the disk
  decides as much as the packing, or (`wrapped`, memcfg) rows that point into the source's file.
- lengths alone: ten million of them.

Rows are compared with those of one global call of TRL's, order included. Extra memory is what Python and numpy allocate
(tracemalloc) for each document, and the most that Arrow holds at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import memcfg_packing
import numpy as np
import pyarrow as pa
from memcfg_packing.placement import place

LENGTH = 2048
STRATEGIES = ("bfd", "bfd_split", "wrapped")
SHARD = 10_000
"""Documents in a record batch of the source."""
MANY = 200_000
"""From so many documents on there is one column, and neither files nor rows are compared."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--lengths", type=int, default=10_000_000, help="lengths that are placed without any tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files lie (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    datasets.disable_progress_bars()
    results = []
    for count in options.documents:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results += measured(count, Path(folder), options.rounds)
    if options.lengths:
        results.append(alone(options.lengths))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def drawn(count: int) -> np.ndarray:
    """Lognormal lengths: median 245, mean 404."""
    return np.random.default_rng(0).lognormal(np.log(245), 1.0, count).astype(np.int64).clip(1)


def measured(count: int, folder: Path, rounds: int) -> list[dict[str, Any]]:
    from trl import pack_dataset

    lengths = drawn(count)
    file = written(folder / "source.arrow", lengths, COLUMNS if count < MANY else COLUMNS[:1])
    held = datasets.Dataset(pa.ipc.open_stream(pa.py_buffer(file.read_bytes())).read_all(), fingerprint="held")
    light = datasets.Dataset(table_of(lengths, pa.bool_()))
    found = []
    for strategy in STRATEGIES:
        result: dict[str, Any] = {"documents": count, "tokens": int(lengths.sum()), "strategy": strategy}
        if strategy != "wrapped":
            every = {"batch_size": count, "keep_in_memory": True, "load_from_cache_file": False}
            result |= compared(
                "index",
                lambda s=strategy: place(lengths, LENGTH, s),
                lambda s=strategy, e=every: pack_dataset(light, LENGTH, s, map_kwargs=e),
                rounds,
            )
        packed: dict[str, datasets.Dataset] = {}
        result |= compared(
            "end_to_end",
            lambda s=strategy, p=packed: p.update(memcfg=memcfg_packing.pack(held, LENGTH, s)),
            lambda s=strategy, p=packed: p.update(
                trl=pack_dataset(held, LENGTH, s, map_kwargs={"load_from_cache_file": False})
            ),
            rounds,
        )
        result["fill"] = {who: filled(rows) for who, rows in packed.items()}
        packed.clear()
        if count < MANY:
            result |= compared(
                "files",
                lambda s=strategy: ours(file, folder, s),
                lambda s=strategy: theirs(file, folder, s),
                rounds,
            )
        result |= memory(file, folder, strategy, lengths)
        result["equal_rows"] = equal(file, folder, strategy) if count < MANY else None
        print(line(result), flush=True)
        found.append(result)
    return found


def compared(name: str, mine: Callable[[], Any], other: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """Median seconds of both, after one round that is not counted; by the clock, and of the processor's time."""
    found: dict[str, Any] = {f"{name}_seconds": {}, f"{name}_cpu": {}}
    for who, call in (("memcfg", mine), ("trl", other)):
        wall, cpu = [], []
        for _ in range(rounds + 1):
            begin, before = time.perf_counter(), time.process_time()
            call()
            wall.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - before)
        skipped = 1 if rounds else 0
        found[f"{name}_seconds"][who] = statistics.median(wall[skipped:])
        found[f"{name}_cpu"][who] = statistics.median(cpu[skipped:])
    for kind in ("seconds", "cpu"):
        found[f"{name}_{kind}_ratio"] = found[f"{name}_{kind}"]["trl"] / found[f"{name}_{kind}"]["memcfg"]
    return found


def ours(file: Path, folder: Path, strategy: str) -> datasets.Dataset:
    """Packed into a file beside the source, which is removed so that the next time is no cache hit."""
    packed = memcfg_packing.pack(opened(file), LENGTH, strategy)
    for made in packed.cache_files:
        Path(made["filename"]).unlink()
    return packed


def theirs(file: Path, folder: Path, strategy: str) -> datasets.Dataset:
    from trl import pack_dataset

    out = folder / "theirs.arrow"
    out.unlink(missing_ok=True)
    return pack_dataset(
        opened(file), LENGTH, strategy, map_kwargs={"cache_file_name": str(out), "load_from_cache_file": False}
    )


def opened(file: Path) -> datasets.Dataset:
    """The source, memory-mapped."""
    return datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(file)), fingerprint=file.stem)


COLUMNS = (("input_ids", pa.int32()), ("labels", pa.int32()))


def written(path: Path, lengths: np.ndarray, columns: tuple[tuple[str, pa.DataType], ...]) -> Path:
    """The source: ids that differ from token to token, and labels."""
    schema = pa.schema([(name, pa.list_(kind)) for name, kind in columns])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        first = 0
        for start in range(0, len(lengths), SHARD):
            part = lengths[start : start + SHARD]
            ids = np.arange(first, first + part.sum()) % 150_000
            first += int(part.sum())
            arrays = [lists(pa.array(ids, kind), part) for _, kind in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return path


def table_of(lengths: np.ndarray, kind: pa.DataType) -> pa.Table:
    values = pa.array(np.zeros(int(lengths.sum()), bool), kind)
    return pa.table({"input_ids": lists(values, lengths)})


def lists(values: pa.Array, lengths: np.ndarray) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def filled(packed: datasets.Dataset) -> float:
    """Share of positions that hold a token."""
    tokens = sum(len(chunk.flatten()) for chunk in packed.data.column("input_ids").chunks)
    return tokens / (len(packed) * LENGTH)


def memory(file: Path, folder: Path, strategy: str, lengths: np.ndarray) -> dict[str, Any]:
    """Bytes for each document that Python and numpy hold at most, and the most that Arrow holds."""
    source, pool = opened(file), pa.default_memory_pool()
    counted = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    packed = memcfg_packing.pack(source, LENGTH, strategy)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    pa.set_memory_pool(pool)
    for made in packed.cache_files:
        Path(made["filename"]).unlink()
    return {"bytes_a_document": (most - before) / len(lengths), "arrow_peak_mib": counted.max_memory() / 2**20}


def equal(file: Path, folder: Path, strategy: str) -> bool:
    """Whether the rows are those of one global call of TRL's, in the same order."""
    from trl import pack_dataset

    source = opened(file)
    whole = {"batch_size": len(source), "keep_in_memory": True, "load_from_cache_file": False}
    expected = pack_dataset(source, LENGTH, strategy, map_kwargs=whole).data.table.combine_chunks()
    found = ours(file, folder, strategy).data.table.combine_chunks()
    return all(
        found.column(name).to_pylist() == expected.column(name).to_pylist() for name in expected.column_names[:1]
    ) and all(
        found.column(name).combine_chunks().flatten().equals(expected.column(name).combine_chunks().flatten())
        for name in expected.column_names
    )


def alone(count: int) -> dict[str, Any]:
    """Seconds to place this many lengths."""
    lengths = drawn(count)
    seconds = {}
    for strategy in STRATEGIES:
        begin = time.perf_counter()
        place(lengths, LENGTH, strategy)
        seconds[strategy] = time.perf_counter() - begin
    print(f"{count:,} lengths alone: " + ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items()), flush=True)
    return {"lengths": count, "seconds": seconds}


def line(result: dict[str, Any]) -> str:
    """One result as text."""
    parts = [f"{result['documents']:>9,} {result['strategy']:<9}"]
    for name in ("index", "end_to_end", "files"):
        if f"{name}_seconds" in result:
            s = result[f"{name}_seconds"]
            parts.append(
                f"{name.replace('_', ' ')} {s['memcfg']:.3f} s, TRL {s['trl']:.2f} s: {result[f'{name}_seconds_ratio']:.1f} times ({result[f'{name}_cpu_ratio']:.1f} by processor time)"
            )
    fill = result["fill"]
    parts.append(f"fill {fill['memcfg']:.4%} (TRL {fill['trl']:.4%})")
    parts.append(f"{result['bytes_a_document']:.0f} bytes a document, Arrow {result['arrow_peak_mib']:.0f} MiB")
    if result["equal_rows"] is not None:
        parts.append("rows equal" if result["equal_rows"] else "ROWS DIFFER")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
