/** One drawing of one graph on a canvas: its open scopes, the selection and the visible part. */
import { everyBox, itemKey, scopeOf, type Box, type Inside } from "./boxes";
import { Camera } from "./camera";
import { draw, type Area, type Ink, type Marks } from "./draw";
import { Layout } from "./layout";
import type { Graph } from "./model";
import { Faces } from "./paint";
import type { Placer } from "./placer";
import { readTheme, type Theme } from "./theme";
import { Tree, type Item, type Scope } from "./tree";
import { first } from "./walk";

/** A box and the position of its enclosing box in the drawing. */
export interface Spot {
  box: Box;
  around: Inside;
  left: number;
  top: number;
}

/** The maximum number of boxes that are opened at first, and by "open all". */
const AT_FIRST = 110;
const AT_MOST = 3000;
const READABLE = 1;
/** Text is hard to read below this scale. */
export const LEGIBLE = 0.6;
/** The margin around the drawing. */
const MARGIN = 40;

export class Viewer {
  readonly tree: Tree;
  readonly camera: Camera;
  readonly open = new Set<Scope>();
  inside: Inside | null = null;
  selected: Item | null = null;
  colour: Marks["colour"] = () => null;
  /** Pixels on the left that are covered by the list of results. */
  covered = 0;
  /** Called when the selection changes, and after each drawing. */
  onSelect: (item: Item | null) => void = () => undefined;
  onDraw: () => void = () => undefined;
  onLayout: () => void = () => undefined;
  private readonly faces: Faces;
  private readonly layout: Layout;
  private theme: Theme = readTheme();
  private found: number[] = [];
  private foundBoxes = new Map<string, number>();
  private values: ReadonlySet<number> = new Set();
  private frame = 0;
  private turn = 0;

  constructor(readonly canvas: HTMLCanvasElement, readonly graph: Graph, placer: Placer) {
    this.tree = new Tree(graph);
    this.faces = new Faces(graph, this.theme.ui);
    this.layout = new Layout(this.tree, placer, (item) => this.faces.size(item));
    this.camera = new Camera(() => this.redraw());
    this.openSome(AT_FIRST, true);
  }

  async start(): Promise<void> {
    await this.arrange();
    this.fit(true);
    this.paint();
  }

  /** Lay out the open scopes again; of two concurrent calls the later one counts. */
  async arrange(): Promise<boolean> {
    const turn = ++this.turn;
    const inside = await this.layout.inside(this.tree.root, this.open);
    if (turn !== this.turn) return false;
    this.inside = inside;
    this.placeFound();
    this.onLayout();
    this.redraw();
    return true;
  }

