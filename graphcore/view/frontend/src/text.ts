/** Readable texts of types, sizes and names, with hidden characters escaped. */
import type { Graph, Lowered, Node, Value } from "./model";

/** Characters that are invisible or reorder the text around them; their code point is shown instead. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff]/g;
const LONGEST = 2000;

/** Return a string with hidden characters spelled out, cut to `longest` characters. */
export function plain(text: string, longest: number = LONGEST): string {
  const cut = text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
  return cut.replace(HIDDEN, (hidden) => `‹${hidden.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

export function typeText(value: Value): string {
  return value.shape === null ? `${value.dtype}, rank unknown` : `${value.dtype}[${value.shape.join(", ")}]`;
}

export function opText(node: Node): string {
  return node.domain === "" || node.domain === "ai.onnx" ? node.op : `${node.domain}.${node.op}`;
}

/** Return the type of a node's first result, and the number of further results. */
export function resultText(graph: Graph, node: Node): string {
  const first = graph.values[node.results[0]];
  if (first === undefined) return "";
  return node.results.length > 1 ? `${typeText(first)} +${node.results.length - 1}` : typeText(first);
}

export function bytesText(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let size = bytes;
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toPrecision(3)} ${units[unit]}`;
}

export function numberText(number: number | null): string {
  if (number === null) return "–";
  if (Number.isInteger(number) && Math.abs(number) < 1e9) return number.toLocaleString("en");
  return Number(number.toPrecision(4)).toString();
}

/** Return a number with its unit, seconds and bytes scaled for reading. */
export function quantityText(number: number, unit: string): string {
  if (unit === "bytes") return bytesText(number);
  if (unit !== "s") return `${numberText(number)} ${unit}`.trim();
  const [factor, small] = number >= 1 || number === 0 ? [1, "s"] : number >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${Number((number * factor).toPrecision(3))} ${small}`;
}

export function countText(count: number, what: string): string {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}

/** Return each text with its count, the most common first. */
export function tally(texts: string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

export function targetText(lowered: Lowered): string {
  return /^\d/.test(lowered.runtime) ? `${lowered.target}, onnxruntime ${lowered.runtime}` : `${lowered.target}, ${lowered.runtime}`;
}

/** Return the last part of a path. */
export function fileText(path: string): string {
  return path.split(/[\\/]/).pop() ?? path;
}
