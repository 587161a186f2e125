"""Docstrings as Markdown: the sentences about parameters, results and errors become a list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def markdown(text: str, parameters: Sequence[str]) -> str:
    """Return a docstring as Markdown.

    text: without its indentation. parameters: the names that a sentence may begin with, as in "x: any shape." A list
    has an item for each, and one each for what is returned and raised; paragraphs that have none, and code, stay.
    """
    return "\n\n".join("\n".join(_block(block, parameters)) for block in _blocks(text))


def _blocks(text: str) -> Iterator[str]:
    """Yield the paragraphs; lines of examples after `>>>` and indented ones are paragraphs of their own."""
    yield from (block for block in re.split(r"\n\s*\n", text) if block.strip())


def _block(block: str, parameters: Sequence[str]) -> Iterator[str]:
    if block.startswith("    "):
        yield f"```python\n{_unindented(block)}\n```"
        return
    if block.startswith((">>>", "|", "- ", "* ", "```")):
        yield f"```pycon\n{block}\n```" if block.startswith(">>>") else block
        return
    rest: list[str] = []
    items: list[str] = []
    for sentence in _SENTENCE.split(" ".join(block.split())):
        names, colon, _ = sentence.partition(": ")
        listed = [name.strip(" *`") for name in names.split(",")]
        if colon and listed and all(name in parameters for name in listed):
            message = sentence[len(names) + 2 :]
            items.append(f"- {', '.join(f'**{name}**' for name in listed)}: {message}")
        elif sentence.startswith(("Return ", "Returns ", "Raise ", "Raises ", "Yields ")) and (items or rest):
            items.append(f"- {sentence}")
        elif items:
            items[-1] += f" {sentence}"
        else:
            rest.append(sentence)
    if rest:
        yield " ".join(rest)
    if rest and items:
        yield ""
    yield from items


def _unindented(block: str) -> str:
    return "\n".join(line[4:] for line in block.split("\n"))
