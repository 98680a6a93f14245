"""The cache folder: rows are made once, whoever wants them, and the folder does not grow without end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

from memcfg import DataError, arrowfile, rows

pytestmark = pytest.mark.torch

FEATURES = datasets.Features({"n": datasets.Value("int64")})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def source(path: Path) -> datasets.Dataset:
    """Rows that lie in a file."""
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    return arrowfile.made(path, batch.schema, lambda: [batch], fingerprint="source")


class Doubling:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: dict[str, list[int]]) -> dict[str, list[int]]:
        self.calls += 1
        return {"n": [2 * n for n in batch["n"]]}


def doubled(given: datasets.Dataset, function: Any, version: int = 1) -> datasets.Dataset:
    return rows.mapped(given, function, features=FEATURES, desc="", depends_on=["doubling", version])


def test_rows_are_made_once_by_what_they_depend_on(folder: Path, tmp_path: Path) -> None:
    double, given = Doubling(), source(tmp_path / "source.arrow")
    first = doubled(given, double)
    assert (first["n"][:], double.calls) == ([2, 4, 6], 1)
    again = doubled(source(tmp_path / "source.arrow"), double)
    assert (again["n"][:], double.calls) == ([2, 4, 6], 1)
    assert [Path(f["filename"]).parent for f in again.cache_files] == [folder], "memory-mapped from the cache folder"
    doubled(given, double, version=2)
    doubled(given.select([2]), double)
    assert double.calls == 3
    assert doubled(given.select([2]), double)["n"][:] == [6]
    assert double.calls == 3


def test_rows_of_a_data_set_in_memory_stay_there(folder: Path) -> None:
    assert doubled(datasets.Dataset.from_dict({"n": [5]}), Doubling())["n"][:] == [10]
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_the_cache_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = source(tmp_path / "source.arrow")
    (tmp_path / "blocked").write_text("no folder")
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "blocked" / "cache"))
    assert doubled(given, Doubling())["n"][:] == [2, 4, 6]
    assert "kept in memory" in caplog.text


def test_of_several_that_want_the_same_one_makes_it(folder: Path) -> None:
    made: list[int] = []

    def work() -> None:
        with arrowfile.locked(folder / "same.arrow"):
            if not made:
                time.sleep(0.05)
                made.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert made == [1]


@pytest.mark.parametrize(("limit", "left"), [(10_000, ["a", "b", "c"]), (250, ["b", "c"]), (0, ["c"])])
def test_what_was_not_read_for_the_longest_time_goes_first(folder: Path, limit: int, left: list[str]) -> None:
    """`c` was just read, so it is in use and stays whatever the limit."""
    folder.mkdir()
    for age, name in enumerate("cba"):
        (folder / f"{name}.arrow").write_bytes(b"0" * 100)
        old = time.time() - age * 2 * arrowfile.IN_USE
        os.utime(folder / f"{name}.arrow", (old, old))
    arrowfile.prune(limit)
    assert sorted(p.stem for p in folder.iterdir()) == left


def test_the_limit_is_read_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "a.arrow").write_bytes(b"0" * 1000)
    os.utime(folder / "a.arrow", (0, 0))
    assert arrowfile.prune() == 0
    monkeypatch.setenv("MEMCFG_CACHE_GIB", "0")
    assert arrowfile.prune() == 1000


def test_reading_a_file_keeps_it(folder: Path) -> None:
    source(folder / "a.arrow")
    os.utime(folder / "a.arrow", (0, 0))
    arrowfile.cached(folder / "a.arrow")
    assert time.time() - (folder / "a.arrow").stat().st_mtime < 60


def killed(batch: dict[str, list[int]]) -> dict[str, list[int]]:
    """As the kernel does to a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return batch


def test_a_process_that_is_killed_while_it_prepares_rows_is_one_message(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "QUIET", 0)
    with pytest.raises(DataError) as raised:
        rows.mapped(
            source(tmp_path / "source.arrow"), killed, features=FEATURES, desc="", depends_on=["killed"], workers=2
        )
    assert str(raised.value) == (
        "`data.num_proc`: one of the 2 processes that prepared the rows was killed, most likely for want of host memory\n"
        "  data.num_proc=1, or null for one process"
    )
    assert not list(folder.glob("**/*.arrow"))
