"""What mkdocs calls while it builds the site: files of the repository that are pages of it too, and links to them.

Links are written as they work in the repository (`../benchmarks/RESULTS.md`), and lead to the pages on the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {
    "benchmarks/RESULTS.md": "measured.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
}  # fmt: skip
"""Files outside of docs/ and the pages that they become."""
LINK: Final = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the files as pages."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relinked(text, posixpath.dirname(source), "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page's links to files outside of docs/ as links to the pages that they are."""
    if page.file.src_uri in PAGES.values():
        return markdown
    return relinked(
        markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)), posixpath.dirname(page.file.src_uri)
    )


def relinked(text: str, folder: str, place: str) -> str:
    """`folder`: where the text lies in the repository. `place`: the folder of its page on the site."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        page = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if page is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(page, place or '.')}{match[3] or ''}{match[4]}"

    return LINK.sub(link, text)
