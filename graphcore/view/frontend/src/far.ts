/** Links over many layers: too many of them would take dagre minutes, and hide what is between. They run in lanes beside the drawing. */
interface Link {
  from: number;
  to: number;
}

/** Layers that all links of a scope may pass, in all, for dagre to route them. */
const BUDGET = 600;
/** This many links of one item over this many layers share a lane. */
const MANY = 5;
const LONG = 2;

/** Return true for each link that runs in a lane: those of an item with many long links, then the longest links beyond the budget. */
export function inLanes(count: number, links: readonly Link[]): boolean[] {
  const layer = layersOf(count, links);
  const passed = links.map((link) => Math.max(0, layer[link.to] - layer[link.from] - 1));
  const fans = new Int32Array(count);
  links.forEach((link, index) => {
    if (passed[index] >= LONG) fans[link.from] += 1;
  });
  const lanes = links.map((link, index) => passed[index] >= LONG && fans[link.from] >= MANY);
  let total = passed.reduce((sum, layers, index) => sum + (lanes[index] ? 0 : layers), 0);
  const longest = links.map((_, index) => index).sort((a, b) => passed[b] - passed[a]);
  for (const index of longest) {
    if (total <= BUDGET) break;
    if (lanes[index]) continue;
    lanes[index] = true;
    total -= passed[index];
  }
  return lanes;
}

/** Return the layer of each item: below all its operands; an item without operands is right above its users. */
function layersOf(count: number, links: readonly Link[]): Int32Array {
  const uses = Array.from({ length: count }, (): number[] => []);
  const missing = new Int32Array(count);
  for (const link of links) {
    uses[link.from].push(link.to);
    missing[link.to] += 1;
  }
  const sources = uses.flatMap((_, item) => (missing[item] === 0 ? [item] : []));
  const layer = new Int32Array(count);
  const order = [...sources];
  for (let at = 0; at < order.length; at++) {
    for (const user of uses[order[at]]) {
      layer[user] = Math.max(layer[user], layer[order[at]] + 1);
      missing[user] -= 1;
      if (missing[user] === 0) order.push(user);
    }
  }
  for (const source of sources) if (uses[source].length > 0) layer[source] = Math.min(...uses[source].map((user) => layer[user])) - 1;
  return layer;
}