  redraw(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paint());
  }

  paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.inside === null) return;
    const dots = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.round(this.canvas.clientWidth * dots);
    const height = Math.round(this.canvas.clientHeight * dots);
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const { x, y, scale } = this.camera;
    const across = width / Math.max(1, this.canvas.clientWidth);
    context.setTransform(scale * across, 0, 0, scale * across, x * across, y * across);
    this.drawOn(context, { left: -x / scale, top: -y / scale, right: (this.canvas.clientWidth - x) / scale, bottom: (this.canvas.clientHeight - y) / scale }, scale);
    this.onDraw();
  }

  drawOn(context: Ink, area: Area, scale: number): void {
    if (this.inside === null) return;
    const selected = this.selected === null ? null : itemKey(this.selected);
    draw(context, this.inside, area, scale, this.theme, this.faces, { selected, values: this.values, found: this.foundBoxes, colour: this.colour });
  }

  /** The area of the whole drawing. */
  get whole(): Area {
    return { left: -MARGIN, top: -MARGIN, right: (this.inside?.width ?? 0) + MARGIN, bottom: (this.inside?.height ?? 0) + MARGIN };
  }

  themeChanged(): void {
    this.theme = readTheme();
    this.redraw();
  }

  get colours(): Theme {
    return this.theme;
  }

  // Open scopes

  async toggle(scope: Scope): Promise<void> {
    const before = this.spotOf({ kind: "scope", scope });
    if (this.open.has(scope)) this.close(scope);
    else this.openOne(scope);
    if (!(await this.arrange())) return;
    const after = this.spotOf({ kind: "scope", scope });
    if (before === null || after === null) return;
    const { scale } = this.camera;
    const moved = { x: after.left + after.box.x - before.left - before.box.x, y: after.top + after.box.y - before.top - before.box.y };
    const wider = this.open.has(scope) ? (after.box.width - before.box.width) / 2 : 0;
    this.camera.move(-(moved.x + wider) * scale, -moved.y * scale);
  }

  async openAll(): Promise<boolean> {
    const all = this.openSome(AT_MOST);
    await this.arrange();
    this.fit();
    return all;
  }

  async closeAll(): Promise<void> {
    this.open.clear();
    await this.arrange();
    this.fit();
  }

  private close(scope: Scope): void {
    for (const inner of [...this.open]) if (this.tree.isInside(inner, scope)) this.open.delete(inner);
  }

  /** Opening a node with bodies opens these too; opening a scope with a single child scope opens that too. */
  private openOne(scope: Scope): void {
    this.open.add(scope);
    const scopes = scope.items.flatMap((item) => scopeOf(item) ?? []);
    for (const inner of scopes) if (inner.kind === "body" || scope.items.length === 1) this.openOne(inner);
  }

  /** Open level by level while at most `limit` boxes are drawn; `alike`: open all siblings or none. Return true if everything is open. */
  private openSome(limit: number, alike = false): boolean {
    let level = [this.tree.root];
    let drawn = this.tree.root.items.length;
    let all = true;
    while (level.length > 0) {
      const families = level.map((scope) => scope.items.flatMap((item) => (alike && this.callsFunction(item) ? [] : (scopeOf(item) ?? []))));
      const together = alike ? families : families.flat().map((scope) => [scope]);
      const sizes = new Map(together.map((scopes) => [scopes, scopes.reduce((sum, scope) => sum + scope.items.length, 0)]));
      together.sort((a, b) => (sizes.get(a) as number) - (sizes.get(b) as number));
      level = together.flatMap((scopes) => {
        const size = sizes.get(scopes) as number;
        const fits = drawn + size <= limit;
        all &&= fits;
        if (!fits) return [];
        drawn += size;
        for (const scope of scopes) this.open.add(scope);
        return scopes;
      });
    }
    return all;
  }

  /** Calls of functions stay closed at first: one body is drawn for many calls. */
  private callsFunction(item: Item): boolean {
    const node = this.graph.nodes[scopeOf(item)?.node ?? -1];
    return node !== undefined && node.bodies.some((body) => this.graph.groups[body]?.kind === "function");
  }

  // Selection

  select(item: Item | null): void {
    this.selected = item;
    this.values = new Set(item === null ? [] : this.valuesOf(item));
    this.onSelect(item);
    this.redraw();
  }

  itemOf(node: number): Item {
    const own = this.tree.own.get(node);
    return own === undefined ? { kind: "node", node } : { kind: "scope", scope: own };
  }

  /** Open the scopes around an item, select it and move it to the middle. */
  async show(item: Item, home: Scope): Promise<void> {
    const closed = this.tree.path(home).filter((scope) => scope.parent !== null && !this.open.has(scope));
    for (const scope of closed) this.open.add(scope);
    if (closed.length > 0) await this.arrange();
    this.select(item);
    this.centre(item, closed.length > 0);
  }

  showNode(node: number): Promise<void> {
    const shown = this.tree.shown(node);
    return this.show(this.itemOf(shown), this.tree.home[shown]);
  }

  showValue(value: number, role: "input" | "output"): Promise<void> {
    const home = (role === "input" ? this.tree.inputHome : this.tree.outputHome).get(value) ?? this.tree.root;
    return this.show({ kind: "value", value, role }, home);
  }

  private valuesOf(item: Item): number[] {
    if (item.kind === "value") return [item.value];
    const node = this.graph.nodes[item.kind === "node" ? item.node : item.scope.node];
    return node === undefined ? [] : [...node.operands, ...node.results].filter((value) => value >= 0);
  }

  setFound(nodes: number[]): void {
    this.found = nodes;
    this.placeFound();
    this.redraw();
  }

  /** Search results in a closed scope are marked on the scope. */
  private placeFound(): void {
    this.foundBoxes = new Map();
    for (const node of this.found.map((one) => this.tree.shown(one))) {
      const closed = this.tree.path(this.tree.home[node]).find((scope) => scope.parent !== null && !this.open.has(scope));
      const key = itemKey(closed === undefined ? this.itemOf(node) : { kind: "scope", scope: closed });
      this.foundBoxes.set(key, (this.foundBoxes.get(key) ?? 0) + 1);
    }
  }

  isFound(item: Item): boolean {
    return this.foundBoxes.has(itemKey(item));
  }

  // Visible part

  /** Show everything, or as much as is legible: around the selection, or else from the first box; at first at a readable scale. */
  fit(readable = false): void {
    const { inside, selected, canvas } = this;
    const item = selected !== null && this.spotOf(selected) !== null ? selected : inside === null ? null : first(inside);
    const spot = item === null ? null : this.spotOf(item);
    if (inside === null || spot === null) return;
    const across = (canvas.clientWidth - 2 * MARGIN) / Math.max(1, inside.width);
    const scale = Math.max(LEGIBLE, Math.min(1.1, across, (canvas.clientHeight - 2 * MARGIN) / Math.max(1, inside.height)), readable ? Math.min(READABLE, across) : 0);
    const x = (spot.left + spot.box.x + spot.box.width / 2) * scale;
    const y = (spot.top + spot.box.y + spot.box.height / 2) * scale;
    this.camera.set(clamped(canvas.clientWidth, inside.width * scale, x), clamped(canvas.clientHeight, inside.height * scale, y), scale);
  }

  centre(item: Item, atOnce: boolean): void {
    const spot = this.spotOf(item);
    if (spot === null) return;
    const scale = Math.max(READABLE, Math.min(this.camera.scale, 1.6));
    const { box } = spot;
    const middle = { x: spot.left + box.x + box.width / 2, y: spot.top + box.y + Math.min(box.height, this.canvas.clientHeight / scale - 60) / 2 };
    const { width, height } = this.inside as Inside;
    const x = this.covered + clamped(this.canvas.clientWidth - this.covered, width * scale, middle.x * scale);
    const y = clamped(this.canvas.clientHeight, height * scale, middle.y * scale);
    if (atOnce) this.camera.set(x, y, scale);
    else this.camera.glide(x, y, scale);
  }

  /** Return the innermost box at a point of the canvas. */
  spotAt(clientX: number, clientY: number): Spot | null {
    const x = (clientX - this.camera.x) / this.camera.scale;
    const y = (clientY - this.camera.y) / this.camera.scale;
    let spot: Spot | null = null;
    let around = this.inside;
    let left = 0;
    let top = 0;
    while (around !== null) {
      const here: Inside = around;
      const box = here.boxes.find((one) => x >= left + one.x && x <= left + one.x + one.width && y >= top + one.y && y <= top + one.y + one.height);
      if (box === undefined) break;
      spot = { box, around: here, left, top };
      left += box.x;
      top += box.y;
      around = box.inside;
    }
    return spot;
  }

  titleWidth(item: Item): number {
    return this.faces.titleWidth(item);
  }

  spotOf(item: Item): Spot | null {
    const key = itemKey(item);
    let spot: Spot | null = null;
    if (this.inside !== null) {
      everyBox(this.inside, 0, 0, (box, left, top, around) => {
        if (itemKey(box.item) === key) spot = { box, around, left, top };
      });
    }
    return spot;
  }
}

/** Return the position of a drawing of `size` that puts `point` in the middle of `room`, with as little empty space as possible. */
function clamped(room: number, size: number, point: number): number {
  if (size <= room - 2 * MARGIN) return (room - size) / 2;
  return Math.max(Math.min(room / 2 - point, MARGIN), room - MARGIN - size);
}
