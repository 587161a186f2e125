"""Names of outputs as members of the archive that `graphcore run --output` writes."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from graphcore.cli import arrays, main
from graphcore.cli.arrays import member_name, value_name

PIECES = st.sampled_from([*"./\\:%a \x00\n\u202e\ud800", "..", "//", "C:", "%2E"])
NAMES = st.lists(PIECES | st.text(max_size=3), min_size=1, max_size=8).map("".join).filter(bool)


@given(NAMES)
@example("../../evil")
@example("/etc/passwd")
@example("C:\\evil")
@example("c:/evil")
@example("\\\\server\\share")
@example(" /.")
def test_names_of_members_stay_in_a_folder_and_tell_the_value(name: str) -> None:
    result = member_name(name)
    assert value_name(result) == name
    assert result.isprintable()
    for segment in f"{result}.npy".split("/"):
        assert segment.strip(". ")
    assert "\\" not in result
    assert result[1:2] != ":"
    inside = os.path.normpath(os.path.join("/folder", f"{result}.npy"))
    assert inside.startswith("/folder/")


@pytest.mark.parametrize("name", ["y", "layer/0/out", "Identity:0", "a.b", "..a", "été", "x y"])
def test_usual_names_stay_as_they_are(name: str) -> None:
    assert member_name(name) == name


def test_run_writes_no_member_that_leaves_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["../../evil", "/abs", "file", "allow_pickle", "layer/out", "q"]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ["../../in", *names]]
    nodes = [helper.make_node("Neg", ["../../in"], [name]) for name in names]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", value[:1], value[1:]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    model, output = tmp_path / "m.onnx", tmp_path / "out.npz"
    model.write_bytes(proto.SerializeToString())
    assert main(["run", str(model), "--random", "--output", str(output)]) == 0, capsys.readouterr().err
    with zipfile.ZipFile(output) as archive:
        members = archive.namelist()
        archive.extractall(tmp_path / "a" / "b")
    assert [value_name(member.removesuffix(".npy")) for member in members] == names
    assert members[0] == "%2E%2E/%2E%2E/evil.npy"
    results = {path.relative_to(tmp_path / "a" / "b").as_posix() for path in (tmp_path / "a").rglob("*.npy")}
    assert results == set(members)
    with np.load(output, allow_pickle=False) as written:
        assert written["layer/out"].shape == (2,)


def test_archives_of_the_same_arrays_have_the_same_bytes(tmp_path: Path) -> None:
    results = {"x": np.arange(3), "s": np.array(["a", "bc"], object), "e": np.zeros((0, 2), np.float16)}
    for name in ("a.npz", "b.npz"):
        arrays.write(str(tmp_path / name), results)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as written:
        assert [written[name].tolist() for name in results] == [array.tolist() for array in results.values()]
