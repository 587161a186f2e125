/** The path of a link: straight down within a layer, sideways only between layers, where there are no items. */

/** One link: x, and the height from which to which it runs straight down (or up) there; curves join the runs. */
export interface Bend {
  x: number;
  enter: number;
  leave: number;
}

/** An item by its centre. */
interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Band {
  centre: number;
  top: number;
  bottom: number;
}

/** Return the layers as bands of height: dagre centres the nodes of a layer on one line. */
export function bandsOf(nodes: readonly Place[]): Band[] {
  const bands = new Map<number, Band>();
  for (const node of nodes) {
    const key = Math.round(node.y * 2);
    const band = bands.get(key) ?? { centre: node.y, top: node.y, bottom: node.y };
    band.top = Math.min(band.top, node.y - node.height / 2);
    band.bottom = Math.max(band.bottom, node.y + node.height / 2);
    bands.set(key, band);
  }
  return [...bands.values()].sort((a, b) => a.centre - b.centre);
}

/** Within a band a link runs straight down in a column of its own; it moves sideways only between bands, where no item is. */
export function bendsOf(points: readonly { x: number; y: number }[], from: Place, to: Place, bands: readonly Band[]): Bend[] {
  const down = from.y <= to.y;
  const across = (y: number, x: number): Bend | null => {
    const band = bandAt(bands, y);
    if (band === null) return null;
    return down ? { x, enter: band.top, leave: band.bottom } : { x, enter: band.bottom, leave: band.top };
  };
  const start = across(from.y, from.x);
  const end = across(to.y, to.x);
  const first = side(from, down);
  const last = side(to, !down);
  const inner = points.slice(1, -1).flatMap((point) => across(point.y, point.x) ?? []);
  return [
    { x: from.x, enter: first, leave: start?.leave ?? first },
    ...inner,
    { x: to.x, enter: end?.enter ?? last, leave: last },
  ];
}

function side(node: Place, lower: boolean): number {
  return node.y + (lower ? node.height / 2 : -node.height / 2);
}

function bandAt(bands: readonly Band[], y: number): Band | null {
  let low = 0;
  let high = bands.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (Math.abs(bands[middle].centre - y) < 0.5) return bands[middle];
    if (bands[middle].centre < y) low = middle + 1;
    else high = middle - 1;
  }
  return null;
}

/** Lanes to the right of all items, one for all the long links of an item. */
export class Lanes {
  private readonly taken = new Map<number, number>();
  private readonly right: number;

  constructor(private readonly places: readonly Place[]) {
    this.right = Math.max(...places.map((place) => place.x + place.width / 2));
  }

  bends(from: number, to: number, bands: readonly Band[]): Bend[] {
    const [start, end] = [this.places[from], this.places[to]];
    const down = start.y < end.y;
    const passed = bands.filter((band) => band.centre > Math.min(start.y, end.y) + 0.5 && band.centre < Math.max(start.y, end.y) - 0.5);
    const direct = bendsOf([], start, end, bands);
    if (passed.length === 0) return direct;
    const [first, last] = down ? [passed[0], passed[passed.length - 1]] : [passed[passed.length - 1], passed[0]];
    const lane = down ? { x: this.lane(from), enter: first.top, leave: last.bottom } : { x: this.lane(from), enter: first.bottom, leave: last.top };
    return [direct[0], lane, direct[1]];
  }

  private lane(item: number): number {
    const number = this.taken.get(item) ?? this.taken.size;
    this.taken.set(item, number);
    return this.right + 18 + 12 * number;
  }
}
