/** A graph of some nodes of another and their neighbours, for drawing it beside what became of them. */
import type { Graph, Node } from "./model";

const NEIGHBOURS = 6;

/** Return a graph of `nodes` with the values that go in and out of them as its inputs and outputs; the indices of its nodes in `graph`. */
export function cut(graph: Graph, nodes: number[]): { graph: Graph; nodes: number[] } {
  const inside = new Set(nodes);
  const made = new Set(nodes.flatMap((node) => graph.nodes[node].results));
  const used = new Set<number>();
  graph.nodes.forEach((node, index) => {
    if (!inside.has(index)) for (const value of node.operands) used.add(value);
  });
  const inputs = [...new Set(nodes.flatMap((node) => graph.nodes[node].operands))].filter((value) => {
    const found = graph.values[value];
    return found !== undefined && !made.has(value) && found.kind !== "weight" && found.kind !== "constant";
  });
  const outputs = [...made].filter((value) => used.has(value) || graph.outputs.includes(value));
  const kept = nodes.map((node): Node => ({ ...graph.nodes[node], group: -1, bodies: [] }));
  return { graph: { name: graph.name, nodes: kept, values: graph.values, groups: [], inputs: inputs.slice(0, NEIGHBOURS), outputs: outputs.slice(0, NEIGHBOURS) }, nodes };
}
