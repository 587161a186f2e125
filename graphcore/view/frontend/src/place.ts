/** Place the items of one scope in layers with dagre, and route its edges so that they cross no item. */
import * as dagre from "@dagrejs/dagre";
import { bandsOf, bendsOf, Lanes, type Bend } from "./bends";
import { inLanes } from "./far";
import { looseAbove, looseBelow } from "./ties";

/** Where a value enters or leaves the scope: at its upper or lower edge. */
export type Pin = "none" | "top" | "bottom";

export interface PlaceRequest {
  id: number;
  sizes: { width: number; height: number; pin: Pin }[];
  links: { from: number; to: number; weight: number }[];
}

export interface Placed {
  id: number;
  width: number;
  height: number;
  /** The upper left corners. */
  x: number[];
  y: number[];
  bends: Bend[][];
}

const GAP = { ranksep: 44, nodesep: 26, edgesep: 16 };
const HEAVY = 1000;
const LIGHT = 0.01;

export function place(request: PlaceRequest): Placed {
  const far = inLanes(request.sizes.length, request.links);
  const graph = build(request, far);
  try {
    dagre.layout(graph);
  } catch {
    far.fill(true);
    stack(graph, request);
  }
  const nodes = request.sizes.map((_, index) => graph.node(String(index)) as { x: number; y: number; width: number; height: number });
  const bands = bandsOf(nodes.filter((_, index) => request.sizes[index].pin === "none"));
  const lanes = new Lanes(nodes);
  const bends = request.links.map((link, index) => {
    if (far[index]) return lanes.bends(link.from, link.to, bands);
    const points = (graph.edge(String(link.from), String(link.to), String(index)) as { points: { x: number; y: number }[] }).points;
    return bendsOf(points, nodes[link.from], nodes[link.to], bands);
  });
  return shifted(request, nodes, bends);
}

/** The fallback if dagre fails: one item per row, in order, and every link in a lane. */
function stack(graph: dagre.graphlib.Graph, request: PlaceRequest): void {
  const rows: Record<Pin, number> = { top: 0, none: 1, bottom: 2 };
  const order = request.sizes.map((_, index) => index).sort((a, b) => rows[request.sizes[a].pin] - rows[request.sizes[b].pin] || a - b);
  let bottom = 0;
  for (const index of order) {
    const { height } = request.sizes[index];
    Object.assign(graph.node(String(index)), { x: 0, y: bottom + height / 2 });
    bottom += height + GAP.ranksep;
  }
}

function build(request: PlaceRequest, far: boolean[]): dagre.graphlib.Graph {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ ...GAP, ranker: "network-simplex" });
  request.sizes.forEach((size, index) => graph.setNode(String(index), { width: size.width, height: size.height }));
  request.links.forEach((link, index) => {
    if (!far[index]) graph.setEdge(String(link.from), String(link.to), { weight: link.weight }, String(index));
  });
  pin(graph, request, "top");
  pin(graph, request, "bottom");
  return graph;
}

/** Tie the pins of one side to a node of size 0: heavy edges keep them in its layer, light edges keep other items from passing it. */
function pin(graph: dagre.graphlib.Graph, request: PlaceRequest, side: "top" | "bottom"): void {
  const pins = new Set(request.sizes.flatMap((size, index) => (size.pin === side ? [index] : [])));
  if (pins.size === 0) return;
  const loose = (side === "top" ? looseAbove : looseBelow)(request.sizes.length, request.links, pins);
  const tie = (item: number, weight: number): unknown =>
    side === "top" ? graph.setEdge(side, String(item), { weight }, "pin") : graph.setEdge(String(item), side, { weight }, "pin");
  graph.setNode(side, { width: 0, height: 0 });
  for (const item of pins) tie(item, HEAVY);
  for (const item of loose) tie(item, LIGHT);
}

/** Move everything so that the items (without pins) begin at 0, 0. */
function shifted(request: PlaceRequest, nodes: { x: number; y: number; width: number; height: number }[], bends: Bend[][]): Placed {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  nodes.forEach((node, index) => {
    box.left = Math.min(box.left, node.x - node.width / 2);
    box.right = Math.max(box.right, node.x + node.width / 2);
    if (request.sizes[index].pin !== "none") return;
    box.top = Math.min(box.top, node.y - node.height / 2);
    box.bottom = Math.max(box.bottom, node.y + node.height / 2);
  });
  for (const line of bends) {
    for (const bend of line) {
      box.left = Math.min(box.left, bend.x - 4);
      box.right = Math.max(box.right, bend.x + 4);
    }
  }
  if (!Number.isFinite(box.top)) return { id: request.id, width: 0, height: 0, x: nodes.map(() => 0), y: nodes.map(() => 0), bends };
  for (const bend of bends.flat()) {
    bend.x -= box.left;
    bend.enter -= box.top;
    bend.leave -= box.top;
  }
  return {
    id: request.id,
    width: box.right - box.left,
    height: box.bottom - box.top,
    x: nodes.map((node) => node.x - node.width / 2 - box.left),
    y: nodes.map((node) => node.y - node.height / 2 - box.top),
    bends,
  };
}
