"""The look of what commands print: by the terminal, the environment, rich where it is installed."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore.cli import output
from graphcore.support import escaping

ROOT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal that stdout is from now on."""
    result = Terminal()
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", result)
    return result


@given(st.text())
def test_escaped_text_moves_no_cursor(text: str) -> None:
    shown = escaping.escaped(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name/0.weight", "plain name/0.weight"),
        ("été 漢字 🙂", "été 漢字 🙂"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\t", "a\\nb\\r\\t"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\x9b2J", "\\x9b2J"),
        ("\udc80", "\\udc80"),
        ("C:\\x", "C:\\x"),
    ],
)
def test_control_characters_are_escapes(text: str, shown: str) -> None:
    assert escaping.escaped(text) == shown


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colour: bool
) -> None:
    terminal = terminal_of(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert output.has_colour(terminal) is colour
    assert output.has_colour(io.StringIO()) is False
    output.heading("a section")
    assert ("\x1b" in terminal.getvalue()) is colour


def test_table_on_a_pipe_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([("a\x1b", "1"), ("long", "200")], head=("name", "n"), numbers=(1,))
    assert capsys.readouterr().out == "name     n\na\\x1b    1\nlong   200\n"
    output.table([])
    assert capsys.readouterr().out == ""


def test_table_fits_the_terminal_when_rich_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    output.table([("[bold]x[/bold]", "word " * 30, "7")], head=("name", "text", "n"), numbers=(2,))
    lines = plain(terminal.getvalue()).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40
    assert "[bold]x" in lines[1]


def test_table_is_plain_on_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(output, "has_rich", lambda: False)
    output.table([("a", "b")])
    assert terminal.getvalue() == "a  b\n"


def test_json_has_strings_for_numbers_that_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    output.document({"a": [float("nan"), float("inf"), -float("inf"), 1.5], 3: (True, None, "é\x1b")})
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert json.loads(text) == {"a": ["nan", "inf", "-inf", 1.5], "3": [True, None, "é\x1b"]}


@pytest.mark.parametrize("rich", [True, False])
def test_progress_is_shown_on_a_terminal_after_a_second(monkeypatch: pytest.MonkeyPatch, rich: bool) -> None:
    if rich:
        pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "has_rich", lambda: rich)
    for patience, shows in ((60.0, False), (-1.0, True)):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(output, "_DELAY", patience)
        with output.progress("quanti\x1bsing [b]") as advance:
            advance(1, 3)
            advance(3, 3)
        assert bool(stream.getvalue()) is shows
        if shows:
            assert "quanti\\x1bsing [b]" in stream.getvalue()


def test_progress_is_silent_on_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_DELAY", -1.0)
    with output.progress("x") as advance, output.working("y"):
        advance(1, None)
    assert capsys.readouterr().err == ""


def test_working_says_what_is_done_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "_DELAY", 0.0)
    with output.working("loading m"):
        while not stream.getvalue():
            pass
    assert stream.getvalue() == "loading m ...\r\x1b[K"


def plain(text: str) -> str:
    """Return text without the codes of colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", text).replace("\r", "")


def _on_terminal(argv: list[str], environment: dict[str, str]) -> str:
    """Run the command on a terminal of its own; return what it writes there."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), **environment}
    with subprocess.Popen([sys.executable, "-m", "graphcore", *argv], stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        content = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            content += part
        process.wait()
    os.close(master)
    return content.decode()


def test_process_on_a_terminal_draws_with_rich() -> None:
    environment = {"TERM": "xterm-256color", "COLUMNS": "60", "NO_COLOR": ""}
    text = _on_terminal(["promote", "int8", "uint64"], environment)
    assert "system" in text
    assert "max_published" in text
    if importlib.util.find_spec("rich") is not None:
        assert max(map(len, plain(text).splitlines())) <= 60
    assert "\x1b" not in _on_terminal(["promote", "int8", "uint64"], {"TERM": "dumb"})


def test_output_survives_an_encoding_without_the_names(tmp_path: Path) -> None:
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "graphcore", "promote", "int8", "é"], capture_output=True, env=env, check=False
    )
    assert done.returncode == 1
    assert b"\\xe9" in done.stderr
    assert b"Traceback" not in done.stderr
