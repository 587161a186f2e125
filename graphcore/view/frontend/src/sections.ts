/** Join the items of a scope: chains of numbered layers become one, and too many items are cut into sections, at positions with the
 * fewest crossing values.
 *
 * A layered layout of 20,000 nodes takes minutes; one of 140 is fast, and more would be hard to read.
 */
import { Links } from "./links";
import type { Item, Scope, Tree } from "./tree";

/** Items that a scope may have before it is cut. */
const MOST = 300;

/** Numbered layers that are joined, at least. */
const CHAIN = 4;

/** Return the kind of a numbered layer: `mol_layer` of `mol_layer_1`, `layer/attention` of `layer.0/attention`; null for another name. */
export function kindOf(name: string): string | null {
  const kind = name.replace(/[._-]?\d+(?=$|\/)/g, "");
  return kind === name ? null : kind.replace(/^\//, "");
}

/** Join each chain of numbered layers of one kind, of which only the last one is read elsewhere, to one scope. */
export function joinLayers(tree: Tree, scope: Scope): void {
  const { items } = scope;
  const kinds = items.map((item) => (item.kind === "scope" && item.scope.kind === "layer" ? kindOf(item.scope.name) : null));
  const starts = kinds.flatMap((kind, at) => (kind !== null && kind !== kinds[at - 1] ? [at] : []));
  const chains = starts.map((from) => ({ from, to: from + [...kinds, null].slice(from).findIndex((kind) => kind !== kinds[from]) })).filter(({ from, to }) => to - from >= CHAIN && to - from < items.length);
  if (chains.length === 0) return;
  const links = new Links(tree, scope);
  const leaving = new Set(links.outgoing.values());
  for (const { from, to } of chains.reverse()) {
    const read = links.between.some((link) => link.from >= from && link.from < to - 1 && (link.to < from || link.to >= to));
    if (read || [...leaving].some((at) => at >= from && at < to - 1)) continue;
    const layers = tree.scope(`${kinds[from]} ×${to - from}`.trim(), "layers", scope, -1);
    layers.items = items.slice(from, to);
    for (const item of layers.items) move(tree, item, layers);
    items.splice(from, to - from, { kind: "scope", scope: layers });
  }
}

/** Cut `scope` into sections if it is too long; a no-op for others. */
export function inSections(tree: Tree, scope: Scope): void {
  const items = scope.items;
  if (items.length <= MOST) return;
  const crossing = valuesCrossing(new Links(tree, scope).between, items.length);
  const size = Math.max(30, Math.round(Math.sqrt(items.length)));
  const sections: Item[] = [];
  for (let from = 0; from < items.length; ) {
    const to = narrowest(crossing, from + Math.round(size * 0.6), from + Math.round(size * 1.4), from + size, items.length);
    const section = tree.scope(nameOf(items, from, to), "section", scope, -1);
    section.items = items.slice(from, to);
    for (const item of section.items) move(tree, item, section);
    sections.push({ kind: "scope", scope: section });
    from = to;
  }
  scope.items = sections;
}

/** Return for each position between two items the number of values that cross it. */
function valuesCrossing(between: { from: number; to: number; value: number }[], count: number): Int32Array {
  const reach = new Map<number, [number, number]>();
  for (const link of between) {
    const [low, high] = reach.get(link.value) ?? [link.from, link.from];
    reach.set(link.value, [Math.min(low, link.to), Math.max(high, link.to)]);
  }
  const crossing = new Int32Array(count + 1);
  for (const [low, high] of reach.values()) {
    crossing[low + 1] += 1;
    crossing[high + 1] -= 1;
  }
  for (let at = 1; at <= count; at++) crossing[at] += crossing[at - 1];
  return crossing;
}

function narrowest(crossing: Int32Array, low: number, high: number, wanted: number, count: number): number {
  if (high >= count) return count;
  let best = wanted;
  for (let at = low; at <= high; at++) {
    const better = crossing[at] - crossing[best];
    if (better < 0 || (better === 0 && Math.abs(at - wanted) < Math.abs(best - wanted))) best = at;
  }
  return best;
}

function nameOf(items: Item[], from: number, to: number): string {
  const first = items[from];
  const last = items[to - 1];
  return first.kind === "scope" && last.kind === "scope" ? `${first.scope.name} – ${last.scope.name}` : `${from + 1} – ${to}`;
}

function move(tree: Tree, item: Item, section: Scope): void {
  if (item.kind === "scope") item.scope.parent = section;
  else if (item.kind === "value") (item.role === "input" ? tree.inputHome : tree.outputHome).set(item.value, section);
  if (item.kind === "node") tree.home[item.node] = section;
  if (item.kind === "scope" && item.scope.node >= 0) tree.home[item.scope.node] = section;
}
