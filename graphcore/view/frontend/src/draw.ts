/** Draw boxes and routes on a canvas: only the visible part, with fewer details at smaller scales. */
import { itemKey, scopeOf, type Box, type Inside, type Route } from "./boxes";
import { SIZE, type Face, type Faces } from "./paint";
import type { Theme } from "./theme";
import type { Item } from "./tree";

/** The marks in the drawing. */
export interface Marks {
  selected: string | null;
  /** Values of the selected node, whose routes are highlighted. */
  values: ReadonlySet<number>;
  /** Boxes with search results, or that contain such boxes. */
  found: ReadonlyMap<string, number>;
  /** The overlay's colour and text for a box. */
  colour: (item: Item) => { fill: string; text: string } | null;
}

/** What is used of a canvas; `picture.ts` writes the same as SVG. */
export type Ink = Pick<CanvasRenderingContext2D, "fillStyle" | "strokeStyle" | "lineWidth" | "font" | "textAlign" | "textBaseline" | "direction" | "beginPath" | "moveTo" | "lineTo" | "bezierCurveTo" | "closePath" | "fill" | "stroke" | "fillRect" | "fillText" | "measureText" | "setLineDash"> & {
  roundRect(x: number, y: number, width: number, height: number, radii: number | number[]): void;
};

/** A part of the drawing, in its coordinates. */
export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

interface Pen extends Area {
  context: Ink;
  theme: Theme;
  faces: Faces;
  marks: Marks;
  scale: number;
}

/** Below these scales, text and then arrows are too small to read. */
const WORDS_FROM = 0.3;
const ARROWS_FROM = 0.18;
const CORNER = 7;

/** Draw an area of `inside` on a context whose coordinates are those of the drawing. */
export function draw(context: Ink, inside: Inside, area: Area, scale: number, theme: Theme, faces: Faces, marks: Marks): void {
  context.fillStyle = theme.colour.paper;
  context.fillRect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  context.direction = "ltr";
  context.textBaseline = "middle";
  drawInside({ context, theme, faces, marks, scale, ...area }, inside, 0, 0, 0);
}

function drawInside(pen: Pen, inside: Inside, left: number, top: number, depth: number): void {
  const seen = (x: number, y: number, right: number, bottom: number): boolean => left + right >= pen.left && left + x <= pen.right && top + bottom >= pen.top && top + y <= pen.bottom;
  const boxes = inside.boxes.filter((box) => seen(box.x - 4, box.y - 4, box.x + box.width + 4, box.y + box.height + 4));
  for (const box of boxes) if (box.inside !== null) drawGround(pen, box, left, top, depth);
  const routes = inside.routes.filter((route) => seen(route.left - 2, route.top - 2, route.right + 2, route.bottom + 2));
  drawRoutes(pen, routes.filter((route) => !marked(pen, route)), left, top, false);
  for (const box of boxes) {
    if (box.inside !== null) drawInside(pen, box.inside, left + box.x, top + box.y, depth + 1);
    else drawBox(pen, box, left + box.x, top + box.y);
  }
  drawRoutes(pen, routes.filter((route) => marked(pen, route)), left, top, true);
  for (const box of boxes) if (box.inside !== null) drawTitle(pen, box, left + box.x, top + box.y);
}

function marked(pen: Pen, route: Route): boolean {
  return pen.marks.values.size > 0 && route.values.some((value) => pen.marks.values.has(value));
}

function drawRoutes(pen: Pen, routes: Route[], left: number, top: number, strong: boolean): void {
  const { context, theme } = pen;
  const colour = strong ? theme.colour.accent : theme.colour.edge;
  context.lineWidth = Math.max(strong ? 2.2 : 1.2, (strong ? 1.6 : 0.7) / pen.scale);
  context.strokeStyle = colour;
  for (const back of [false, true]) {
    context.setLineDash(back ? [5, 4] : []);
    context.beginPath();
    for (const route of routes) if (route.back === back) trace(context, route, left, top);
    context.stroke();
  }
  context.setLineDash([]);
  if (pen.scale < ARROWS_FROM) return;
  context.fillStyle = colour;
  context.beginPath();
  for (const route of routes) {
    if (!route.arrow) continue;
    const at = route.runs.length - 3;
    const x = left + route.runs[at];
    const y = top + route.runs[at + 2];
    const down = route.back ? -1 : 1;
    context.moveTo(x, y);
    context.lineTo(x - 3.6, y - 7 * down);
    context.lineTo(x + 3.6, y - 7 * down);
    context.closePath();
  }
  context.fill();
}

function trace(context: Ink, route: Route, left: number, top: number): void {
  const { runs } = route;
  let x = left + runs[0];
  let y = top + runs[2];
  context.moveTo(x, top + runs[1]);
  context.lineTo(x, y);
  for (let at = 3; at < runs.length; at += 3) {
    const nextX = left + runs[at];
    const nextY = top + runs[at + 1];
    if (Math.abs(nextX - x) < 0.5) context.lineTo(nextX, nextY);
    else {
      const middle = (y + nextY) / 2;
      context.bezierCurveTo(x, middle, nextX, middle, nextX, nextY);
    }
    x = nextX;
    y = top + runs[at + 2];
    context.lineTo(x, y);
  }
}

