"""The program as its own process: what it imports, how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memcfg.files import conf_root

HEAVY = ("torch", "transformers", "datasets", "accelerate", "peft", "liger_kernel", "numpy", "pyarrow")


@pytest.mark.parametrize(
    "runs",
    [  # in one process each, one after the other: what may import less comes first
        [
            (["resolve", "+packing=bfd_split", "--json"], (*HEAVY, "rich")),
            (["resolve", "+packing=bfd_split"], HEAVY),
        ],
        [
            (["--help"], (*HEAVY, "rich", "hydra", "omegaconf")),
            (["plugins"], (*HEAVY, "hydra", "omegaconf")),
        ],
    ],
)
def test_nothing_heavy_is_imported(python, tmp_path, runs):
    code = (
        "import io, sys\nfrom contextlib import redirect_stdout\nfrom memcfg.cli import main\n"
        f"for words, forbidden in {runs!r}:\n"
        "    with redirect_stdout(io.StringIO()):\n        code = main(words)\n"
        "    print(code, [name for name in forbidden if name in sys.modules])"
    )
    assert python(code, tmp_path) == "0 []\n" * 2


def test_a_reader_that_leaves_is_no_error(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "memcfg", "resolve", "--all"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_results_go_to_stdout_and_errors_to_stderr(real_program, program, tmp_path):
    good = real_program("resolve", "--json", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["ok"] is True
    bad = program("resolve", "packing.strategi=bfd", "+run.max_length=3", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == (
        "error: `packing.strategi`: no such option (command line)\n  did you mean `packing.strategy`?\n"
        "error: `run.max_length`: no such option (command line): `max_length` belongs to\n  `truncation`\n"
        "  did you mean `truncation.max_length`?\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "to", "said"),
    [
        ("--help", "> /dev/full", "no space left on device"),
        ("--help", ">&-", "it is closed"),
        pytest.param("resolve", ">&-", "it is closed", marks=pytest.mark.slow),
        ("resolve --json", "> /dev/full", "no space left on device"),
        ("--cfg job", "> /dev/full", "no space left on device"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(light_python, tmp_path, words, to, said):
    python = sys.executable if to == ">&-" else light_python  # what is closed cannot be handed to another process
    line = f'"{python}" -m memcfg {words} {to}'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"error: cannot write the output: {said}\n")


@pytest.mark.slow
def test_hydras_own_modes(program, tmp_path):
    shown = program("--cfg", "job", "+packing=bfd_split", "--package", "packing.strategy", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "bfd_split\n")
    refused = program("--cfg", "job", "packing.strategi=1", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    path = program("--info", "searchpath", cwd=tmp_path)
    assert path.returncode == 0
    assert str(conf_root()) in path.stdout
    completion = program("--shell-completion", "install=bash", cwd=tmp_path)
    assert "hydra_bash_completion" in completion.stdout
    assert not list(tmp_path.iterdir())


def test_a_plugin_of_one_file(program, memcfg, tmp_path):
    (tmp_path / "memcfg_local.py").write_text(
        "from memcfg import Plugin, Setting\n"
        "plugin = Plugin(name='mine', options=[Setting('mine.size', int, default=3, doc='how large')])\n"
    )
    assert memcfg("resolve", "mine.size=4")[0] == 2
    found = json.loads(program("resolve", "mine.size=4", "--local", "--json", cwd=tmp_path).stdout)
    assert found["options"]["mine.size"]["value"] == 4


def test_a_plugins_command_reads_its_own_words(program, tmp_path):
    (tmp_path / "memcfg_local.py").write_text(
        "from memcfg import Plugin\n\n\ndef zap(words):\n    print(words)\n    return 7\n\n\n"
        "plugin = Plugin(name='mine', commands={'zap': 'memcfg_local:zap'})\n"
    )
    done = program("--local", "zap", "x", "--json", "-z", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "['x', '--json', '-z']\n", "")
