"""Where the time goes in figures that are above what is asked for: the sections of notes.md, by program."""

from __future__ import annotations

from pathlib import Path

NOTES = Path(__file__).parent / "notes.md"

_SECTIONS = {
    "bench_architectures": "Architectures beyond the page of exports",
    "bench_build": "Building and writing nodes",
    "bench_call": "Calls of a few microseconds",
    "bench_decode": "A decoding step",
    "bench_decoders": "Decoders beside llama.cpp",
    "bench_embed": "Embeddings",
    "bench_encoder": "Building and writing nodes",
    "bench_fewer_nodes": "Nodes that are left",
    "bench_third_party": "Calls of a few microseconds",
    "bench_isolation": "Isolated calls",
    "bench_load": "Loads of files",
    "bench_load_nodes": "Loads of files",
    "bench_lower": "Building and writing nodes",
    "bench_minilm": "Encoders and images in float32",
    "bench_openvino": "OpenVINO",
    "bench_optimize": "Optimising 10,000 nodes",
    "bench_peers": "Encoders and images in float32",  # other figures name theirs in reach.py
    "bench_quantized_encoders": "int8",
    "bench_quantized_layers": "Layers in bytes",
    "bench_quantized_minilm": "int8_split",
    "bench_running": "Starts and memory",
    "bench_second_load": "Second loads",
    "bench_start": "The first embedding",
    "bench_streams": "Streams",
    "bench_surgery": "Joining graphs",
    "bench_trained": "Loads of files",
    "bench_unmeasured": "Releases that were not measured",
}


def section(program: str, why: str = "") -> str:
    """Return the section with the profile of a program's figures, or the one that is named; "" if notes.md lacks it."""
    name = why or _SECTIONS.get(program, "")
    return name if name in sections() else ""


def sections() -> dict[str, str]:
    """Return the sections of the notes by their headings, in their order."""
    _, *parts = ("\n" + NOTES.read_text()).split("\n### ")
    return {part.split("\n", 1)[0]: part.strip() for part in parts}


def introduction() -> str:
    """Return the text before the sections."""
    return ("\n" + NOTES.read_text()).split("\n### ")[0].strip()


def link(name: str) -> str:
    """Return the anchor of a section on the page."""
    remaining = "".join(letter for letter in name.lower() if letter.isalnum() or letter in " -_")
    return "#" + remaining.replace(" ", "-")
