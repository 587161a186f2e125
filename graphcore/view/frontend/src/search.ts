/** Find nodes by name, operator, dtype and dim. */
import type { Graph, Value } from "./model";
import { typeText } from "./text";

/** Fields of a query: `op:conv dim:batch`. Words without a field match any of them. */
export const FIELDS = ["name", "op", "dtype", "dim"] as const;
type Field = (typeof FIELDS)[number];

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
