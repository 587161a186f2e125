/** The page: its graphs, the current view, and the parts that show it. */
import { keepPlace, placeHash, readPlace } from "./address";
import { scopeOf } from "./boxes";
import { compare } from "./compare";
import { download, h, refill } from "./dom";
import { listenToKeys } from "./keys";
import { Minimap } from "./minimap";
import type { Overlay, Page } from "./model";
import { Painted } from "./overlay";
import { describe } from "./panel";
import { pngOf, svgOf } from "./picture";
import { Placer } from "./placer";
import { listen } from "./pointer";
import { Runner } from "./run";
import { SearchBox } from "./searchbox";
import { countText, opText, plain, resultText, typeText } from "./text";
import { startTheme, switchTheme } from "./theme";
import { Toolbar } from "./toolbar";
import { nodesIn, type Item, type Scope } from "./tree";
import { LEGIBLE, Viewer, type Spot } from "./viewer";

export class App {
  /** -1 for the graph, else an index of `page.lowered`. */
  view = -1;
  viewer: Viewer;
  painted: Painted | null = null;
  readonly search: SearchBox;
  readonly runner: Runner | null;
  private readonly placer = new Placer();
  private readonly viewers = new Map<number, Viewer>();
  private readonly origins = new Map<number, Map<number, number[]>>();
  private readonly main = h("main");
  private readonly panel = h("aside", { set: { "aria-label": "Details" } });
  private readonly hint = h("div", { class: "hint", set: { hidden: true, "aria-hidden": "true" } });
  private readonly status = h("div", { class: "hidden", set: { role: "status" } });
  private readonly legend = h("div");
  private readonly minimap: Minimap;
  private readonly toolbar: Toolbar;

  constructor(readonly page: Page) {
    document.title = plain(page.title, 200);
    this.runner = page.run === undefined ? null : new Runner(this, page.run);
    this.findOrigins();
    startTheme(() => this.themeChanged());
    document.body.replaceChildren();
    document.body.append(this.main, this.panel, this.status);
    this.viewer = this.viewerOf(-1);
    this.minimap = new Minimap(this.viewer);
    this.search = new SearchBox(this);
    this.toolbar = new Toolbar(this);
    document.body.prepend(this.toolbar.element);
    this.main.append(this.minimap.canvas, this.toolbar.zoom, this.legend, this.hint);
    this.describe(null);
    listenToKeys(this);
    window.addEventListener("hashchange", () => void this.followAddress());
    new ResizeObserver(() => this.viewer.redraw()).observe(this.main);
  }

  async start(): Promise<void> {
    await this.viewer.start();
    performance.mark("graphcore:first-paint");
    document.documentElement.dataset.ready = "true";
    await this.followAddress();
  }

  // Graphs

  private viewerOf(view: number): Viewer {
    const cached = this.viewers.get(view);
    if (cached !== undefined) return cached;
    const graph = view < 0 ? this.page.graph : this.page.lowered[view].graph;
    const label = `Graph ${plain(graph.name, 100)}: ${countText(graph.nodes.length, "node")}. Use the arrow keys to move between nodes, / to search, ? for all keys.`;
    const canvas = h("canvas", { class: "graph", set: { tabindex: 0, role: "application", "aria-roledescription": "graph", "aria-label": label } });
    this.main.prepend(canvas);
    const viewer = new Viewer(canvas, graph, this.placer);
    viewer.onSelect = (item) => {
      this.describe(item);
      const node = this.nodeOf(item);
      keepPlace(node === null ? null : { node: graph.nodes[node].name, view });
    };
    viewer.onDraw = () => this.minimap.drawFrame();
    viewer.onLayout = () => this.minimap.drawPicture();
    listen(viewer, (spot, x, y) => this.hover(spot, x, y));
    this.viewers.set(view, viewer);
    return viewer;
  }

  /** Show a graph; false if another one was requested before the layout was ready. */
  async showView(view: number): Promise<boolean> {
    if (view === this.view) return true;
    const selected = this.nodeOf(this.viewer.selected);
    const counterpart = selected === null ? undefined : this.counterpart(selected, view);
    this.view = view;
    this.viewer = this.viewerOf(view);
    for (const [of, viewer] of this.viewers) viewer.canvas.hidden = of !== view;
    this.toolbar.viewChanged();
    this.minimap.show(this.viewer);
    this.search.graphChanged();
    this.paintOverlay(this.page.overlays.find((overlay) => overlay.of === view && overlay.name === this.painted?.overlay.name) ?? null);
    if (this.viewer.inside === null) await this.viewer.start();
    if (view !== this.view) return false;
    if (counterpart !== undefined) await this.viewer.showNode(counterpart);
    return true;
  }

