"""Facts of the plugins whose technique needs a package, a model or rows of a kind: probed without loading any of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import memcfg_liger.facts
import memcfg_moe.facts
import memcfg_offload.facts
import memcfg_vision.facts
import memcfg_vllm.facts
import pytest

from memcfg import PENDING


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "mixtral", "num_local_experts": 8}, True),
        ({"model_type": "qwen3_moe", "num_experts": 128}, True),
        ({"model_type": "deepseek_v3", "n_routed_experts": 256}, True),
        ({"model_type": "some", "num_experts": 1}, False),
        ({"model_type": "some", "num_experts": None}, False),
        ({"model_type": "some", "num_experts": "eight"}, False),
        ({"model_type": "llama4", "text_config": {"num_local_experts": 16}}, True),
    ],
)
def test_experts_are_read_off_the_configuration(tmp_path: Path, config: dict[str, object], expected: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert memcfg_moe.facts.model({"model.source": "hub", "model.path": str(tmp_path)}) is expected


def test_experts_of_a_hub_name_are_pending() -> None:
    assert memcfg_moe.facts.model({"model.source": "hub", "model.path": "organisation/name"}) is PENDING
    assert memcfg_moe.facts.model({}) is False


@pytest.mark.parametrize("text", ["{", "", "[1, 2]", "3", "null", '"text"'])
def test_a_broken_configuration_is_pending(text: str, tmp_path: Path) -> None:
    """The model plugin says what is wrong with the folder; a rule that reads the fact waits until then."""
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert memcfg_moe.facts.model({"model.source": "hub", "model.path": str(tmp_path)}) is PENDING


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"text": "a"}', False),
        ('{"prompt": "a", "images": []}', True),
        ('{"image": "x"}', True),
        ("[1]", False),
        ("{", False),
    ],
)
def test_images_are_seen_at_the_head_of_the_file(tmp_path: Path, line: str, expected: bool) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    assert memcfg_vision.facts.data({"data.source": "jsonl", "data.path": str(file)}) is expected


def test_images_of_other_sources() -> None:
    assert memcfg_vision.facts.data({}) is False
    assert memcfg_vision.facts.data({"data.source": "jsonl", "data.path": "missing.jsonl"}) is False
    assert memcfg_vision.facts.data({"data.source": "hub"}) is PENDING


def test_rehearsal_is_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMCFG_OFFLOAD_REHEARSAL", raising=False)
    assert memcfg_offload.facts.rehearsal({}) is False
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    assert memcfg_offload.facts.rehearsal({}) is True


def test_packages_are_found_without_importing_them() -> None:
    code = (
        "import sys, memcfg_liger.facts as l, memcfg_vllm.facts as v, memcfg_quantization.facts as q, "
        "memcfg_distributed.facts as d\n"
        "print(l.installed({}), v.installed({}), q.installed({}), d.deepspeed({}))\n"
        "print(sorted({'torch', 'liger_kernel', 'vllm', 'bitsandbytes', 'deepspeed'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert set(said[0].split()) <= {"True", "False"}
    assert said[1] == "[]"


def test_a_package_is_told_from_one_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    assert memcfg_vllm.facts.installed({}) is False
    assert memcfg_liger.facts.installed({}) is False


def test_columns_are_read_where_the_probe_could_not_tell(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"text": ["a"], "image": [b"x"]}), tmp_path / "rows" / "0.parquet")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "plain.parquet")
    images = {"data.source": "parquet", "data.path": str(tmp_path / "rows")}
    columns = memcfg_vision.facts.columns
    assert memcfg_vision.facts.data(images) is PENDING
    assert columns(images) is True
    assert columns({**images, "data.path": str(tmp_path / "rows" / "*.parquet")}) is True
    assert columns({**images, "data.path": str(tmp_path / "plain.parquet")}) is False
    assert columns({**images, "data.path": str(tmp_path / "none.parquet")}) is PENDING
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_info.json").write_text(json.dumps({"features": {"images": {}}}))
    assert columns({"data.source": "hub", "data.path": str(tmp_path / "saved")}) is True
    assert columns({"data.source": "jsonl", "data.path": "x"}) is PENDING
