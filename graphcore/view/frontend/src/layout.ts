/** Lay out the open scopes one by one: a closed scope is one box, an open scope a box of the size of its own layout. */
import { itemKey, type Box, type Inside, type Route } from "./boxes";
import { Links } from "./links";
import type { Bend } from "./bends";
import type { Pin } from "./place";
import type { Placer } from "./placer";
import type { Item, Scope, Tree } from "./tree";

/** The margin around the items within an open scope. */
export const EDGE = { side: 18, top: 40, bottom: 32 };
const APART = 12;

interface Wire {
  from: number;
  to: number;
  values: number[];
}

export class Layout {
  private readonly links = new Map<Scope, Links>();
  private readonly done = new Map<Scope, { key: string; inside: Inside }>();

  constructor(
    private readonly tree: Tree,
    private readonly placer: Placer,
    private readonly measure: (item: Item) => { width: number; height: number },
  ) {}

  /** Lay out a scope in which the scopes in `open` are open. */
  async inside(scope: Scope, open: ReadonlySet<Scope>): Promise<Inside> {
    const insides = await Promise.all(
      scope.items.map((item) => (item.kind === "scope" && open.has(item.scope) ? this.inside(item.scope, open) : null)),
    );
    const boxes = scope.items.map((item, index): Box => {
      const inside = insides[index];
      return { item, x: 0, y: 0, ...(inside ?? this.measure(item)), inside };
    });
    const key = boxes.map((box) => `${itemKey(box.item)} ${box.width} ${box.height} ${box.inside === null ? "" : "o"}`).join();
    const before = this.done.get(scope);
    if (before !== undefined && before.key === key) {
      before.inside.boxes.forEach((box, index) => (box.inside = boxes[index].inside));
      return before.inside;
    }
    const inside = await this.place(scope, boxes);
    this.done.set(scope, { key, inside });
    return inside;
  }

  private linksOf(scope: Scope): Links {
    const links = this.links.get(scope) ?? new Links(this.tree, scope);
    this.links.set(scope, links);
    return links;
  }

  private async place(scope: Scope, boxes: Box[]): Promise<Inside> {
    const links = this.linksOf(scope);
    const entries = [...links.incoming.keys()];
    const exits = [...links.outgoing.keys()];
    const pins: { value: number; pin: Pin }[] = [...entries.map((value) => ({ value, pin: "top" as const })), ...exits.map((value) => ({ value, pin: "bottom" as const }))];
    const wires = this.wires(links, boxes, entries, exits);
    const placed = await this.placer.place({
      sizes: [
        ...boxes.map((box) => ({ width: box.width, height: box.height, pin: "none" as const })),
        ...pins.map(({ pin }) => ({ width: 2, height: 2, pin })),
      ],
      links: wires.map((wire) => ({ from: wire.from, to: wire.to, weight: 1 })),
    });
    const margin = scope.parent === null ? { side: 0, top: 0, bottom: 0 } : EDGE;
    const title = scope.parent === null ? 0 : this.measure({ kind: "scope", scope }).width + 16;
    const width = Math.max(placed.width + 2 * margin.side, title);
    const left = (width - placed.width) / 2;
    boxes.forEach((box, index) => {
      box.x = left + placed.x[index];
      box.y = margin.top + placed.y[index];
    });
    for (const bend of placed.bends.flat()) {
      bend.x += left;
      bend.enter += margin.top;
      bend.leave += margin.top;
    }
    const inside: Inside = { width, height: placed.height + margin.top + margin.bottom, boxes, routes: [], entries: new Map(), exits: new Map() };
    pins.forEach(({ value, pin }, index) => {
      const x = left + placed.x[boxes.length + index] + 1;
      (pin === "top" ? inside.entries : inside.exits).set(value, x);
    });
    this.attach(boxes, wires, placed.bends);
    inside.routes = wires.map((wire, index) => routeOf(wire, placed.bends[index], boxes, inside.height));
    return inside;
  }