  nextView(): void {
    void this.showView(((this.view + 2) % (this.page.lowered.length + 1)) - 1);
  }

  private counterpart(node: number, view: number): number | undefined {
    if (this.view >= 0) return view < 0 ? this.origins.get(this.view)?.get(node)?.[0] : undefined;
    return this.page.graph.nodes[node].lowered?.find((one) => one.target === view)?.nodes[0];
  }

  private findOrigins(): void {
    this.page.graph.nodes.forEach((node, index) => {
      for (const { target, nodes } of node.lowered ?? []) {
        const origins = this.origins.get(target) ?? new Map<number, number[]>();
        this.origins.set(target, origins);
        for (const lowered of nodes) origins.set(lowered, [...(origins.get(lowered) ?? []), index]);
      }
    });
  }

  /** Return the nodes that a node of the current lowered graph replaces. */
  originsOf(viewer: Viewer, node: number): number[] {
    return viewer === this.viewers.get(-1) ? [] : (this.origins.get(this.view)?.get(node) ?? []);
  }

  // Selection

  select(item: Item | null, follow = false): void {
    this.viewer.select(item);
    if (follow && item !== null) this.viewer.centre(item, false);
  }

  showNode(node: number): Promise<void> {
    return this.viewer.showNode(node);
  }

  async showIn(view: number, node: number): Promise<void> {
    this.viewer.select(null);
    if (await this.showView(view)) await this.viewer.showNode(node);
  }

  async showScope(scope: Scope): Promise<void> {
    if (scope.parent !== null) await this.viewer.show({ kind: "scope", scope }, scope.parent);
  }

  nodeOf(item: Item | null): number | null {
    if (item === null || item.kind === "value") return null;
    const node = item.kind === "node" ? item.node : item.scope.node;
    return node >= 0 ? node : null;
  }

  private describe(item: Item | null): void {
    refill(this.panel, ...describe(this, this.viewer, item));
    this.panel.scrollTop = 0;
    this.status.textContent = item === null ? "" : this.words(item);
  }

  private words(item: Item): string {
    const { graph } = this.viewer;
    const node = this.nodeOf(item);
    if (item.kind === "value") return plain(`${item.role} ${graph.values[item.value].name}, ${typeText(graph.values[item.value])}`);
    if (node !== null) return plain(`${opText(graph.nodes[node])} ${graph.nodes[node].name}, ${resultText(graph, graph.nodes[node])}`);
    const scope = scopeOf(item) as Scope;
    return plain(`${scope.kind} ${scope.name}, ${countText(nodesIn(scope).length, "node")}, ${this.viewer.open.has(scope) ? "open" : "closed"}`);
  }

  private hover(spot: Spot | null, x: number, y: number): void {
    const { camera, canvas } = this.viewer;
    canvas.style.cursor = spot === null ? "" : "pointer";
    const small = camera.scale < LEGIBLE && spot !== null && spot.box.inside === null;
    this.hint.hidden = !small;
    if (!small) return;
    this.hint.textContent = this.words(spot.box.item);
    const right = x > canvas.clientWidth / 2;
    this.hint.style.left = right ? "" : `${x + 14}px`;
    this.hint.style.right = right ? `${canvas.clientWidth - x + 10}px` : "";
    this.hint.style.top = `${Math.min(y + 14, canvas.clientHeight - 70)}px`;
  }

  private async followAddress(): Promise<void> {
    const place = readPlace(location.hash);
    if (place === null) return;
    const view = place.view < this.page.lowered.length ? place.view : -1;
    const selected = this.nodeOf(this.viewer.selected);
    if (view === this.view && selected !== null && this.viewer.graph.nodes[selected].name === place.node) return;
    if (!(await this.showView(view))) return;
    const node = this.viewer.graph.nodes.findIndex((one) => one.name === place.node);
    if (node >= 0) await this.viewer.showNode(node);
    else this.say("The node of this link is not in the graph.");
  }

