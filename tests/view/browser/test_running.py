"""Pages that run their model: values typed and dropped in, results as onnxruntime's, and messages for bad input."""

from __future__ import annotations

import base64
import functools
import io
import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, TensorType, ops
from graphcore.analysis.statistics import statistics
from graphcore.runtime.inspection.profiling import with_outputs
from graphcore.view.data import PageOptions, page_data
from tests.support.browser import Opened, served, web_folder
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, bodies, small
from tests.view.browser.test_names import HOSTILE, renamed

pytestmark = pytest.mark.browser

Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def web(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = web_folder()
    if folder is None:
        pytest.skip("onnxruntime-web is not installed: make test-browser, with npm")
    monkeypatch.setenv("GRAPHCORE_ONNXRUNTIME_WEB", str(folder))


def data_of(graph: Graph) -> Data:
    return page_data(graph, PageOptions(targets=(), run="inline"))


def field(opened: Opened, name: str) -> Any:
    return opened.page.locator(".run > .card").filter(has=opened.page.get_by_label(name, exact=True))


def state(opened: Opened) -> str:
    """Return the message of the page at the end of a run."""
    opened.until("/^(Ran|Not run)/.test(document.querySelector('.run [role=status]').textContent)")
    return str(opened.page.inner_text(".run [role=status]"))


def start(opened: Opened, typed: Mapping[str, str]) -> str:
    for name, text in typed.items():
        field(opened, name).locator("textarea").fill(text)
    opened.page.evaluate("document.querySelector('.run [role=status]').textContent = ''")
    opened.page.click(".run button:text-is('Run')")
    return state(opened)


def results(opened: Opened) -> list[np.ndarray[Any, Any]]:
    """Return the outputs as the files that their buttons save."""
    files = opened.page.evaluate(
        """async () => {
          const blobs = [];
          graphcore.save = (blob) => blobs.push(blob);
          for (const button of document.querySelectorAll(".run > div > .card button")) button.click();
          delete graphcore.save;
          return Promise.all(blobs.map(async (blob) => [...new Uint8Array(await blob.arrayBuffer())]));
        }"""
    )
    return [np.load(io.BytesIO(bytes(file)), allow_pickle=False) for file in files]


def text_of(array: Any) -> str:
    words = {"True": "true", "False": "false", "NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
    text = json.dumps(np.asarray(array).tolist())
    for word, own in words.items():
        text = text.replace(word, own)
    return text


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def give(opened: Opened, name: str, file: str, content: bytes) -> None:
    """Choose a file for an input, and wait until it is read or refused."""
    upload = {"name": file, "mimeType": "application/octet-stream", "buffer": content}
    card = field(opened, name)
    card.locator("textarea").fill("")
    card.locator("input[type=file]").set_input_files(upload)
    opened.until(
        "file => [...document.querySelectorAll('.run > .card')].some((card) => "
        "(card.querySelector('textarea').value + card.querySelector('[role=alert]').textContent).startsWith(file))",
        file,
    )


def message(opened: Opened, name: str) -> str:
    return str(field(opened, name).locator("[role=alert]").inner_text())


DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@functools.cache
def every_dtype() -> tuple[Graph, Arrays]:
    """Return a graph with an input and an output of each dtype, and arrays of its extremes."""
    names = (*DTYPES, *NARROW)
    graph = Graph("every", {name: TensorType(DType.of(name), ["n"]) for name in names})
    graph.output(**{f"of_{name}": ops.concat([graph[name], graph[name]], axis=0) for name in names})
    arrays: Arrays = {}
    for name in names:
        dtype = DType.of(name)
        if dtype.is_float:
            arrays[name] = np.array([0.0, -0.5, 1.75, np.nan], dtype.numpy)
        elif name == "bool":
            arrays[name] = np.array([True, False, True, True])
        else:
            limits = np.iinfo(dtype.numpy)
            arrays[name] = np.array([limits.min, limits.max, 1, limits.max - 1], dtype.numpy)
    return graph, arrays


def test_every_dtype_enters_and_leaves_the_page(show: Show) -> None:
    graph, arrays = every_dtype()
    with show(data_of(graph)) as opened:
        assert start(opened, {name: text_of(array) for name, array in arrays.items()}).startswith("Ran in ")
        outputs = results(opened)
    assert len(outputs) == len(arrays)
    for (name, array), output in zip(arrays.items(), outputs, strict=True):
        expected = np.concatenate([array, array])
        if DType.of(name).is_float:  # all as float64, since the graph has an input of it, and narrow ones
            expected = expected.astype(np.float64)
        assert output.dtype == expected.dtype, name
        np.testing.assert_array_equal(output, expected, err_msg=name)


def test_results_and_values_of_nodes_are_those_of_a_session(show: Show) -> None:
    graph = small()
    rng = np.random.default_rng(0)
    x = (rng.random((3, 64)) / 1000).astype(DType.bfloat16.numpy)
    q = rng.integers(0, 100, (3, 64), dtype=np.int8)
    inner = [symbol for node in graph.nodes for symbol in node.outputs]
    expected = gc.InferenceSession().load(with_outputs(graph, inner))(x, q)
    with show(data_of(graph)) as opened:
        assert start(opened, {"x": text_of(x.astype(np.float32)), "q": text_of(q)}).startswith("Ran in ")
        (output,) = results(opened)
        np.testing.assert_allclose(output, expected[-1], atol=1e-6)
        for symbol, array in zip(inner, expected, strict=True):
            opened.select(symbol.name)
            values = array.astype(np.float32)
            is_exact = symbol.name.startswith("scale/")  # sums of products have another order in WebAssembly
            shown = opened.page.evaluate(
                "name => graphcore.page.graph.values.find((value) => value.name === name)", symbol.name
            )
            assert shown["text"] == f"float32[{', '.join(map(str, array.shape))}]"
            first = np.array(shown["first"].split(", ")[: min(8, values.size)], np.float32)
            np.testing.assert_allclose(
                first, values.ravel()[:8], rtol=0 if is_exact else 1e-4, atol=0 if is_exact else 1e-6
            )
            counts = shown["statistics"]
            assert (counts["min"], counts["max"]) == pytest.approx((values.min(), values.max()), abs=1e-5)
            if is_exact:
                assert counts["mean"] == pytest.approx(values.astype(np.float64).mean(), rel=1e-12)
                assert counts["histogram"] == list(statistics(values).histogram)
            assert (counts["elements"], sum(counts["histogram"])) == (values.size, values.size)
            assert shown["text"] in opened.panel


def test_bodies_run(show: Show) -> None:
    graph = bodies()
    x, limit = np.array([0.5, 2.0, -1.0], np.float32), np.float32(40)
    (expected,) = gc.InferenceSession(optimize="off").load(graph)(x, limit)
    with show(data_of(graph)) as opened:
        assert start(opened, {"x": "[0.5, 2, -1]", "limit": "40"}).startswith("Ran in ")
        np.testing.assert_allclose(results(opened)[0], expected, rtol=1e-6)


def image() -> Graph:
    graph = Graph("image", {"image": TensorType(DType.float32, [1, 3, "h", "w"]), "s": TensorType(DType.string, ["n"])})
    graph.output(twice=graph["image"] * 2, strings=ops.concat([graph["s"], graph["s"]], axis=0))
    return graph


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Return an RGB image as PNG."""
    high, wide, _ = pixels.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_images_and_strings_are_inputs(show: Show) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    planes = pixels.transpose(2, 0, 1)[None].astype(np.float64)
    with show(data_of(image())) as opened:
        for scale, expected in (("0 to 1", planes / 255), ("0 to 255", planes), ("-1 to 1", planes / 127.5 - 1)):
            field(opened, "image").locator("select").select_option(scale)
            give(opened, "image", "cat.png", png(pixels))
            assert start(opened, {"s": '["a", "ü\\n\\"[,]"]'}).startswith("Ran in ")
            np.testing.assert_array_equal(results(opened)[0], 2 * expected.astype(np.float32))
        assert '"a", "ü\\n\\"[,]", "a"' in opened.panel
        give(opened, "image", "broken.png", b"\x89PNG\r\n\x1a\nno image")
        assert message(opened, "image") == "broken.png: The browser cannot read this image."
        give(opened, "s", "cat.png", png(pixels))
        assert message(opened, "s").endswith("An image needs an input of 2 to 4 axes and of uint8 or floats.")


def test_images_are_resized_where_sizes_are_fixed(show: Show) -> None:
    graph = Graph("nhwc", {"image": TensorType(DType.uint8, ["n", 4, 6, 1])})
    graph.output(same=graph.op("Identity", [graph["image"]])[0])
    with show(data_of(graph)) as opened:
        assert field(opened, "image").locator("select").is_hidden()
        give(opened, "image", "gray.png", png(np.full((8, 12, 3), 77, np.uint8)))
        assert start(opened, {}).startswith("Ran in ")
        np.testing.assert_array_equal(results(opened)[0], np.full((1, 4, 6, 1), 77, np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_npy_and_json_files_are_read(show: Show, dtype: str) -> None:
    graph = Graph("files", {"x": TensorType(DType.of(dtype), ["n", 2])})
    graph.output(y=graph.op("Identity", [graph["x"]])[0])
    array = np.array([[1.5, -2.25], [np.inf, 6e-8], [65504, 0]])
    with show(data_of(graph)) as opened:
        for stored in ("<f8", "<f4", "<f2"):
            give(opened, "x", "x.npy", npy(array.astype(stored)))
            assert start(opened, {}).startswith("Ran in ")
            expected = array.astype(stored).astype(dtype).astype("float32" if dtype == "float16" else dtype)
            np.testing.assert_array_equal(results(opened)[0], expected)
        give(opened, "x", "x.json", b"[[1, 2], [3, 4e0]]")
        assert start(opened, {}).startswith("Ran in ")
        assert results(opened)[0].tolist() == [[1, 2], [3, 4]]


def test_a_file_can_be_dropped(show: Show) -> None:
    graph = Graph("dropped", {"x": TensorType(DType.bfloat16, ["n"])})
    graph.output(y=graph["x"] * 2)
    array = np.array([1.5, -3], DType.bfloat16.numpy)
    with show(data_of(graph)) as opened:
        opened.page.evaluate(
            """content => {
              const dataTransfer = new DataTransfer();
              dataTransfer.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], "x.npy"));
              document.querySelector(".run > .card").dispatchEvent(new DragEvent("drop", { dataTransfer }));
            }""",
            base64.b64encode(npy(array.view("V2"))).decode(),
        )
        opened.until("document.querySelector('.run textarea').value === 'x.npy: float32[2]'")
        assert start(opened, {}).startswith("Ran in ")
        assert results(opened)[0].tolist() == [3, -6]


@pytest.fixture(scope="module")
def checked() -> Graph:
    types = {
        "x": TensorType(DType.float32, ["n", 2]),
        "i": TensorType(DType.int8, ["n"]),
        "b": TensorType(DType.bool, []),
        "s": TensorType(DType.string, [Dim.dynamic()]),
    }
    graph = Graph("checked", types)
    graph.output(x2=graph["x"] * 2, i2=graph["i"] + 1, b2=~graph["b"], s2=ops.concat([graph["s"]], axis=0))
    return graph


GOOD = {"x": "[[1, 2]]", "i": "[3]", "b": "true", "s": '["a"]'}
BAD = [
    ("x", "", "Nothing is typed: give a number, or lists in brackets such as [1, 2]."),
    ("x", "hello", "hello is not a number."),
    ("x", "[[1, 2], [3]]", "Lists of 2 and of 1 elements stand side by side."),
    ("x", "[[1, 2], 3]", "Elements are in brackets of different depths."),
    ("x", "[[], 3]", "Elements are in brackets of different depths."),
    ("x", "[[1, 2]", "A closing bracket is missing."),
    ("x", "[[1 2]]", "A comma is missing before 2."),
    ("x", "[[1, 2],]", "] stands where an element should."),
    ("x", "[[1, 2]] 3", "3 stands after the end of the value."),
    ("x", "[1, 2]", "The shape [2] has 1 axes; the input is of shape [n, 2]. Each pair of brackets is an axis."),
    ("x", "[[1, 2, 3]]", "Axis 1 has 3 elements; the input is of shape [n, 2]."),
    ("x", "[[1, 1e39]]", "1e39 is too large for float32; write inf for infinity."),
    ("x", "[" * 40 + "]" * 40, "Lists are more than 32 deep."),
    ("x", "<img src=x onerror=alert(1)>", "<img is not a number."),
    ("i", "[1, 2]", "n is 2 here, but 1 in x."),
    ("i", "[128]", "128 is outside of int8: -128 to 127."),
    ("i", "[1.5]", "1.5 is not an integer; the input is of int8."),
    ("i", "[nan]", "nan is not an integer; the input is of int8."),
    ("b", "2", "2 is not true or false."),
    ("s", "[a]", "a is not in double quotes: an element of a list of strings is."),
    ("s", '["a', '" stands where an element should.'),
]


def test_bad_values_are_told_beside_their_input(show: Show, checked: Graph) -> None:
    with show(data_of(checked)) as opened:
        for name, text, expected in BAD:
            assert start(opened, {**GOOD, name: text}) == f"Not run: see the message at {name}.", text
            assert message(opened, name) == expected, text
        assert start(opened, GOOD).startswith("Ran in ")
        assert all(message(opened, name) == "" for name in GOOD)
        assert results(opened)[0].tolist() == [[2, 4]]
        assert opened.page.evaluate("document.querySelectorAll('img').length") == 0


def test_bad_files_are_told_beside_their_input(show: Show, checked: Graph) -> None:
    good = npy(np.ones((1, 2), np.float32))
    files = [
        ("x.npy", b"", "The file is not a .npy file of an array of numbers."),
        ("x.npy", b"\x93NUMPY" + b"\xff" * 40, "The file is not a .npy file of an array of numbers."),
        ("x.npy", good[:-1], "The file has 7 bytes of elements; [1, 2] needs 8."),
        ("x.npy", good.replace(b"(1, 2), }", b"(9999999999, 99), }"), "has too many elements"),
        (
            "x.npy",
            npy(np.ones((1, 2), np.int64)),
            'of <i8 (NumPy\'s name); the input is of float32: save x.astype("float32").',
        ),
        ("x.npy", npy(np.ones((1, 2), ">f4")), "elements of >f4"),
        ("x.npy", npy(np.asfortranarray(np.ones((2, 2), np.float32))), "save np.ascontiguousarray(x)"),
        ("x.npy", npy(np.array(["a"])), "elements of <U1"),
        ("x.json", b"{}", "{} is not a number."),
        ("x.json", b"[" + b"1," * (1 << 23) + b"1]", "The text has 16777219 characters; a page reads up to 16777216"),
        ("x.exe", b"MZ", "The file is not .npy, .json or an image (.png, .jpg, .webp)."),
    ]
    with show(data_of(checked)) as opened:
        for name, content, expected in files:
            give(opened, "x", name, content)
            typed = {key: value for key, value in GOOD.items() if key != "x"}
            refused = message(opened, "x")
            assert start(opened, typed) == "Not run: see the message at x.", name
            assert expected in (refused or message(opened, "x")), name
        give(opened, "x", "x.npy", good)
        assert start(opened, GOOD).startswith("Ran in ")


def test_an_error_of_the_runtime_is_told_and_the_page_runs_again(show: Show) -> None:
    graph = Graph("gather", {"x": TensorType(DType.float32, ["n"]), "at": TensorType(DType.int64, [])})
    (y,) = graph.op("Gather", [graph["x"], graph["at"]])
    graph.output(y)
    with show(data_of(graph)) as opened:
        assert "out of data bounds" in start(opened, {"x": "[1, 2]", "at": "7"})
        assert start(opened, {"at": "1"}).startswith("Ran in ")
        assert results(opened)[0] == 2


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_are_text_in_the_part_that_runs(show: Show, kind: str) -> None:
    name = HOSTILE[kind]
    graph = Graph("g", {"x": TensorType(DType.string, ["n"])})
    graph.output(y=ops.concat([graph["x"], graph["x"]], axis=0))
    run = data_of(graph)["run"]
    for end in (*run["inputs"], *run["outputs"]):
        end |= {"name": name, "own": name, "shape": [name]}
    with show(renamed(name) | {"run": run}) as opened:
        opened.page.fill(".run textarea", json.dumps([name]) if kind != "surrogate" else '["a"]')
        opened.page.click(".run button:text-is('Run')")
        assert state(opened).startswith("Ran in ")
        count = "document.querySelectorAll('img, iframe, object, embed, link, a, form, b, aside script').length"
        assert opened.page.evaluate(count) == 0
        assert opened.page.title() != "owned"
        assert (
            opened.page.evaluate("document.querySelectorAll('[onerror], [onmouseover], [onclick], [href]').length") == 0
        )


def test_names_of_the_model_are_no_code(show: Show) -> None:
    """The file has these names too, and onnxruntime's program makes objects of them."""
    names = ["__proto__", "constructor", "</script><script>document.title='owned'</script>", "\"'`${x}", ""]
    graph = Graph("hostile", {name or "x": TensorType(DType.float32, ["n"]) for name in names})
    graph.output(**{f"{name} ": graph[name or "x"] * 2 for name in names})
    with show(data_of(graph)) as opened:
        for at, area in enumerate(opened.page.locator(".run textarea").all()):
            area.fill(f"[{at}]")
        opened.page.click(".run button:text-is('Run')")
        assert state(opened).startswith("Ran in ")
        assert [array.tolist() for array in results(opened)] == [[0], [2], [4], [6], [8]]
        assert opened.page.title() != "owned"