  /** One wire for each pair of boxes; one for each value if a box is open, because each has its own end. */
  private wires(links: Links, boxes: Box[], entries: number[], exits: number[]): Wire[] {
    const wires = new Map<string, Wire>();
    const add = (from: number, to: number, value: number): void => {
      const apart = boxes[from]?.inside != null || boxes[to]?.inside != null;
      const key = apart ? `${from} ${to} ${value}` : `${from} ${to}`;
      const wire = wires.get(key) ?? { from, to, values: [] };
      wire.values.push(value);
      wires.set(key, wire);
    };
    for (const link of links.between) add(link.from, link.to, link.value);
    entries.forEach((value, index) => {
      for (const user of links.incoming.get(value) ?? []) add(boxes.length + index, user, value);
    });
    exits.forEach((value, index) => add(links.outgoing.get(value) as number, boxes.length + entries.length + index, value));
    return [...wires.values()];
  }

  /** Move the ends of wires to where the value enters or leaves an open box; spread them along the edge of a closed box. */
  private attach(boxes: Box[], wires: Wire[], bends: Bend[][]): void {
    const ends = boxes.map((): { wire: number; wanted: number }[] => []);
    wires.forEach((wire, index) => {
      const line = bends[index];
      const from = boxes[wire.from];
      const to = boxes[wire.to];
      const exit = from?.inside?.exits.get(wire.values[0]);
      if (exit !== undefined) line[0].x = from.x + exit;
      const entry = to?.inside?.entries.get(wire.values[0]);
      if (entry !== undefined) line[line.length - 1].x = to.x + entry;
      else if (to !== undefined) ends[wire.to].push({ wire: index, wanted: line[line.length - 2].x });
    });
    ends.forEach((arrivals, index) => {
      const { x, width } = boxes[index];
      arrivals.sort((a, b) => a.wanted - b.wanted);
      const step = Math.min(APART, (width - 16) / arrivals.length);
      spread(arrivals.map((arrival) => arrival.wanted), x + 10, x + width - 10, x + width / 2, step).forEach((at, order) => {
        const line = bends[arrivals[order].wire];
        line[line.length - 1].x = besideEntries(at, boxes[index]);
      });
    });
  }
}

/** Keep each desired position near the middle and `step` away from its neighbours. */
function spread(wanted: number[], low: number, high: number, middle: number, step: number): number[] {
  const reach = (high - low) / 4;
  const places = wanted.map((at) => (at >= low && at <= high ? at : at < low ? middle - reach : middle + reach));
  if (places.length === 1) return wanted[0] >= low && wanted[0] <= high ? places : [middle];
  for (let at = 1; at < places.length; at++) places[at] = Math.max(places[at], places[at - 1] + step);
  let limit = high;
  for (let at = places.length - 1; at >= 0; at--) {
    places[at] = Math.min(places[at], limit);
    limit = places[at] - step;
  }
  return places;
}

/** Move an end at an open box aside from where values enter it. */
function besideEntries(at: number, box: Box): number {
  const taken = [...(box.inside?.entries.values() ?? [])].map((entry) => box.x + entry).sort((a, b) => a - b);
  return taken.reduce((free, entry) => (Math.abs(free - entry) < APART ? entry + APART : free), at);
}

function routeOf(wire: Wire, line: Bend[], boxes: Box[], height: number): Route {
  const back = line[0].enter > line[line.length - 1].leave;
  if (wire.from >= boxes.length) line[0].enter = line[0].leave = 0;
  const end = line[line.length - 1];
  if (wire.to >= boxes.length) end.enter = end.leave = height;
  const route: Route = {
    values: wire.values, from: wire.from < boxes.length ? wire.from : -1, to: wire.to < boxes.length ? wire.to : -1,
    runs: new Float32Array(line.length * 3), back, arrow: wire.to < boxes.length && boxes[wire.to].inside?.entries.has(wire.values[0]) !== true, left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity,
  };
  line.forEach((bend, index) => {
    route.runs.set([bend.x, bend.enter, bend.leave], index * 3);
    route.left = Math.min(route.left, bend.x);
    route.right = Math.max(route.right, bend.x);
    route.top = Math.min(route.top, bend.enter, bend.leave);
    route.bottom = Math.max(route.bottom, bend.enter, bend.leave);
  });
  return route;
}