  async copyLink(): Promise<void> {
    const node = this.nodeOf(this.viewer.selected);
    const hash = placeHash(node === null ? null : { node: this.viewer.graph.nodes[node].name, view: this.view });
    const link = location.href.replace(/#.*$/, "") + hash;
    try {
      await navigator.clipboard.writeText(link);
      this.say("Link copied.");
    } catch {
      this.say("The browser blocked copying; the link is in the address bar.");
    }
  }

  save(content: Blob, title: string, ending: string): void {
    download(content, `${plain(title, 80)}${ending}`);
  }

  saveSvg(): void {
    this.save(svgOf(this.viewer), this.page.title, ".svg");
  }

  async savePng(): Promise<void> {
    const { blob, scale } = await pngOf(this.viewer);
    if (blob === null) return this.say("The browser has no memory for this PNG; save an SVG.");
    this.save(blob, this.page.title, ".png");
    if (scale < LEGIBLE) this.say("The drawing is large: text of the PNG is small, that of an SVG is not.");
  }

  say(words: string): void {
    this.status.textContent = words;
    this.toolbar.say(words);
  }

  // Overlays

  paintOverlay(overlay: Overlay | null): void {
    this.painted = overlay === null ? null : new Painted(overlay, this.viewer.graph, this.viewer.colours);
    this.viewer.colour = (item) => this.painted?.colour(item) ?? null;
    refill(this.legend, this.painted?.legend());
    this.toolbar.overlayChanged();
    this.mapChanged();
    if (this.viewer.selected === null) this.describe(null);
    this.viewer.redraw();
  }

  nextOverlay(): void {
    const here = this.page.overlays.filter((overlay) => overlay.of === this.view);
    const at = here.findIndex((overlay) => overlay === this.painted?.overlay);
    this.paintOverlay(here[at + 1] ?? null);
  }

  /** Return the text of each overlay for a node. */
  textsOf(node: number): [string, string][] {
    return this.page.overlays.flatMap((overlay): [string, string][] => {
      if (overlay.of !== this.view || overlay.kind === "dtype") return [];
      const text = (overlay.numbers ?? overlay.words ?? []).find((one) => one[0] === node)?.[2];
      return text === undefined ? [] : [[overlay.name, text]];
    });
  }

  compare(node: number, target: number): void {
    void compare(this, this.placer, node, target);
  }

  /** Compare the selected node for the current target, or the first one. */
  compareSelected(): void {
    const node = this.nodeOf(this.viewer.selected);
    if (node === null) return this.say("Select a node first.");
    const origin = this.view < 0 ? node : this.originsOf(this.viewer, node)[0];
    const target = this.view < 0 ? this.page.graph.nodes[node].lowered?.[0]?.target : this.view;
    if (origin === undefined || target === undefined) return this.say("There is no lowering of this node to show.");
    return this.compare(origin, target);
  }

  // The page around the drawing

  searchFor(query: string): void {
    this.search.set(query);
  }

  mapChanged(): void {
    this.minimap.drawPicture();
  }

  async openAll(): Promise<void> {
    const all = await this.viewer.openAll();
    if (!all) this.say("The graph is large: only the outer groups are open.");
  }

  toggleSelected(): void {
    const { selected } = this.viewer;
    const scope = selected === null ? null : scopeOf(selected);
    if (scope !== null) void this.viewer.toggle(scope).then(() => this.viewer.select(selected));
  }

  zoom(factor: number): void {
    const { canvas, camera } = this.viewer;
    camera.zoom(factor, canvas.clientWidth / 2, canvas.clientHeight / 2);
  }

  fullSize(): void {
    this.zoom(1 / this.viewer.camera.scale);
  }

  togglePanel(): void {
    this.panel.hidden = !this.panel.hidden;
  }

  toggleMap(): void {
    this.minimap.canvas.hidden = !this.minimap.canvas.hidden;
  }

  switchTheme(): void {
    switchTheme();
    this.themeChanged();
  }

  private themeChanged(): void {
    for (const viewer of this.viewers?.values() ?? []) viewer.themeChanged();
    if (this.toolbar !== undefined) this.paintOverlay(this.painted?.overlay ?? null);
  }

  escape(): void {
    this.select(null);
    this.search.leave();
  }
}

