"""Completion: what a word can become, and the scripts in real shells."""

import os
import shutil
import subprocess

import pytest

from memcfg.commands.completion.candidates import candidates


@pytest.mark.parametrize(
    ("line", "there", "absent"),
    [
        ("", {"resolve", "plan", "packing=", "packing.", "budget=", "lengths"}, {"--json"}),
        ("res", {"resolve"}, {"run"}),
        ("resolve pa", {"packing=", "padding.", "padding_free="}, {"resolve", "packing.strategy="}),
        ("packing.", {"packing.strategy=", "packing.buffer="}, {"packing="}),
        ("packing=", {"packing=bfd", "packing=bfd_split", "packing=none"}, {"packing=packing"}),
        ("packing.strategy=bf", {"packing.strategy=bfd", "packing.strategy=bfd_split"}, {"packing.strategy=wrapped"}),
        ("-m packing=bfd,w", {"packing=bfd,wrapped"}, {"packing=wrapped"}),
        ("resolve +loss=n", {"+loss=nll"}, {"loss=nll"}),
        ("resolve ~pack", {"~packing"}, {"~packing="}),
        ("padding_free.enabled=", {"padding_free.enabled=true", "padding_free.enabled=false"}, set()),
        ("assume.device=rtx", {"assume.device=rtx4090"}, {"assume.device=h100"}),
        ("+budget=rtx4", {"+budget=rtx4090"}, {"+budget=rtx3090"}),
        ("plan budget=", {"budget=24gib", "budget=h100", "budget=null"}, set()),
        ("budget.bytes=24", {"budget.bytes=24gib"}, {"budget.bytes=null"}),
        ("sweep.isolation=", {"sweep.isolation=process", "sweep.isolation=inline"}, set()),
        ("explain loss.", {"loss.type", "loss.kernel"}, {"loss.type="}),
        ("why-not loss.type=", {"loss.type=nll"}, set()),
        ("plugins sh", {"show"}, {"list"}),
        ("plugins show pack", {"packing"}, set()),
        ("completion ", {"bash", "zsh", "fish"}, set()),
        ("resolve --qu", {"--quiet"}, {"--json"}),
        ("--cfg ", {"job", "hydra", "all"}, {"resolve"}),
        ("data.path=da", {"data.path=data.jsonl", "data.path=data/"}, {"data.path=other"}),
        ("data.path=data/", {"data.path=data/a b.jsonl"}, set()),
        ("--config-dir ", {"data/"}, {"data.jsonl"}),
        ("run ", {"data/", "data.jsonl"}, {".hidden"}),
        ("--out da", {"data.jsonl"}, set()),
        ("nothing.like=this", set(), set()),
    ],
)
def test_what_a_word_can_become(tmp_path, monkeypatch, line, there, absent):
    (tmp_path / "data").mkdir()
    for name in ("data.jsonl", "other", ".hidden", "data/a b.jsonl"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    found = [word for word, _ in candidates(line.split(" "))]
    assert there <= set(found)
    assert not absent & set(found)
    assert len(found) == len(set(found))
    last = line.split(" ")[-1]
    assert all(word.startswith(last) for word in found)


def test_candidates_say_what_they_mean():
    assert dict(candidates(["packing.strategy"]))["packing.strategy="] == "how documents share a row"


def test_completing_loads_nothing_heavy(python, tmp_path):
    code = (
        "import sys; from memcfg.cli import main; code = main(['completion', 'reply', '--', 'packing=']); "
        "print(code, sorted({'torch', 'hydra', 'rich', 'transformers', 'pyarrow'} & set(sys.modules)))"
    )
    assert python(code, tmp_path).endswith("packing=wrapped\t\n0 []\n")


def test_words_that_are_completed_are_not_obeyed(memcfg):
    """Flags in the line that is being typed are flags of that line."""
    for flags in (("--json",), ("--quiet", "--no-color"), ("--help",), ("--no-such-flag",)):
        assert memcfg("completion", "reply", "--", "resolve", *flags, "packing=bfd_") == (
            0,
            "packing=bfd_split\t\n",
            "",
        )
    assert memcfg("completion", "reply", "--", "-m", "-", "(")[0] == 0


def test_a_tab_runs_no_code_of_the_folder(memcfg, tmp_path, monkeypatch):
    monkeypatch.delenv("MEMCFG_LOCAL", raising=False)
    (tmp_path / "memcfg_local.py").write_text("raise SystemExit('it ran')")
    assert memcfg("completion", "reply", "--", "--local", "resolve", "packing=bfd_")[1] == "packing=bfd_split\t\n"
    assert "MEMCFG_LOCAL" not in os.environ


def test_the_scripts(memcfg):
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = memcfg("completion", shell)
        assert code == 0
        assert "completion reply -- " in out
    code, out, err = memcfg("completion", "fsh")
    assert (code, out) == (2, "")
    assert err == (
        "error: `completion` takes the name of a shell\n  did you mean `fish`?\n"
        '  write `memcfg completion bash`, `zsh` or `fish`, as in\n  `eval "$(memcfg completion bash)"`\n'
    )


@pytest.fixture
def commands(tmp_path, light_python):
    """A folder with the command `memcfg`, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "memcfg").write_text(f'#!/bin/sh\nexec "{light_python}" -m memcfg "$@"\n')
    (folder / "memcfg").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


BASH = """
eval "$(memcfg completion bash)"
complete_line() {
    COMP_LINE=$1 COMP_POINT=${#1}
    read -r -a COMP_WORDS <<< "${1//=/ = }"
    [[ $1 == *[[:space:]=] ]] && [[ $1 != *= ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    _memcfg
    echo "${COMPREPLY[*]}"
}
complete -p memcfg
complete_line "memcfg resolve packing=bfd_"
complete_line "memcfg resolve packing.strat"
complete_line "memcfg resolve packing="
complete_line "memcfg expl"
complete_line "memcfg -m loss=nll,chu"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes(commands, tmp_path):
    """Words are broken at `=` as bash breaks them; the reply replaces what follows it."""
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH],
        cwd=tmp_path,
        env=commands,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -F _memcfg memcfg",
        "bfd_split",
        "packing.strategy=",
        "bfd bfd-requeue bfd_split none wrapped",
        "explain",
        "nll,chunked_nll",
    ]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes(commands, tmp_path):
    line = "memcfg completion fish | source; complete -C 'memcfg resolve packing=bfd_'; complete -C 'memcfg expl'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", line],
        cwd=tmp_path,
        env=commands,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [found.split("\t")[0] for found in done.stdout.splitlines()] == ["packing=bfd_split", "explain"]


ZSH = """
zmodload zsh/zpty
zpty shell 'zsh -f -i'
zpty -w shell "PS1=; autoload -U compinit; compinit -u -D; eval \\"\\$(memcfg completion zsh)\\"; bindkey '^I' complete-word"
zpty -w shell "echo rea''dy"
while zpty -r shell line; do [[ $line == *ready* ]] && break; done
zpty -w -n shell $'memcfg resolve packing=bfd_s\\t\\C-a''echo ''\\n'
zpty -w shell "echo do''ne"
while zpty -r shell line; do print -r -- $line; [[ $line == *done* ]] && break; done
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes(commands, tmp_path):
    """A shell at a terminal of its own: the word is typed in part, completed, and printed."""
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH], cwd=tmp_path, env=commands, capture_output=True, text=True, timeout=60, check=True
    )
    assert "memcfg resolve packing=bfd_split" in done.stdout
