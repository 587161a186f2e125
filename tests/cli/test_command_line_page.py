"""docs/command_line.md against the commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphcore.cli.arguments import parser
from tests.support.trained import Trained

Document = Callable[..., Any]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
QUICK = ("--seconds", "0.01")


def section(name: str) -> str:
    """Return the section whose title names a command."""
    results = [part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if name in part.split("\n")[0].split(", ")]
    assert len(results) == 1, name
    return results[0]


def test_commands_of_the_page_are_understood() -> None:
    lines = re.findall(r"^graphcore (.*)$", PAGE, re.MULTILINE)
    assert len(lines) > 12
    for line in lines:
        if line != "--help":
            parser().parse_args(shlex.split(line.partition(" > ")[0]))


def test_page_has_every_command() -> None:
    (commands,) = (action.choices for action in parser()._actions if action.dest == "command")
    assert commands is not None
    assert {row.split()[0] for row in re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)} >= set(commands)


@pytest.mark.parametrize(
    ("command", "argv", "status"),
    [
        ("inspect", ["{m}", "--nodes", "--weights"], 0),
        ("run", ["{m}", "--random"], 0),
        ("bench", ["{m}", *QUICK, "--no-memory"], 0),
        ("compare", ["{m}", *QUICK, "--provider", "cpu", "--scheme", "int8"], 0),
        ("diff", ["{m}", "{m}", "--run"], 0),
        ("check", ["{m}"], 0),
        ("convert", ["{m}", "o.onnx"], 0),
        ("quantize", ["{m}", "o.onnx"], 0),
        ("rename", ["{m}", "o.onnx", "bytes=tokens"], 0),
        ("deploy", ["{m}", "--triton", "repository"], 0),
        ("promote", ["int8", "uint8"], 0),
    ],
)
def test_page_names_the_keys_of_each_command(
    document: Document, magika: Trained, command: str, argv: list[str], status: int
) -> None:
    result = document(command, *(each.format(m=magika.file()) for each in argv), status=status)
    text = re.sub(r"^```.*?^```$", "", section(command), flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", text))))
    assert set(result) <= words
    for key in ("rows", "forms", "outputs", "systems", "weight_list", "node_list", "casts", "layers"):
        for row in result.get(key, [])[:1]:
            if command not in ("quantize", "rename", "convert") and isinstance(row, dict):
                assert set(row) <= words | {"type", "elements"}, key
