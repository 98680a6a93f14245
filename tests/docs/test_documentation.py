"""The documentation: every command that it shows is one, every link leads somewhere, every page and plugin has its place."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from memcfg.commands import COMMANDS
from memcfg.commands.arguments import read
from memcfg.commands.sources import option_key
from memcfg.compose.points import Points
from memcfg.compose.request import prepare
from memcfg.errors import ConflictError
from memcfg.registry import Registry, load

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])

COMMAND = re.compile(r"^(?:    |\$ )?(?:torchrun [^#]*-m|python -m) memcfg(?P<words>| .*)$")
REFUSED = "<!-- refused -->"
"""Stands before a block whose command has no plan, and is meant to have none."""
FREE = ("report", "run", "calibrate", "plugins", "lint", "train", "from-trl", "from-axolotl", "from-llamafactory")
"""Commands with words that are no overrides, and `train`, which is no word of the command line."""

TRIED_ELSEWHERE = ("docs/plugin-tutorial.md",)
"""Pages whose requests need a plugin that they write: tests/registry/test_plugin_tutorial.py tries them."""


def shown() -> Iterator[tuple[str, list[str], bool]]:
    """Each command on each page: where, its words, whether it is meant to be refused."""
    for page in PAGES:
        text = re.sub(r" \\\n\s+", " ", page.read_text(encoding="utf-8"))  # a command over several lines
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            found = COMMAND.match(line)
            if found:
                before = [text for text in lines[max(number - 4, 0) : number - 1] if text.startswith("<!--")]
                words = [w.replace("path=...", "path=FOLDER") for w in shlex.split(found["words"], comments=True)]
                yield (
                    f"{page.relative_to(ROOT)}:{number}",
                    [w for w in words if not w.endswith("...")],
                    REFUSED in before,
                )


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load()


@pytest.fixture(scope="module")
def elsewhere(registry: Registry) -> list[str]:
    """A machine with a GPU and every optional package."""
    barred = ("moe.model", "vision.data", "offload.rehearsal", "vllm.for_cpus", "model.attention_dropout")
    facts = [k for k, o in registry.theory.options.items() if o.role == "fact" and o.kind == "bool" and k not in barred]
    return ["assume.device=h100", *(f"assume.{fact}=true" for fact in facts)]


def overrides(words: list[str]) -> list[str]:
    """Of a sweep's values the first."""
    return [re.sub(r"^([\w.+~]+=[^\[{'\"(,]*),.*$", r"\1", w) for w in words if "=" in w or w.startswith("~")]


def resolves(words: list[str], points: Points, elsewhere: list[str]) -> bool:
    """Here, or on a larger machine. Anything but a conflict is raised: an unknown key, a wrong value."""
    for more in ([], elsewhere):
        try:
            points.registry.plan(points.request([*words, *more]))
        except ConflictError:
            continue
        return True
    return False


def test_every_command_is_one_and_resolves(registry: Registry, elsewhere: list[str]) -> None:
    known: dict[tuple[str, ...], bool] = {}
    points = Points(prepare([], registry)[0], registry)  # as a sweep composes: once what all have in common
    for where, words, refused in shown():
        arguments = read(words, raw=tuple(registry.commands()))
        assert arguments.name in (*COMMANDS, *registry.commands()), where
        rest = [w for w in arguments.rest if not w.startswith("--")]
        if (arguments.name in FREE and arguments.command is not None) or where.startswith(TRIED_ELSEWHERE):
            continue
        if arguments.name == "explain":
            assert option_key(rest.pop(0), registry), where
        requests = [overrides(shlex.split(w)) for w in rest] if arguments.name == "diff" else [overrides(rest)]
        for request in map(tuple, requests):
            asked = [w for w in request if not w.startswith(("plan.", "sweep.", "hydra."))]
            if request not in known:
                known[request] = resolves(asked, points, elsewhere)
            assert known[request] is not refused, where
    assert len(known) > 40


def test_every_page_is_in_the_navigation() -> None:
    """`mkdocs build --strict` says so too; this says what to do."""

    class Tagged(yaml.SafeLoader):
        """Reads mkdocs' file without what its tags would do."""

    Tagged.add_multi_constructor("", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=Tagged)["nav"]

    def leaves(part: object) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from leaves(item)

    missing = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - set(leaves(nav))
    assert not missing, f"add to `nav` in mkdocs.yml: {sorted(missing)}"


def test_every_plugin_with_options_has_one_page(registry: Registry) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import rule_sections
    finally:
        sys.path.pop(0)
    shown = [name for page in DOCS.rglob("*.md") for name in rule_sections.asked_for(page.read_text(encoding="utf-8"))]
    owners = [name for name, plugin in rule_sections.first_party(registry).items() if plugin.options]
    assert sorted(shown) == sorted(owners), (
        f"one page of docs/ says `<!-- rules of: NAME -->` for each: {sorted(set(owners) ^ set(shown))}"
    )


LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_of_pages_outside_of_the_site(page: Path) -> None:
    """mkdocs checks those of the site."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    import logging

    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.utils import CountHandler

    counter = CountHandler()
    counter.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(counter)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
        build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(counter)
    assert counter.get_counts() == [], "`mkdocs build --strict` says what is wrong"
    outside = re.compile(r"""<(?:script|img|iframe)[^>]*src=["'](?:https?:)?//|<link[^>]*href=["'](?:https?:)?//""")
    assert not [p.name for p in tmp_path.rglob("*.html") if outside.search(p.read_text(encoding="utf-8"))]
