"""`--json`: one object on stdout from every command, whatever happens."""

import json

import pytest

from memcfg.commands import COMMANDS
from memcfg.report.console import Terminal, results_alone

ANSWERS = [
    ("--version",),
    ("--help",),
    ("resolve",),
    ("explain", "loss.type"),
    ("why-not", "loss.type=nll"),
    ("diff", "", "packing=bfd"),
    ("plugins",),
]


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_an_answer_is_one_object(memcfg, words):
    code, out, err = memcfg(*words, "--json")
    assert (code, err, json.loads(out)["ok"]) == (0, "", True)


REFUSED = {
    "train": ("packing.strategi=x",),
    "run": ("nowhere",),
    "report": ("nowhere",),
    "explain": ("no.such",),
    "diff": ("one",),
    "calibrate": ("x=1",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_wrong_is_one_object_too(memcfg, command):
    """No command prints a fault as text where an object was asked for; nothing else is on stdout or stderr."""
    code, out, err = memcfg(command, *REFUSED.get(command, ("no.such=1",)), "--json")
    assert code in (1, 2)
    assert err == ""
    said = json.loads(out)
    assert said["ok"] is False
    assert said["errors"][0]["text"]


def test_a_sweep_answers_with_its_points(memcfg):
    code, out, _ = memcfg("-m", "packing=bfd,bfd_split", "truncation.max_length=null", "--json")
    assert (code, json.loads(out)["errors"]) == (
        2, [{"key": "-m", "text": "none of the 2 points can be run", "nearest": []}],
    )  # fmt: skip


def test_a_fault_of_the_program_is_an_object(memcfg, monkeypatch):
    import memcfg.commands.resolve as command

    monkeypatch.setattr(command, "main", lambda *_: {}["x"])
    code, out, err = memcfg("resolve", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)["errors"][0]["text"].startswith("unexpected KeyError: 'x'\n")


def test_what_libraries_print_does_not_come_between(capsys):
    terminal = Terminal(json=True)
    with results_alone():
        print("a library speaks")
        terminal.show('{"ok": true}')
    assert capsys.readouterr() == ('{"ok": true}\n', "a library speaks\n")
