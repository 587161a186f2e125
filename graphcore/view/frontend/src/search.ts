/** Find nodes by name, operator, dtype and dim. */
import type { Graph, Value } from "./model";
import { typeText } from "./text";

/** Fields of a query: `op:conv dim:batch`. Words without a field match any of them. */
export const FIELDS = ["name", "op", "dtype", "dim"] as const;
type Field = (typeof FIELDS)[number];

const SUGGESTED = 5;

interface Row {
  name: string;
  op: string;
  dtype: string;
  dim: string;
}

export class Search {
  private rows: Row[] | null = null;

  constructor(private readonly graph: Graph) {}

  /** Return the nodes that match every word of the query, in the order of the graph. */
  find(query: string): number[] {
    const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "").map(wordOf);
    if (words.length === 0) return [];
    this.rows ??= this.graph.nodes.map((node) => {
      const values = [...node.operands, ...node.results].flatMap((value) => this.graph.values[value] ?? []);
      const names = values.filter((value) => value.kind !== "result").map((value) => value.name);
      return {
        name: [node.name, ...names].join("\n").toLowerCase(),
        op: `${node.domain}.${node.op}`.toLowerCase(),
        dtype: values.map((value) => value.dtype).join("\n").toLowerCase(),
        dim: values.map(dimsOf).join("\n").toLowerCase(),
      };
    });
    const nodes: number[] = [];
    this.rows.forEach((row, node) => {
      if (words.every((word) => fits(row, word))) nodes.push(node);
    });
    return nodes;
  }

  /** Return queries like one without results: the first word that fits no node replaced by similar ones, or else each word alone. */
  similar(query: string): string[] {
    const words = query.split(/\s+/).filter((word) => word !== "");
    const wrong = words.findIndex((word) => this.find(word).length === 0);
    if (wrong < 0) return words.length > 1 ? words : [];
    const { field, text } = wordOf(words[wrong].toLowerCase());
    const most = Math.max(1, Math.floor(text.length / 3));
    const near = [...this.terms(field)].flatMap((term) => {
      const far = distance(text, term.toLowerCase(), most);
      return far <= most ? [{ term, far }] : [];
    });
    return near.sort((a, b) => a.far - b.far).slice(0, SUGGESTED).map(({ term }) => [...words.slice(0, wrong), field === null ? term : `${field}:${term}`, ...words.slice(wrong + 1)].join(" "));
  }

  /** Return what a word can be: names and their parts, operators, dtypes and dims, without those that have spaces. */
  private terms(field: Field | null): Set<string> {
    const terms = new Set<string>();
    const add = (of: Field, ...texts: string[]): void => {
      if (field === null || field === of) for (const text of texts) if (text !== "" && !/\s/.test(text)) terms.add(text);
    };
    for (const node of this.graph.nodes) {
      add("op", node.op);
      add("name", node.name, ...node.name.split("/"));
      for (const value of [...node.operands, ...node.results].flatMap((index) => this.graph.values[index] ?? [])) {
        add("dtype", value.dtype);
        add("dim", ...(value.shape ?? []));
        if (value.kind !== "result") add("name", value.name);
      }
    }
    return terms;
  }
}

/** Return the letters to insert, remove, replace or swap between two texts; more than `most` counts as `most + 1`. */
function distance(from: string, to: string, most: number): number {
  if (Math.abs(from.length - to.length) > most) return most + 1;
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let a = 1; a <= from.length; a++) {
    const row = [a];
    for (let b = 1; b <= to.length; b++) {
      row[b] = Math.min(last[b] + 1, row[b - 1] + 1, last[b - 1] + (from[a - 1] === to[b - 1] ? 0 : 1));
      if (a > 1 && b > 1 && from[a - 1] === to[b - 2] && from[a - 2] === to[b - 1]) row[b] = Math.min(row[b], before[b - 2] + 1);
    }
    [before, last] = [last, row];
  }
  return last[to.length];
}

/** Dims between bars, so that only whole dims match, followed by the type as text. */
function dimsOf(value: Value): string {
  return value.shape === null ? "" : `|${value.shape.join("|")}| ${typeText(value).replaceAll(" ", "")}`;
}

function wordOf(word: string): { field: Field | null; text: string } {
  const field = FIELDS.find((one) => word.startsWith(`${one}:`)) ?? null;
  return { field, text: field === null ? word : word.slice(field.length + 1) };
}

function fits(row: Row, { field, text }: { field: Field | null; text: string }): boolean {
  if (field === "dim") return row.dim.includes(`|${text}|`);
  if (field !== null) return row[field].includes(text);
  return row.name.includes(text) || row.op.includes(text) || row.dtype.includes(text) || row.dim.includes(text);
}
