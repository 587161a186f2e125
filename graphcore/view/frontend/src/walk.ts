/** Move between boxes with the arrow keys: along edges up and down, to neighbours left and right. */
import { itemKey, type Box, type Inside } from "./boxes";
import type { Item } from "./tree";
import type { Viewer } from "./viewer";

export type Way = "up" | "down" | "left" | "right";

/** Return the next item in a direction, or the first of the graph if none is selected. */
export function step(viewer: Viewer, way: Way): Item | null {
  const { inside, selected } = viewer;
  if (inside === null) return null;
  const spot = selected === null ? null : viewer.spotOf(selected);
  if (spot === null) return first(inside);
  const next = way === "up" || way === "down" ? along(spot.around, spot.box, way) : beside(spot.around, spot.box, way);
  if (next !== null) return next.item;
  return way === "down" && spot.box.inside !== null ? first(spot.box.inside) : null;
}

/** Enter an open box, or leave it for the enclosing one. */
export function into(viewer: Viewer): Item | null {
  const spot = viewer.selected === null ? null : viewer.spotOf(viewer.selected);
  return spot?.box.inside == null ? null : first(spot.box.inside);
}

export function out(viewer: Viewer): Item | null {
  const { selected, tree } = viewer;
  if (selected === null) return null;
  const home = selected.kind === "scope" ? selected.scope.parent : selected.kind === "node" ? tree.home[selected.node] : (selected.role === "input" ? tree.inputHome : tree.outputHome).get(selected.value);
  return home == null || home.parent === null ? null : { kind: "scope", scope: home };
}

export function first(inside: Inside): Item | null {
  const top = [...inside.boxes].sort((a, b) => a.y - b.y || a.x - b.x)[0];
  return top?.item ?? null;
}

function along(around: Inside, box: Box, way: "up" | "down"): Box | null {
  const at = around.boxes.findIndex((other) => itemKey(other.item) === itemKey(box.item));
  const ends = around.routes.flatMap((route) => (way === "down" ? (route.from === at ? route.to : []) : route.to === at ? route.from : []));
  return nearest(box, ends.flatMap((end) => around.boxes[end] ?? []));
}

function beside(around: Inside, box: Box, way: "left" | "right"): Box | null {
  const level = around.boxes.filter((other) => other !== box && other.y < box.y + box.height && other.y + other.height > box.y);
  return nearest(box, level.filter((other) => (way === "left" ? other.x < box.x : other.x > box.x)));
}

function nearest(box: Box, others: Box[]): Box | null {
  const middle = box.x + box.width / 2;
  const far = (other: Box): number => Math.abs(other.x + other.width / 2 - middle);
  return others.reduce((best: Box | null, other) => (best === null || far(other) < far(best) ? other : best), null);
}