def test_wasm_beside_the_page_is_read_from_its_server_and_nothing_else(browser: Any, tmp_path: Path) -> None:
    graph = Graph("beside", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=graph["x"] * 2)
    graph.save_html(tmp_path / "page.html", run="beside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["onnxruntime-web-1.30.0.wasm", "page.html"]
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    with served(tmp_path) as (address, paths):
        for place in (address + "/page.html", (tmp_path / "page.html").as_uri()):
            context = browser.new_context()
            opened = Opened(context.new_page())
            opened.page.goto(place)
            opened.page.wait_for_selector("html[data-ready]", state="attached")
            answer = start(opened, {"x": "[1, 2]"})
            if place.startswith("http"):
                assert answer.startswith("Ran in ")
                assert results(opened)[0].tolist() == [2, 4]
                assert {url.split("/")[-1] for url in opened.outside} <= {
                    "page.html",
                    "onnxruntime-web-1.30.0.wasm",
                    "favicon.ico",
                }
                assert all(url.startswith(address) for url in opened.outside)
            else:
                assert "Serve the folder" in answer
                assert opened.outside == []
            context.close()
    assert "/onnxruntime-web-1.30.0.wasm" in paths


def test_a_run_can_be_stopped(show: Show) -> None:
    graph = Graph("slow", {"x": TensorType(DType.float32, [])})
    graph.output(ops.while_loop(lambda x: x < 1e30, lambda x: ops.sin(x), graph["x"]))
    with show(data_of(graph)) as opened:
        opened.page.fill(".run textarea", "1")
        opened.page.click(".run button:text-is('Run')")
        opened.until("document.querySelector('.run [role=status]').textContent === 'Running…'")
        assert opened.page.locator(".run button:text-is('Run')").is_disabled()
        opened.page.click(".run button:text-is('Stop')")
        assert state(opened) == "Not run: Stopped."
        assert start(opened, {"x": "2e30"}).startswith("Ran in ")
        assert results(opened)[0] == np.float32(2e30)
