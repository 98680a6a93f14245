"""A folder of throw-away distributions, as pip would have installed them, and a Python that sees it."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest


class Site:
    """`add` writes a distribution with one entry point; `run` runs code that sets `result` and gives it back; `cli` runs
    the command line."""

    def __init__(self, folder: Path, executable: str) -> None:
        self.folder, self.executable = folder, executable

    def seen_by(self, executable: str) -> "Site":
        """The same folder, and another Python."""
        return Site(self.folder, executable)

    def add(self, distribution: str, files: dict[str, str], entry: str, version: str = "1.0") -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[memcfg]\n{entry}\n")

    def python(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMCFG_")}
        return subprocess.run(
            [self.executable, *arguments],
            env={**clean, "PYTHONPATH": str(self.folder), **environment},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def run(self, code: str, cwd: Path | None = None, **environment: str):
        code = textwrap.dedent(code) + "\nimport json; print(json.dumps(result))"
        done = self.python("-c", code, cwd=cwd, **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def cli(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "memcfg", *arguments, **environment)


@pytest.fixture
def site(tmp_path: Path, light_python: str) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    return Site(folder, light_python)


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory, light_python: str) -> Site:
    return Site(tmp_path_factory.mktemp("site"), light_python)
