"""Files appear whole or not at all."""

import os

import pytest

from memcfg.errors import RunError
from memcfg.files import conf_root, write_atomic


def test_text_and_bytes_replace_what_was_there(tmp_path):
    write_atomic(tmp_path / "a.txt", "grün\n")
    assert (tmp_path / "a.txt").read_bytes() == "grün\n".encode()
    write_atomic(tmp_path / "a.txt", b"\x00")
    assert (tmp_path / "a.txt").read_bytes() == b"\x00"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_result_is_as_readable_as_any_other_file(tmp_path):
    (tmp_path / "plain").write_text("")
    written = write_atomic(tmp_path / "a.txt", "")
    assert written.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_atomic(tmp_path / "a.txt", "old")
    monkeypatch.setattr(os, "replace", _full_disk)
    with pytest.raises(RunError, match=r"cannot write `.*a\.txt`: no space left on device"):
        write_atomic(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot write `.*none/a\.txt`: no such file or directory"):
        write_atomic(tmp_path / "none" / "a.txt", "")


def test_the_groups_are_found():
    assert (conf_root() / "packing" / "bfd_split.yaml").is_file()
