"""Hooks of mkdocs: pages of the reference are made, and links to files of the repository become pages."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # mkdocs loads hooks by their file

_OF_REPOSITORY = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
"""Pages that stand at the top of the repository, and their names on the site."""

_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_BOOST = {"howto/": 4, "reference/ops/": 2, "start/": 2, "concepts/": 2, "development/": 0.5, "source/": 0.1}
"""How high pages stand among the results of the search, by folder; 1 for others."""

_LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml"}


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that no file of docs/ has."""
    from mkdocs.structure.files import File

    from docs.site.reference import pages

    texts = pages()
    for source, page in _OF_REPOSITORY.items():
        texts[page] = _moved((ROOT / source).read_text(encoding="utf-8"), source, page)
    for target in sorted(_linked_sources()):
        texts[f"source/{target}.md"] = source_page(target)
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    return files


def source_page(target: str) -> str:
    """Return the page of a file of the repository, which the search leaves out."""
    language = _LANGUAGES.get(Path(target).suffix, "text")
    text = (ROOT / target).read_text(encoding="utf-8")
    return f"{_NOT_SEARCHED}# {target}\n\n```{language}\n{text}```\n"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Lead links out of docs/ to the pages of those files, and set how high a page stands in the search."""
    path = page.file.src_uri
    boost = next((boost for folder, boost in _BOOST.items() if path.startswith(folder)), None)
    if boost is not None:
        page.meta.setdefault("search", {}).setdefault("boost", boost)
    return markdown if page.file.generated_by else _moved(markdown, f"docs/{path}", path)


def _moved(text: str, source: str, page: str) -> str:
    """Return a page with its links as they are on the site. source: its path in the repository; page: on the site."""

    def link(match: re.Match[str]) -> str:
        target = match.group(2)
        if "://" in target or target.startswith("mailto:"):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path.startswith("docs/"):
            there = path.removeprefix("docs/")
        elif path == "README.md":
            there = "index.md"
        elif path in _OF_REPOSITORY:
            there = _OF_REPOSITORY[path]
        elif (ROOT / path).is_file():
            there = f"source/{path}.md"
        else:  # a folder: the site has no listing
            return f"]({posixpath.relpath('architecture.md', posixpath.dirname(page) or '.')}){''}"
        return f"{match.group(1)}{posixpath.relpath(there, posixpath.dirname(page) or '.')}{match.group(3)}"

    return _LINK.sub(link, text)


def _linked_sources() -> set[str]:
    """Return the files of the repository that pages link to and that are not pages themselves."""
    sources = set()
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in _OF_REPOSITORY)]:
        folder = path.parent.relative_to(ROOT).as_posix()
        for _, target, _ in _LINK.findall(path.read_text(encoding="utf-8")):
            there = posixpath.normpath(posixpath.join(folder, target))
            if (
                "://" not in target
                and not there.startswith("docs/")
                and (ROOT / there).is_file()
                and there not in _OF_REPOSITORY
            ):
                sources.add(there)
    return sources - {"README.md"}
