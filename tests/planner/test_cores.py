"""Simulations on all cores: the answers of one, and nothing of what goes wrong in the others is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from memcfg.planner import cores
from memcfg.planner.cores import forkable, side_by_side

linux = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes are forked on Linux only")


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cores, in a process that may be forked whatever runs the tests."""
    monkeypatch.setattr(cores, "cores", lambda: 3)
    monkeypatch.setattr(cores, "forkable", lambda: True)


@linux
def test_items_are_shared_out_and_answers_keep_their_places(three: None, tmp_path: Path) -> None:
    def squared(n: int) -> int:
        (tmp_path / f"{os.getpid()}").touch()
        time.sleep(0.05)
        return n * n

    assert side_by_side(squared, range(9)) == {n: n * n for n in range(9)}
    assert len(list(tmp_path.iterdir())) == 3


@linux
def test_what_raised_is_missing_wherever_it_was_run(three: None) -> None:
    def odd_only(n: int) -> int:
        time.sleep(0.02)
        return n // (n % 2)

    assert side_by_side(odd_only, range(9)) == {1: 1, 3: 3, 5: 5, 7: 7}


@linux
def test_a_process_that_dies_takes_only_its_own_answers_along(three: None) -> None:
    here = os.getpid()

    def mortal(n: int) -> int:
        time.sleep(0.05)
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    found = side_by_side(mortal, range(6))
    assert found
    assert all(found[place] == place for place in found)


@linux
def test_an_interrupt_ends_all_of_them(three: None, tmp_path: Path) -> None:
    here = os.getpid()

    def endless(n: int) -> None:
        if os.getpid() == here:
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt
        (tmp_path / f"{os.getpid()}").touch()
        time.sleep(600)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(endless, range(3))
    for other in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(other.name), 0)


@pytest.mark.parametrize(("count", "items"), [(1, range(5)), (4, range(1)), (4, range(0)), (4, range(256))])
def test_nothing_is_begun_where_one_process_does(
    count: int, items: range, three: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "cores", lambda: count)
    assert side_by_side(lambda n: n, items) == {}


def test_a_process_with_threads_is_not_forked() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not forkable()
    finally:
        stop.set()
        thread.join()
