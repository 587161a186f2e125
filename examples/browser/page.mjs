import * as ort from "./ort.wasm.bundle.min.mjs";
import { load, similarity } from "./embed.mjs";

const text = document.querySelector("textarea");
const state = document.querySelector("[role=status]");
const table = document.querySelector("table");

async function read(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be read: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

function cell(row, tag, content) {
  const element = document.createElement(tag);
  element.textContent = content;
  row.append(element);
}

function show(sentences, vectors) {
  const head = document.createElement("tr");
  ["", ...sentences.map((_, at) => at + 1)].forEach((content) => cell(head, "th", content));
  const rows = sentences.map((sentence, at) => {
    const row = document.createElement("tr");
    cell(row, "th", `${at + 1}  ${sentence}`);
    vectors.forEach((vector) => cell(row, "td", similarity(vectors[at], vector).toFixed(2)));
    return row;
  });
  table.replaceChildren(head, ...rows);
}

try {
  const embed = await load(ort, read);
  const press = async () => {
    const sentences = text.value.split("\n").filter((line) => line.trim() !== "");
    const start = performance.now();
    const vectors = [];
    for (const sentence of sentences) vectors.push(await embed(sentence));
    show(sentences, vectors);
    state.textContent = `${sentences.length} sentences in ${Math.round(performance.now() - start)} ms`;
  };
  document.querySelector("button").addEventListener("click", press);
  Object.assign(window, { embed });
  await press();
} catch (problem) {
  state.textContent = `The model cannot be loaded: ${problem.message}`;
}