function frame(pen: Pen, box: Box): { line: string; width: number } {
  const { theme, marks } = pen;
  const thin = 1 / Math.max(pen.scale, 0.6);
  if (marks.selected === itemKey(box.item)) return { line: theme.colour.accent, width: Math.max(2.5, 2 / pen.scale) };
  if (marks.found.has(itemKey(box.item))) return { line: theme.colour.found, width: Math.max(2, 1.6 / pen.scale) };
  return { line: theme.colour["scope-line"], width: thin };
}

function drawGround(pen: Pen, box: Box, left: number, top: number, depth: number): void {
  const { context, theme } = pen;
  const line = frame(pen, box);
  context.beginPath();
  context.roundRect(left + box.x, top + box.y, box.width, box.height, CORNER + 3);
  context.fillStyle = depth % 2 === 0 ? theme.colour.scope : theme.colour.paper;
  context.fill();
  context.strokeStyle = line.line;
  context.lineWidth = line.width;
  context.stroke();
}

function drawTitle(pen: Pen, box: Box, x: number, y: number): void {
  const { context, theme, faces } = pen;
  if (pen.scale < WORDS_FROM / 2) return;
  const face = faces.face(box.item);
  const size = Math.min(SIZE.title, 22 / Math.max(pen.scale, 0.3));
  context.font = `600 ${size}px ${theme.ui}`;
  const width = context.measureText(face.title).width;
  context.fillStyle = headOf(theme, face, box.item, theme.colour.sheet, pen.marks.colour(box.item) !== null);
  context.strokeStyle = theme.colour["scope-line"];
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x + 8, y + 7, width + 34, 22, 6);
  context.fill();
  context.stroke();
  context.fillStyle = theme.colour.ink;
  context.fillText(face.title, x + 15, y + 18.5);
  drawSign(context, x + 8 + width + 20, y + 18, true, theme.colour.quiet);
}

/** The colour of an operator's family, or of a kind of numbered layers unless an overlay has colours of its own. */
function headOf(theme: Theme, face: Face, item: Item, usual: string, painted: boolean): string {
  if (!face.opens || scopeOf(item)?.kind === "node") return theme.family[face.family];
  return painted || face.kind < 0 ? usual : theme.words[face.kind % theme.words.length];
}

/** A minus sign for an open scope, a plus sign for a closed one. */
function drawSign(context: Ink, x: number, y: number, open: boolean, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x + 4, y);
  if (!open) {
    context.moveTo(x, y - 4);
    context.lineTo(x, y + 4);
  }
  context.stroke();
}

function drawBox(pen: Pen, box: Box, x: number, y: number): void {
  const { context, theme, faces, marks } = pen;
  const face = faces.face(box.item);
  const overlay = marks.colour(box.item);
  const line = frame(pen, box);
  const head = overlay?.fill ?? headOf(theme, face, box.item, theme.colour.pile, false);
  const end = box.item.kind === "value";
  const corner = end ? box.height / 2 : CORNER;
  if (face.opens) drawPile(pen, box, x, y, line.line);
  context.beginPath();
  context.roundRect(x, y, box.width, box.height, corner);
  context.fillStyle = pen.scale < WORDS_FROM ? head : theme.colour.sheet;
  if (marks.found.has(itemKey(box.item))) context.fillStyle = theme.colour["found-soft"];
  context.fill();
  if (pen.scale >= WORDS_FROM && !end) {
    context.beginPath();
    context.roundRect(x, y, box.width, SIZE.titleHeight, face.lines.length > 0 ? [CORNER, CORNER, 0, 0] : CORNER);
    context.fillStyle = head;
    context.fill();
  }
  context.beginPath();
  context.roundRect(x, y, box.width, box.height, corner);
  context.strokeStyle = face.implicit && line.width < 1.8 ? theme.colour.warn : line.line;
  context.lineWidth = line.width;
  context.setLineDash(face.implicit ? [4, 3] : []);
  context.stroke();
  context.setLineDash([]);
  if (pen.scale >= WORDS_FROM) drawWords(pen, box, x, y, overlay?.text ?? null);
}

/** A closed scope looks like a pile of sheets. */
function drawPile(pen: Pen, box: Box, x: number, y: number, line: string): void {
  const { context, theme } = pen;
  context.beginPath();
  context.roundRect(x + 4, y + 4, box.width, box.height, CORNER);
  context.fillStyle = theme.colour.sheet;
  context.fill();
  context.strokeStyle = line;
  context.lineWidth = 1 / Math.max(pen.scale, 0.6);
  context.stroke();
}

function drawWords(pen: Pen, box: Box, x: number, y: number, instead: string | null): void {
  const { context, theme, faces } = pen;
  const face = faces.face(box.item);
  const end = box.item.kind === "value";
  context.fillStyle = theme.colour.ink;
  context.font = `600 ${SIZE.title}px ${theme.ui}`;
  context.textAlign = end ? "center" : "left";
  const at = end ? x + box.width / 2 : x + SIZE.padding;
  context.fillText(face.title, at, y + SIZE.titleHeight / 2 + (end ? 3 : 0.5));
  if (face.opens) drawSign(context, x + box.width - 14, y + SIZE.titleHeight / 2, false, theme.colour.quiet);
  context.font = `400 ${SIZE.line}px ${theme.ui}`;
  face.lines.forEach((line, index) => {
    const replaced = index === 0 && instead !== null && !end;
    context.fillStyle = replaced ? theme.colour.ink : theme.colour.quiet;
    context.fillText(replaced ? instead : line, at, y + SIZE.titleHeight + 4 + SIZE.lineHeight * (index + 0.5) - (end ? 1 : 0));
  });
  context.textAlign = "left";
}
