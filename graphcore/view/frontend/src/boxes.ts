/** The drawing: nested boxes and the routes between them, in coordinates of the enclosing box. */
import type { Item, Scope } from "./tree";

export interface Box {
  item: Item;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Of an open scope. */
  inside: Inside | null;
}

export interface Inside {
  width: number;
  height: number;
  boxes: Box[];
  routes: Route[];
  /** Where a value enters at the upper edge and leaves at the lower one. */
  entries: Map<number, number>;
  exits: Map<number, number>;
}

/** x, y from, y to, in threes: straight runs down; curves join one to the next. */
export interface Route {
  values: number[];
  /** Boxes by index, -1 for the edge of the scope. */
  from: number;
  to: number;
  runs: Float32Array;
  /** The route runs against the direction of the graph. */
  back: boolean;
  /** The route ends at a box, not at the edge of an open box, where it continues. */
  arrow: boolean;
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function itemKey(item: Item): string {
  if (item.kind === "node") return `n${item.node}`;
  if (item.kind === "value") return `${item.role}${item.value}`;
  return item.scope.node >= 0 ? `n${item.scope.node}` : `s${item.scope.id}`;
}

export function scopeOf(item: Item): Scope | null {
  return item.kind === "scope" ? item.scope : null;
}

/** Call `visit` with each box and the position of the enclosing box. */
export function everyBox(inside: Inside, left: number, top: number, visit: (box: Box, left: number, top: number, around: Inside) => void): void {
  for (const box of inside.boxes) {
    visit(box, left, top, inside);
    if (box.inside !== null) everyBox(box.inside, left + box.x, top + box.y, visit);
  }
}
