/** A graph of some nodes of another graph and their neighbours, to compare it with its lowered form. */
import type { Graph, Node } from "./model";

const NEIGHBOURS = 6;

/** Return a graph of `nodes` with the values that go in and out of them as its inputs and outputs; the indices of its nodes in `graph`. */
export function cut(graph: Graph, nodes: number[]): { graph: Graph; nodes: number[] } {
  const inside = new Set(nodes);
  const results = new Set(nodes.flatMap((node) => graph.nodes[node].results));
  const used = new Set<number>();
  graph.nodes.forEach((node, index) => {
    if (!inside.has(index)) for (const value of node.operands) used.add(value);
  });
  const inputs = [...new Set(nodes.flatMap((node) => graph.nodes[node].operands))].filter((value) => {
    const entry = graph.values[value];
    return entry !== undefined && !results.has(value) && entry.kind !== "weight" && entry.kind !== "constant";
  });
  const outputs = [...results].filter((value) => used.has(value) || graph.outputs.includes(value));
  const copies = nodes.map((node): Node => ({ ...graph.nodes[node], group: -1, bodies: [] }));
  return { graph: { name: graph.name, nodes: copies, values: graph.values, groups: [], inputs: inputs.slice(0, NEIGHBOURS), outputs: outputs.slice(0, NEIGHBOURS) }, nodes };
}
