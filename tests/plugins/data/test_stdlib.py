"""The standard library as a corpus: read as text, in an order of its own, and held out by what rows are about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from memcfg_data import hooks, stdlib
from memcfg_data.holdout import held_out

from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch

SOURCE = '''"""A module that is documented."""


def short():
    """Too short."""
    return 1


class Box:
    """A box that holds one thing."""

    def open(self, *, key: str = "a") -> str:
        """Open the box with a key, and give what is in it to the caller."""
        # the comment stays
        if key:
            return self.thing\f
        return ""


try:
    import other
except ImportError:

    def other():
        """Does what the other would have done, were it here to do it."""
        return "nothing"
'''


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A small library of one package."""
    (tmp_path / "pack" / "test").mkdir(parents=True)
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(SOURCE)
    (tmp_path / "pack" / "test" / "test_pack.py").write_text('"""Never read, since it is a test."""\n')
    (tmp_path / "pack" / "old.py").write_text("print 'no Python of today'\n")
    (tmp_path / "pack" / "latin.py").write_bytes(b'"""caf\xe9 is not UTF-8"""\n')
    (tmp_path / "pydoc_data" / "topics.py").write_text('topics = {"assert": "\\n  The assert statement.\\n"}\n')
    return tmp_path


def pairs_of(folder: Path) -> list[stdlib.Pair]:
    return stdlib.ordered(pair for file in stdlib.files(folder) for pair in stdlib.pairs(file, folder))


def test_what_is_made_of_a_module(library: Path) -> None:
    found = {pair.prompt: pair.completion for pair in pairs_of(library)}
    code = (
        'Complete this function of pack.Box.\n\ndef open(self, *, key: str = "a") -> str:\n'
        '    """Open the box with a key, and give what is in it to the caller."""\n'
    )
    assert found == {
        "What is the Python module pack?\n\n": "A module that is documented.",
        "Document the class pack.Box.\n\n": "A box that holds one thing.",
        "Document the function pack.Box.open(self, *, key: str='a').\n\n":
            "Open the box with a key, and give what is in it to the caller.",
        code: '    # the comment stays\n    if key:\n        return self.thing\f\n    return ""\n',
        "Document the function pack.other().\n\n": "Does what the other would have done, were it here to do it.",
        'Complete this function of pack.\n\ndef other():\n'
        '    """Does what the other would have done, were it here to do it."""\n': "    return \"nothing\"\n",
        "Explain the Python topic assert.\n\n": "The assert statement.\n",
    }  # fmt: skip


def test_nothing_is_imported(library: Path) -> None:
    (library / "pack" / "bomb.py").write_text('"""A module that must not run."""\nraise SystemExit(3)\n')
    before = set(sys.modules)
    assert any(pair.name == "pack.bomb" for pair in pairs_of(library))
    assert set(sys.modules) == before


def test_the_order_depends_on_the_texts_alone(library: Path) -> None:
    files = stdlib.files(library)
    forwards = stdlib.ordered(p for f in files for p in stdlib.pairs(f, library))
    backwards = stdlib.ordered(p for f in reversed(files) for p in stdlib.pairs(f, library))
    assert forwards == backwards


def test_a_completion_occurs_once(library: Path) -> None:
    (library / "pack" / "copy.py").write_text(SOURCE)
    completions = [pair.completion for pair in pairs_of(library)]
    assert len(completions) == len(set(completions))


def test_this_pythons_library_is_a_corpus() -> None:
    folder = stdlib.root()
    found = pairs_of(folder)
    assert len(found) > 8_000
    assert sum(len(pair.prompt) + len(pair.completion) for pair in found) > 4_000_000
    assert {pair.prompt.split()[0] for pair in found} == {"Document", "Complete", "What", "Explain"}


def test_rows_about_one_thing_are_held_out_together() -> None:
    names = [f"name {i % 50}" for i in range(200)]
    chosen = held_out(names, 30)
    assert 26 < chosen.sum() <= 30
    assert not {n for n, c in zip(names, chosen, strict=True) if c} & {
        n for n, c in zip(names, chosen, strict=True) if not c
    }


def test_what_is_held_out_does_not_depend_on_the_order() -> None:
    names = [f"name {i}" for i in range(100)]
    chosen = {n for n, c in zip(names, held_out(names, 10), strict=True) if c}
    again = {n for n, c in zip(names[::-1], held_out(names[::-1], 10), strict=True) if c}
    assert chosen == again
    assert len(chosen) == 10


@pytest.fixture
def small(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small library in place of this Python's."""
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stdlib, "root", lambda: library)
    monkeypatch.setattr(hooks, "FEWEST_PAIRS", 1)
    return library


def test_the_splits_share_no_row_and_lose_none(small: Path) -> None:
    for index in range(40):
        (small / "pack" / f"m{index}.py").write_text(f'"""The module of the number {index}."""\n')
    plan = {"data.source": "stdlib", "data.eval_rows": 5}
    train, held = (hooks.memcfg_load_dataset(plan, split, Ledger()) for split in ("train", "eval"))
    assert (len(train), len(held)) == (42, 5)
    assert not set(train["completion"]) & set(held["completion"])
    assert hooks.memcfg_load_dataset(plan | {"data.eval_rows": None}, "eval", Ledger()) is None
    assert len(hooks.memcfg_load_dataset(plan | {"data.limit": 7}, "train", Ledger())) == 7
    assert len(hooks.memcfg_load_dataset(plan | {"data.limit": 7}, "eval", Ledger())) == 5


def test_the_library_is_read_once(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hooks.stdlib_rows()[:]
    monkeypatch.setattr(stdlib, "pairs", lambda file, folder: pytest.fail("read again"))
    assert hooks.stdlib_rows()[:] == first


def test_without_a_library_the_shipped_pairs_are_used_and_said(
    small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdlib, "root", lambda: small / "nowhere")
    rows = hooks.stdlib_rows()
    assert len(rows) >= 50
    assert all(row["prompt"].strip() and row["completion"].strip() for row in rows)
    assert "cannot be read" in caplog.text
    plan = {"data.source": "stdlib", "data.eval_rows": 256}
    held = hooks.memcfg_load_dataset(plan, "eval", Ledger())
    assert 0 < len(held) < len(hooks.memcfg_load_dataset(plan, "train", Ledger()))
