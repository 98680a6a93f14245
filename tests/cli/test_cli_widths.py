"""What is printed fits the terminal: eighty columns, or forty."""

import re

import pytest

COMMANDS = [
    ("--help",),
    ("plugins",),
    ("resolve", "packing=bfd_split", "trainer=dpo"),
    ("resolve", "--all"),
    ("resolve", "packing=bfd", "truncation.max_length=null"),
    ("resolve", "packing.strategi=bfd", "run.max_length=3", "lr=1"),
    ("explain", "batch.layout", "packing=bfd_split"),
    ("why-not", "loss.type=nll", "trainer=sft"),
    ("why-not", "truncation.max_length=null", "packing=bfd"),
    ("diff", "packing=bfd", "packing=none"),
    ("resolv",),
    ("run", "nowhere"),
    ("report", "nowhere"),
]


@pytest.mark.parametrize("columns", [80, 40])
def test_what_commands_print_fits(memcfg, too_wide, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in COMMANDS:
        _, out, err = memcfg(*words)
        assert out + err, words
        assert too_wide(out + err, columns) == [], words


def test_a_narrow_table_is_a_paragraph_for_each_row(memcfg, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = memcfg("resolve", "packing=bfd_split")[1]
    assert "packing.strategy\n  value: bfd_split\n  why: you: command line,\n    packing/bfd_split.yaml\n" in text


def test_colour_is_there_where_it_is_wanted(memcfg, monkeypatch):
    assert "\033" not in "".join(memcfg("resolve")[1:])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\033[" in memcfg("resolve")[1]
    assert "\033[1;31merror:\033[0m" in memcfg("resolve", "x=1")[2]
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("resolve",), ("resolve", "x=1")):
        assert "\033" not in "".join(memcfg(*words)[1:])
    monkeypatch.delenv("NO_COLOR")
    assert "\033" not in memcfg("resolve", "--no-color")[1]


def test_verbose_says_more_and_quiet_less(memcfg):
    assert memcfg("resolve")[2] == ""
    assert re.fullmatch(r"took \d+\.\d\d s\n", memcfg("resolve", "-v")[2])
    assert memcfg("resolve", "-v", "-q")[2] == ""
