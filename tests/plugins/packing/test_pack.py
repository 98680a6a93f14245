"""`memcfg_packing.pack`: whole data sets in, packed rows out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memcfg_packing import pack, packer

from memcfg import DataError

pytestmark = pytest.mark.torch

STRATEGIES = ("bfd", "bfd_split", "wrapped")
IDS = pa.list_(pa.int32())


def to(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def origin(*lengths: int) -> list[list[int]]:
    """Documents whose tokens name where they come from: document 3 is 300, 301, ..."""
    return [[100 * i + k for k in range(n)] for i, n in enumerate(lengths, 1)]


def table(documents: list[list[int]], kind: pa.DataType = IDS) -> pa.Table:
    return pa.table({"input_ids": pa.array(documents, kind)})


def hf(documents: list[list[int]], **columns: list[Any]) -> datasets.Dataset:
    return datasets.Dataset(pa.table({"input_ids": pa.array(documents, IDS), **columns}))


def lists_of(packed: pa.Table | datasets.Dataset) -> dict[str, list[list[int]]]:
    """The columns as Python lists."""
    table = packed if isinstance(packed, pa.Table) else packed.data.table
    found: dict[str, list[list[int]]] = table.to_pydict()
    return found


VECTORS = [
    # strategy, row length, documents, rows, seq_lengths (None: none are kept), because
    ("bfd", 4, [to(1, 3), to(4, 7), [8]], [to(4, 7), [1, 2, 3, 8]], [[4], [3, 1]], "longest first"),
    ("bfd", 4, [to(1, 5), [6, 7], to(8, 11), [12]], [to(1, 4), to(8, 11), [6, 7, 12]], [[4], [4], [2, 1]],
     "a document that is too long loses its tail"),
    ("bfd_split", 4, [to(1, 5), [6, 7], to(8, 11), [12]], [to(1, 4), to(8, 11), [6, 7, 5, 12]],
     [[4], [4], [2, 1, 1]], "the tail of a document is a piece of its own"),
    ("bfd_split", 5, [to(1, 5), [6], to(7, 10), [11, 12, 13]], [to(1, 5), [7, 8, 9, 10, 6], [11, 12, 13]],
     [[5], [4, 1], [3]], "one that fits exactly is not split"),
    ("bfd_split", 4, [[1, 2], [], [3, 4, 5], [], [6]], [[3, 4, 5, 6], [1, 2]], [[3, 1], [2]],
     "empty documents vanish"),
    ("bfd", 4, [to(1, 5), [6, 7], to(8, 10), [11]], [to(1, 4), [8, 9, 10, 11], [6, 7]], [[4], [3, 1], [2]],
     "one goes into the space of one"),
    ("bfd_split", 4, [to(1, 5), [6, 7], to(8, 10), [11]], [to(1, 4), [8, 9, 10, 5], [6, 7, 11]],
     [[4], [3, 1], [2, 1]], "of two pieces of one, the one that came first goes first"),
    ("bfd", 5, [[1] * 3, [2] * 3, [3] * 3, [4], [5], [6], [7]], [[1, 1, 1, 4, 5], [2, 2, 2, 6, 7], [3, 3, 3]],
     [[3, 1, 1], [3, 1, 1], [3]], "equal spaces: first come, first filled"),
    ("bfd", 8, origin(6, 5, 3, 2), [origin(6)[0] + [400, 401], to(200, 204) + to(300, 302)], [[6, 2], [5, 3]],
     "best fit"),
    ("bfd", 5, origin(6, 2, 11, 3), [to(100, 104), to(300, 304), [400, 401, 402, 200, 201]], [[5], [5], [3, 2]],
     "two documents that are too long"),
    ("bfd_split", 5, origin(6, 2, 11, 3),
     [to(100, 104), to(300, 304), to(305, 309), [400, 401, 402, 200, 201], [105, 310]],
     [[5], [5], [5], [3, 2], [1, 1]], "a document in three pieces"),
    ("wrapped", 5, origin(6, 2, 11, 3),
     [to(100, 104), [105, 200, 201, 300, 301], to(302, 306), [*to(307, 310), 400], [401, 402]], None, "one stream"),
    ("wrapped", 3, [[1, 2, 3], to(4, 7), [8]], [[1, 2, 3], [4, 5, 6], [7, 8]], None, "the last row is short"),
    ("bfd", 4, [[], []], [], [], "nothing but empty documents"),
    ("bfd_split", 4, [], [], [], "no documents"),
    ("wrapped", 4, [[], []], [], None, "nothing to stream"),
    ("bfd", 1, [[1, 2], [3]], [[1], [3]], [[1], [1]], "rows of one token"),
]  # fmt: skip


@pytest.mark.parametrize("make", [table, hf], ids=["table", "dataset"])
@pytest.mark.parametrize(("strategy", "length", "documents", "rows", "sizes", "because"), VECTORS)
def test_rows(make: Any, strategy: str, length: int, documents: Any, rows: Any, sizes: Any, because: str) -> None:
    packed = lists_of(pack(make(documents), length, strategy))
    assert packed.get("input_ids", []) == rows, because
    assert packed.get("seq_lengths") == sizes, because


def test_split_cuts_two_columns_at_the_same_places() -> None:
    documents = origin(6, 3, 3, 4)
    other = [[-token for token in row] for row in documents]
    packed = pack(hf(documents, labels=pa.array(other, pa.list_(pa.int64()))), 4, "bfd_split")
    assert [len(row) for row in packed["input_ids"]] == [4, 4, 3, 3, 2]
    assert packed["labels"][:] == [[-token for token in row] for row in packed["input_ids"]]


MASKS = [
    # strategy, row length, tokens, mask, because
    ("bfd", 5, [100, 101, 102, 200, 201], [0, 0, 1, 0, 1], "masks lie with their tokens"),
    ("bfd_split", 5, [100, 101, 102, 200, 201], [0, 0, 1, 0, 1], "nothing had to be split"),
    ("wrapped", 5, [100, 101, 102, 200, 201], [0, 0, 1, 0, 1], "one block holds both"),
    ("bfd", 2, [100, 101, 200, 201], [0, 0, 0, 1], "a mask is cut with its tokens"),
    ("wrapped", 2, [100, 101, 102, 200, 201], [0, 0, 1, 0, 1], "blocks of two"),
    ("bfd_split", 2, [100, 101, 200, 201, 102], [0, 0, 0, 1, 1], "the rest of the first comes last"),
]


@pytest.mark.parametrize(("strategy", "length", "tokens", "mask", "because"), MASKS)
@pytest.mark.parametrize("kind", [pa.int8(), pa.bool_(), pa.float32()])
def test_masks_of_any_type_are_cut_like_tokens(
    strategy: str, length: int, tokens: list[int], mask: list[int], because: str, kind: pa.DataType
) -> None:
    masks = pa.array([[0, 0, 1], [0, 1]], pa.list_(pa.int8())).cast(pa.list_(kind))
    packed = pack(hf(origin(3, 2), completion_mask=masks), length, strategy)
    assert [t for row in packed["input_ids"] for t in row] == tokens, because
    assert [m for row in packed["completion_mask"] for m in row] == mask, because
    assert packed.data.schema.field("completion_mask").type.value_type == kind


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [pa.list_(pa.int16()), pa.large_list(pa.int64()), pa.list_(pa.uint32())])
def test_the_type_of_a_column_is_kept(strategy: str, kind: pa.DataType) -> None:
    packed = pack(table(origin(3, 2, 4), kind), 4, strategy)
    assert packed.schema.field("input_ids").type == kind


def test_lists_of_a_fixed_size_are_packed_too() -> None:
    packed = pack(table([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)), 4, "bfd")
    assert packed["input_ids"].to_pylist() == [[1, 2, 3, 4], [5, 6]]


def test_null_lists_are_empty_documents() -> None:
    array = pa.array([[1, 2], None, [3], None], IDS)
    for strategy in STRATEGIES:
        assert pack(pa.table({"input_ids": array}), 3, strategy)["input_ids"].to_pylist() == [[1, 2, 3]]


def test_values_that_hold_nulls_keep_them() -> None:
    chunks = pa.chunked_array([pa.array([[1, None]], IDS), pa.array([[3]], IDS)])
    assert pack(pa.table({"a": chunks}), 3, "bfd")["a"].to_pylist() == [[1, None, 3]]


SHAPES: dict[str, Any] = {
    "slice": lambda t: t.slice(2, 5),
    "slice of a slice": lambda t: t.slice(1).slice(1, 5),
    "chunks": lambda t: pa.concat_tables([t.slice(i, 1).combine_chunks() for i in range(2, 7)]),
    "sliced chunks": lambda t: pa.concat_tables([t.slice(2, 2), t.slice(4, 0), t.slice(4, 3)]),
    "columns chunked differently": lambda t: pa.table({
        "input_ids": pa.concat_tables([t.slice(2, 1), t.slice(3, 4)])["input_ids"], "labels": t.slice(2, 5)["labels"],
    }),
    "dataset": lambda t: datasets.Dataset(t.slice(2, 5)),
    "selection": lambda t: datasets.Dataset(t).select([2, 3, 4, 5, 6]),
    "selection out of order": lambda t: datasets.Dataset(
        pa.table({name: t[name].take(pa.array([6, 2, 5, 3, 4])) for name in t.column_names})
    ).select([1, 3, 4, 2, 0]),
    "selection of chunks": lambda t: datasets.Dataset(
        pa.concat_tables([t.slice(4, 3), t.slice(0, 4)])
    ).select([5, 6, 0, 1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("boundaries", [True, False])
def test_how_a_table_lies_in_memory_changes_nothing(shape: str, strategy: str, boundaries: bool) -> None:
    documents = origin(2, 9, 3, 5, 1, 4, 7, 8)
    ids = pa.array(documents, IDS)
    whole = pa.table({"input_ids": ids, "labels": ids.cast(pa.list_(pa.int64()))})
    plain = pack(table(documents[2:7]), 5, strategy, boundaries=boundaries).to_pydict()
    packed = lists_of(pack(SHAPES[shape](whole), 5, strategy, boundaries=boundaries))
    assert packed.pop("labels") == packed["input_ids"]
    assert packed == plain


@pytest.mark.parametrize(("documents", "batch"), [([2] * 7, 3), ([4] * 2500, 1000)])
def test_wrapped_repeats_nothing_in_a_table_of_many_chunks(documents: list[int], batch: int) -> None:
    stream = origin(*documents)
    chunks = [pa.array(stream[i : i + batch], IDS) for i in range(0, len(stream), batch)]
    packed = pack(pa.table({"input_ids": pa.chunked_array(chunks)}), 2 * documents[0], "wrapped")
    rows = packed["input_ids"].to_pylist()
    assert [t for row in rows for t in row] == [t for row in stream for t in row]
    assert {len(row) for row in rows[:-1]} == {2 * documents[0]}


def test_wrapped_follows_what_was_done_to_the_data_set() -> None:
    source = hf(origin(*[3] * 40)).shuffle(seed=1).select(range(5, 35)).train_test_split(test_size=0.3, seed=2)["train"]
    packed = pack(source, 4, "wrapped")
    assert [t for row in packed["input_ids"] for t in row] == [t for row in source["input_ids"] for t in row]


def test_wrapped_with_boundaries_knows_where_documents_begin_in_each_row() -> None:
    packed = pack(table(origin(6, 2, 11, 3)), 5, "wrapped", boundaries=True)
    assert packed["seq_lengths"].to_pylist() == [[5], [1, 2, 2], [5], [4, 1], [2]]


def test_bfd_keeps_the_end_where_asked() -> None:
    packed = pack(table(origin(6, 2)), 4, "bfd", keep="end")
    assert packed["input_ids"].to_pylist() == [[102, 103, 104, 105], [200, 201]]


@pytest.mark.parametrize("limits", [(5, 1000), (1000, 2), (1, 1)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_copying_in_many_shards_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], strategy: str
) -> None:
    source = table(origin(2, 9, 3, 5, 1, 4, 7, 8))
    whole = pack(source, 6, strategy, boundaries=True).to_pydict()
    monkeypatch.setattr(packer, "SHARD", limits[0])
    monkeypatch.setattr(packer, "PIECES", limits[1])
    assert pack(source, 6, strategy, boundaries=True).to_pydict() == whole


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=25),
    st.integers(1, 10),
    st.sampled_from(STRATEGIES),
    st.lists(st.integers(0, 25), max_size=3),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_rows_hold_what_the_definition_says(
    documents: list[list[int]], length: int, strategy: str, cuts: list[int], boundaries: bool
) -> None:
    edges = sorted({0, len(documents), *(c for c in cuts if c < len(documents))})
    parts = [pa.array(documents[a:b], IDS) for a, b in pairwise(edges)]
    source = pa.table({"input_ids": pa.chunked_array(parts, IDS)})
    packed = pack(source, length, strategy, boundaries=boundaries)
    rows = packed["input_ids"].to_pylist()
    kept = [d[:length] if strategy == "bfd" else d for d in documents]
    assert sorted(t for row in rows for t in row) == sorted(t for d in kept for t in d)
    assert all(0 < len(row) <= length for row in rows)
    if boundaries:
        assert [sum(sizes) for sizes in packed["seq_lengths"].to_pylist()] == [len(row) for row in rows]
    if strategy == "wrapped":
        assert [t for row in rows for t in row] == [t for d in documents for t in d]


def test_the_format_of_a_data_set_is_kept() -> None:
    packed = pack(hf(origin(3, 2)).with_format("numpy"), 5, "bfd")
    assert packed.format["type"] == "numpy"
    assert isinstance(packed[0]["input_ids"], np.ndarray)
    assert packed[0]["seq_lengths"].tolist() == [3, 2]


def test_a_data_set_in_a_file_is_packed_into_a_file_once(tmp_path: Path) -> None:
    hf(origin(3, 2, 9, 4)).save_to_disk(tmp_path)
    source = datasets.load_from_disk(tmp_path)
    packed = pack(source, 4, "bfd_split")
    files = sorted(tmp_path.glob("packed-*.arrow"))
    written = files[0].stat().st_ino
    again = pack(source, 4, "bfd_split")
    assert [f["filename"] for f in packed.cache_files] == [str(files[0])]
    assert again[:] == packed[:] == pack(hf(origin(3, 2, 9, 4)), 4, "bfd_split")[:]
    assert files[0].stat().st_ino == written
    assert again._fingerprint == packed._fingerprint != pack(source, 5, "bfd_split")._fingerprint
    assert not list(tmp_path.glob(".packed*"))


@pytest.mark.parametrize("boundaries", [False, True])
def test_wrapped_points_into_the_file_of_its_source(tmp_path: Path, boundaries: bool) -> None:
    """Rows that lie one after another in the file already are not written a second time."""
    hf(origin(3, 2, 9, 4)).save_to_disk(tmp_path)
    source = datasets.load_from_disk(tmp_path)
    packed = pack(source, 4, "wrapped", boundaries=boundaries)
    assert packed.cache_files == []
    assert not list(tmp_path.glob("packed-*"))
    places = [t.data.column("input_ids").chunk(0).values.buffers()[1].address for t in (packed, source)]
    assert places[0] == places[1]
    assert packed[:] == pack(hf(origin(3, 2, 9, 4)), 4, "wrapped", boundaries=boundaries)[:]
    assert (
        packed._fingerprint == pack(datasets.load_from_disk(tmp_path), 4, "wrapped", boundaries=boundaries)._fingerprint
    )


def test_wrapped_in_another_order_is_written(tmp_path: Path) -> None:
    hf(origin(3, 2, 9, 4)).save_to_disk(tmp_path)
    packed = pack(datasets.load_from_disk(tmp_path).select([2, 0]), 4, "wrapped")
    assert len(packed.cache_files) == 1
    assert [t for row in packed["input_ids"] for t in row] == [*range(300, 309), *range(100, 103)]


def test_a_damaged_file_is_packed_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hf(origin(3, 2)).save_to_disk(tmp_path)
    expected = pack(datasets.load_from_disk(tmp_path), 4, "bfd")[:]
    (file,) = tmp_path.glob("packed-*.arrow")
    file.write_bytes(b"half of it")
    assert pack(datasets.load_from_disk(tmp_path), 4, "bfd")[:] == expected
    assert "made anew" in caplog.text


REFUSED = [
    ({"input_ids": [[1], [2]], "text": ["a", "b"]}, "`text`", "a column that is no list"),
    ({"input_ids": [[1, 2], [3]], "labels": [[1, 2], [3, 4]]}, "row 1 has 1 values", "columns that do not go together"),
    ({"input_ids": [[1]], "seq_lengths": [[1]]}, "packed already", "a second packing"),
]


@pytest.mark.parametrize(("columns", "text", "because"), REFUSED)
def test_what_cannot_be_packed_is_refused(columns: dict[str, Any], text: str, because: str) -> None:
    with pytest.raises(DataError, match=text):
        pack(datasets.Dataset.from_dict(columns), 4, "bfd")


def test_no_columns_are_refused() -> None:
    with pytest.raises(DataError, match="no column"):
        pack(pa.table({}), 4, "bfd")


def test_a_stream_is_refused() -> None:
    stream = hf(origin(3, 2)).to_iterable_dataset()
    with pytest.raises(TypeError, match="not a `IterableDataset`"):
        pack(stream, 4, "bfd")


def test_another_version_of_the_code_packs_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hf(origin(3, 2)).save_to_disk(tmp_path)
    first = pack(datasets.load_from_disk(tmp_path), 4, "bfd")
    monkeypatch.setattr(packer, "VERSION", packer.VERSION + 1)
    second = pack(datasets.load_from_disk(tmp_path), 4, "bfd")
    assert first._fingerprint != second._fingerprint
    assert len(list(tmp_path.glob("packed-*.arrow"))) == 2
