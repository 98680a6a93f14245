"""The pages that are made from the rules say what the rules say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools/generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_pages_are_up_to_date(tool: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path in tool.stale()]
    assert not stale, "run `python tools/generate_docs.py`"


def test_a_cell_of_each_kind(tool: ModuleType) -> None:
    from memcfg.registry import load

    rules = tool.Rules(load())
    by_name = {str(q): q for q in rules.techniques}
    assert rules.cell("sft", by_name["loss=nll"]).verdict == "works"
    assert rules.cell("sft", by_name["packing=bfd"]) == tool.Cell("forces", ("packing.padding_free.forced",))
    assert rules.cell("dpo", by_name["packing=bfd"]) == tool.Cell("conflict", ("packing.trainer.sft_only",))
    needing = rules.cell("sft", by_name["quantization=nf4"])
    assert (needing.verdict, needing.needs) == ("needs", {"peft.method": "lora"})


def test_old_names_are_no_techniques(tool: ModuleType) -> None:
    from memcfg.registry import load

    names = {str(q) for q in tool.Rules(load()).techniques}
    assert "packing=bfd_split" in names
    assert "packing=bfd-requeue" not in names
    assert "packing=none" not in names
