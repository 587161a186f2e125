"""Check names, messages, docstrings, comments and documents against the glossary of CONTRIBUTING.md.

    python -m tests.project.test_language [PATH ...]

prints what breaks it, a line each.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ("graphcore", "ops", "runtime", "models", "array_api", "tools", "benchmarks", "examples", "docs", "tests")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")

# Names that say nothing of what they hold. `left` stands beside `right`.
VAGUE = frozenset({"made", "found", "given", "known", "held", "left", "kept", "told", "said", "asked"})
# Parts of names, as words between underscores and capitals.
PARTS = {
    "mend": "fix", "mended": "fixed", "mends": "fixes", "walls": "sandbox", "rooms": "packages",
    "hunt": "fuzz", "hunter": "fuzzer", "strangers": "third_party", "stranger": "third_party", "foreign": "third_party",
    "carrier": "storage", "carriers": "storage", "carried": "stored", "guard": "workaround", "guards": "workarounds",
    "MOST": "MAX", "DEEPEST": "MAX_DEPTH", "LONGEST": "MAX_LENGTH", "FEWEST": "MIN", "SHOWN": "MAX_SHOWN",
}  # fmt: skip

# Phrases in text, with what to write instead.
PHRASES = {
    r"(?:models?|files?|graphs?|code|names?) (?:of|from) (?:others|strangers)": "third-party, imported",
    r"\bstrangers?\b": "third-party, imported",
    r"\bforeign\b": "third-party, imported",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bwalls\b|\bbehind (?:a )?walls?\b": "sandbox",
    r"\bhunt(?:s|ed|ing|er)?\b": "fuzzing",
    r"\brooms\b": "packages, modules",
    (
        r"(?<!there )(?<!There )\b(?:is|are|was|were) no "
        r"(?!longer\b|more\b|less\b|one\b|(?:small|larg|great|few|lat|earli|bett)er\b|worse\b)"
    ): "is not a",
    r"\b(?:thereof|whereof|therein|wherein)\b": "of it",
    r"\bat hand\b": "available",
    r"\bshall\b": "must",
    r"\bcarrier(?:s)?\b": "storage dtype",
    r"\bguards?\b(?! clause)": "workaround",
}  # fmt: skip
# Public names, which users pass or read.
ALLOWED = frozenset({
    ("graphcore/arrays/resource_limits.py", "said"),
    ("models/streams/running.py", "made"),
    ("runtime/inspection/placement.py", "left"),
    ("runtime/quantizer/report.py", "left"),
})  # fmt: skip
_PHRASES = [(re.compile(pattern), instead) for pattern, instead in PHRASES.items()]
# Starts of docstrings without a noun.
_OPENING = re.compile(r'"""((?:Return|Returns|Yield|Say|Tell|Give) (?:what|whether|how|which)\b)')
_Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module | ast.ClassDef
_SUSPICIOUS = re.compile(rf"\b(?:{'|'.join(VAGUE)})\b|{'|'.join(PARTS)}|{'|'.join(PARTS).title()}")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


class Finding(NamedTuple):
    """A word that the glossary does not have."""

    path: str
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text} -> {self.instead}"


def check_source(path: str, text: str) -> Iterator[Finding]:
    """Yield the findings of a Python file."""
    if _SUSPICIOUS.search(text):
        yield from _names(path, ast.parse(text))
    if any(pattern.search(text) for pattern, _ in _PHRASES):
        for line, string in _texts(text):
            yield from _phrases(path, line, string)
    for match in _OPENING.finditer(text):
        yield Finding(path, text[: match.start()].count("\n") + 1, match[1], "Return True if ..., Return the ...")


def check_document(path: str, text: str) -> Iterator[Finding]:
    """Yield the findings of a Markdown file, the glossary itself left out."""
    glossary = text.partition("## Language\n")[2].partition("\n## ")[0]
    yield from _phrases(path, 1, text.replace(glossary, "\n" * glossary.count("\n")))


def _phrases(path: str, line: int, text: str) -> Iterator[Finding]:
    for pattern, instead in _PHRASES:
        for match in pattern.finditer(text):
            yield Finding(path, line + text[: match.start()].count("\n"), match[0], instead)


def _texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments and strings with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string


def _names(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield vague names that are bound, and parts of names that the glossary replaces."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module | ast.ClassDef):
            bound = dict(_bound(scope))
            for name, line in bound.items():
                if (
                    (name in VAGUE or name.lstrip("_") in VAGUE - {"left"})
                    and (path, name) not in ALLOWED
                    and not (name == "left" and "right" in bound)
                ):
                    yield Finding(path, line, name, "what it holds: result, node, match, cached, remaining")
                words = _WORD.findall(name)
                for word in words if "MAX" not in words else ():
                    if instead := PARTS.get(word) or PARTS.get(word.lower()):
                        yield Finding(path, line, name, f"{instead} for {word}")


def _bound(scope: _Scope) -> Iterator[tuple[str, int]]:
    """Yield the names that a scope binds itself, with their lines."""
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        args = scope.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None:
                yield arg.arg, arg.lineno
    body = scope.body if isinstance(scope.body, list) else [scope.body]
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def files(*names: str) -> list[Path]:
    """Return the Python and Markdown files below names, without what is generated or ignored."""
    paths = []
    for name in names:
        path = ROOT / name
        candidates = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
        paths += [file for file in candidates if "__pycache__" not in file.parts and ROOT / "build" not in file.parents]
    return [path for path in paths if path != Path(__file__)]


def findings(path: Path) -> list[Finding]:
    """Return the findings of a file."""
    name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    return list(check_source(name, text) if path.suffix == ".py" else check_document(name, text))


@pytest.mark.full  # make lint checks the same
@pytest.mark.parametrize("name", [*SOURCE, *DOCUMENTS])
def test_words_are_those_of_the_glossary(name: str) -> None:
    assert [str(finding) for path in files(name) for finding in findings(path)] == []


def test_glossary_of_contributing_has_the_words() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Language")[2]
    assert [name for name in VAGUE if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("def f(made):\n    return made\n", "what it holds"),
        ("for left in x:\n    pass\n", "what it holds"),
        ("_MOST_BYTES = 1\n", "MAX for MOST"),
        ('raise TypeError("x is no array")\n', "is not a"),
        ("# models of others are mended\n", "third-party"),
        ('def f():\n    """Return whether x."""\n', "Return True if"),
    ],
)
def test_words_of_the_left_column_are_found(source: str, instead: str) -> None:
    assert any(instead in finding.instead for finding in check_source("a.py", source))


@pytest.mark.parametrize(
    "source",
    [
        "left, right = x\n",
        "def f(x):\n    result = x\n    return result\n",
        "# there is no kernel, and it is no longer needed\n",
        "# a guard clause\n",
    ],
)
def test_plain_words_pass(source: str) -> None:
    assert [*check_source("a.py", source)] == []


def main() -> int:
    results = [finding for path in files(*(sys.argv[1:] or (*SOURCE, *DOCUMENTS))) for finding in findings(path)]
    print(*results, sep="\n", end="\n" if results else "")
    return int(bool(results))


if __name__ == "__main__":
    sys.exit(main())
