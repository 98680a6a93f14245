"""Secrets of a command line are told by their names."""

import pytest

from memcfg.redact import redacted


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("data.token=hf_abc", "data.token=***"),
        ("+data.token='hf abc'", "+data.token=***"),
        ("data.token=hf_a,hf_b", "data.token=***"),
        ("mine.api_key=k", "mine.api_key=***"),
        ("mine.hub_token=k", "mine.hub_token=***"),
        ("mine.PASSWORD=k", "mine.PASSWORD=***"),
        ("data={token: hf_abc, path: x}", "data={token: ***, path: x}"),
        ("batching.tokens=4096", "batching.tokens=4096"),
        ("sft.eos_token=</s>", "sft.eos_token=</s>"),
        ("run.dir=token=3", "run.dir=token=3"),
        ("generation.max_new_tokens=8", "generation.max_new_tokens=8"),
        ("data.path=secretary.jsonl", "data.path=secretary.jsonl"),
    ],
)
def test_a_value_is_hidden_where_its_name_says_so(word, shown):
    assert redacted([word]) == (shown,)
