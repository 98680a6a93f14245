"""The wheel holds everything: it is built, installed beside the packages at hand, and resolves from another folder."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.slow
def test_a_wheel_install_finds_groups_and_plugins(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(tmp_path.glob("memcfg-*.whl"))
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)

    # `-P` and PYTHONPATH put the wheel's copy before the editable one; its own file says which was used.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    env = {**os.environ, "PYTHONPATH": str(site)}
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import memcfg; print(memcfg.__file__)"],
        cwd=elsewhere, env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert pathlib.Path(where.stdout.strip()).is_relative_to(site)

    done = subprocess.run(
        [sys.executable, "-P", "-m", "memcfg", "resolve", "+packing=bfd_split", "--json"],
        cwd=elsewhere, env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert '"bfd_split"' in done.stdout

    script = [sys.executable, "-P", "-m", "memcfg", "completion", "bash"]
    assert "complete -F _memcfg memcfg" in subprocess.run(
        script, cwd=elsewhere, env=env, check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    assert (site / "memcfg" / "report" / "pages" / "page.css").is_file(), "what a page is made of is in the wheel"
    assert (site / "memcfg" / "report" / "pages" / "page.js").is_file()
