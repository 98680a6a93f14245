"""A plan's file: the same plan comes back, and nothing that is not a whole plan is taken for one."""

import json
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from memcfg import UNSET, Decision, Note, Plan, RunError
from memcfg.planfile import digest, dumps, float_text, load, revealed, save, secrets
from memcfg.solver.decision import KINDS, Pending

PLAN = Plan(
    decisions={
        "packing.strategy": Decision("bfd_split", "you", origin="command line", requested="bfd-requeue"),
        "truncation.max_length": Decision(None, "you", origin="conf/x.yaml", requested=None),
        "padding_free.enabled": Decision(
            True, "forced", "packing.free", "rows hold documents", ("packing.strategy",), requested=False
        ),
        "run.learning_rate": Decision(1e-5, "default", role="setting"),
        "optimizer.betas": Decision((0.9, 0.999), "default", role="setting"),
        "sft.completion_only": Decision(UNSET, "unset", role="setting"),
        "device.type": Decision("cpu", "fact", role="fact"),
    },
    active=("core", "packing"),
    providers={"loss.type": "loss"},
    notes=(Note("warning", "packing.free", "overridden", {"key": "padding_free.enabled"}),),
    pending=(Pending("model.type", ("packing.a", "packing.b")),),
    assumed=("device.type",),
    fact_reads=("device.type",),
    versions={"memcfg": "0.1.0"},
)


def test_the_same_plan_comes_back(tmp_path):
    again = load(save(PLAN, tmp_path / "resolved.yaml"))
    assert again["optimizer.betas"] == [0.9, 0.999]  # YAML has no tuples
    expected = {**PLAN.decisions, "optimizer.betas": again.decisions["optimizer.betas"]}
    assert dict(again.decisions) == expected
    assert again["sft.completion_only"] is UNSET
    for field in ("active", "providers", "notes", "pending", "assumed", "fact_reads", "versions"):
        assert getattr(again, field) == getattr(PLAN, field)
    assert digest(again) == digest(PLAN)
    assert dumps(again) == dumps(PLAN)


def test_any_yaml_reader_reads_it_alike(tmp_path):
    """PyYAML takes `1e-05` for text; the file has a dot. No tags, no anchors."""
    text = dumps(PLAN)
    assert "!!" not in text
    options = yaml.safe_load(text)["options"]
    assert options["run.learning_rate"]["value"] == 1e-5
    assert "value" not in options["sft.completion_only"]
    assert options["truncation.max_length"]["value"] is None


def test_a_plan_kept_as_json_is_read_as_well(tmp_path):
    data = yaml.safe_load(dumps(PLAN))
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert load(tmp_path / "plan.json")["run.learning_rate"] == 1e-5


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
texts = st.sampled_from(
    ["1e-5", "1E5", "null", "~", "on", "1_0", "0x1", ".5", "-", "2026-01-01", "1:30", "None", "=", "<<"]
)
values = st.recursive(scalars | texts, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3), max_leaves=6)  # fmt: skip


def alike(a, b) -> bool:
    return type(a) is type(b) and (a == b) and repr(a) == repr(b)


@settings(max_examples=150, deadline=None)
@given(values, values, st.sampled_from(KINDS))
def test_any_value_survives(tmp_path_factory, value, requested, kind):
    plan = Plan({"a.b": Decision(value, kind, requested=requested)})
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    decision = load(save(plan, path)).decisions["a.b"]
    assert alike(decision.value, value)
    assert alike(decision.requested, requested)


@given(st.floats(allow_nan=False))
def test_every_float_is_a_float_to_pyyaml(number):
    read = yaml.safe_load(float_text(number))
    assert type(read) is float
    assert read == number


def test_infinity_and_nan_have_words():
    assert yaml.safe_load(float_text(math.inf)) == math.inf
    assert math.isnan(yaml.safe_load(float_text(math.nan)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no memcfg plan"),
        ("a: 1\n", "is no memcfg plan"),
        ("- 1\n", "is no memcfg plan"),
        ("memcfg_plan: [\n", "is damaged: line 2"),
        ("memcfg_plan: 2\nmemcfg: 9.1.0\n", "has form 2, and this memcfg reads form 1: it was written by memcfg 9.1.0"),
        ("memcfg_plan: 1\n", "is damaged: it has no `options`"),
        ("memcfg_plan: 1\noptions:\n  a: {value: 1}\n", "is damaged: KeyError: 'kind'"),
        ("memcfg_plan: 1\noptions:\n  a: 3\n", "is damaged: TypeError"),
        ("memcfg_plan: 1\noptions:\n  a: {value: 1, kind: odd}\n", "is damaged: ValueError: unknown kind `odd`"),
        ("memcfg_plan: 1\noptions:\n  a: {value: 1, kind: you}\n", "was changed after it was written"),
        ("memcfg_plan: 1\noptions: !!python/object/apply:os.system [echo]\n", "is damaged"),
    ],
)
def test_what_is_no_whole_plan_is_refused(tmp_path, text, said):
    (tmp_path / "resolved.yaml").write_text(text)
    with pytest.raises(RunError) as caught:
        load(tmp_path / "resolved.yaml")
    assert said in str(caught.value)
    assert str(tmp_path / "resolved.yaml") in str(caught.value)


def test_a_truncated_file_is_refused(tmp_path):
    text = dumps(PLAN)
    (tmp_path / "cut.yaml").write_text(text[: len(text) // 2])
    with pytest.raises(RunError, match=r"damaged|changed"):
        load(tmp_path / "cut.yaml")


def test_an_edited_value_is_refused(tmp_path):
    (tmp_path / "edited.yaml").write_text(dumps(PLAN).replace("value: bfd_split", "value: wrapped"))
    with pytest.raises(RunError, match="was changed after it was written"):
        load(tmp_path / "edited.yaml")


def test_a_missing_file_and_binary_are_refused(tmp_path):
    with pytest.raises(RunError, match="cannot read the plan: no such file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RunError, match="is damaged"):
        load(tmp_path / "binary.yaml")


def test_a_secret_is_not_written_and_comes_from_the_environment(tmp_path):
    secret = Decision("8fd3", "you", origin="command line", requested="8fd3", role="setting", secret=True)
    none = Decision(None, "default", role="setting", secret=True)
    plan = Plan({**PLAN.decisions, "data.token": secret, "data.other": none})
    text = save(plan, tmp_path / "resolved.yaml").read_text()
    assert "8fd3" not in text
    again = load(tmp_path / "resolved.yaml")
    assert again["data.token"] == "***"
    assert digest(again) == digest(plan)
    assert secrets(plan) == {"MEMCFG_SECRET_DATA_TOKEN": "8fd3"}
    found = revealed(again, secrets(plan))
    assert (found["data.token"], found["data.other"], dumps(found)) == ("8fd3", None, text)
    with pytest.raises(RunError) as caught:
        revealed(again, {})
    assert str(caught.value) == (
        "`data.token`: a secret is not written to plans\n  put it into `MEMCFG_SECRET_DATA_TOKEN`"
    )
