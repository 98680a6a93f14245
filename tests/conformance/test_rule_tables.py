"""Every row of the rule tables holds of the installed rule base. See `conftest.py` for how rows are read."""

from __future__ import annotations

from typing import Any


def test_row(row: Any, theory: Any, fault: Any) -> None:
    assert fault(theory, row) is None, f"tests/conformance/tables/{row.table}.md:{row.line}"
