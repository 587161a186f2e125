/** The search box, its list of results, and the navigation between them. */
import type { App } from "./app";
import { button, h, name, refill } from "./dom";
import { Search } from "./search";
import { opText, plain, resultText } from "./text";

const LISTED = 200;
const WAIT = 90;

export class SearchBox {
  readonly input = h("input", {
    set: { type: "search", placeholder: "Search name, op, dtype, dim   ( / )", "aria-label": "Search nodes by name, operator, dtype or dim", role: "combobox", "aria-expanded": "false", "aria-controls": "results", autocomplete: "off", spellcheck: "false" },
  });
  private readonly count = h("output", { set: { "aria-live": "polite" } });
  private readonly previous = button("↑", () => this.move(-1), { set: { "aria-label": "Previous result", title: "Previous (Shift+Enter, N)" } });
  private readonly following = button("↓", () => this.move(1), { set: { "aria-label": "Next result", title: "Next (Enter, n)" } });
  private readonly list = h("ul", { class: "results", set: { id: "results", role: "listbox", "aria-label": "Results", hidden: true } });
  readonly element = h("div", { class: "searching", set: { role: "search" } }, this.input, this.previous, this.following, this.count, this.list);
  private search: Search;
  /** The last query. */
  searched = "";
  private found: number[] = [];
  private at = -1;
  private waiting = 0;

  constructor(private readonly app: App) {
    this.search = new Search(app.viewer.graph);
    this.input.addEventListener("input", () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.run(), WAIT);
    });
    this.input.addEventListener("focus", () => this.show(this.input.value.trim() !== ""));
    this.element.addEventListener("focusout", (event) => {
      if (!this.element.contains(event.relatedTarget as globalThis.Node | null)) this.show(false);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.enable();
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  set(query: string): void {
    this.input.value = query;
    this.run();
    this.focus();
  }

  /** Search again in another graph. */
  graphChanged(): void {
    this.search = new Search(this.app.viewer.graph);
    this.run();
    this.show(false);
  }

  move(by: number): void {
    if (this.found.length === 0) return;
    this.go(this.at < 0 ? (by > 0 ? 0 : this.found.length - 1) : (this.at + by + this.found.length) % this.found.length);
  }

  leave(): void {
    this.show(false);
    this.app.viewer.canvas.focus({ preventScroll: true });
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Enter" || event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.waiting !== 0) this.run();
      this.move(event.key === "ArrowUp" || (event.key === "Enter" && event.shiftKey) ? -1 : 1);
      this.show(this.input.value.trim() !== "" && (event.key !== "Enter" || this.found.length === 0));
    }
    if (event.key === "Escape") {
      event.preventDefault();
      if (this.input.value !== "" && this.list.hidden) this.set("");
      this.leave();
    }
  }

  private run(): void {
    clearTimeout(this.waiting);
    this.waiting = 0;
    this.found = this.search.find(this.input.value);
    this.searched = this.input.value;
    this.at = -1;
    this.app.viewer.setFound(this.found);
    this.app.mapChanged();
    this.fillList();
    this.show(this.input.value.trim() !== "");
    this.enable();
  }

  private go(at: number): void {
    this.at = at;
    void this.app.showNode(this.found[at]);
    this.enable();
    for (const row of this.list.querySelectorAll("[role=option]")) row.setAttribute("aria-selected", String(row.id === `result-${at}`));
    const row = this.list.querySelector(`#result-${at}`);
    row?.scrollIntoView({ block: "nearest" });
    if (row !== null) this.input.setAttribute("aria-activedescendant", row.id);
  }

  private show(visible: boolean): void {
    this.list.hidden = !visible;
    const list = this.list.getBoundingClientRect();
    const drawn = this.app.viewer.canvas.getBoundingClientRect();
    this.app.viewer.covered = visible && list.right < drawn.left + 0.65 * drawn.width ? list.right - drawn.left : 0;
    this.input.setAttribute("aria-expanded", String(visible));
  }

  private enable(): void {
    const { found } = this;
    this.previous.disabled = found.length === 0;
    this.following.disabled = found.length === 0;
    const total = found.length.toLocaleString("en");
    this.count.textContent = this.input.value.trim() === "" ? "" : found.length === 0 ? "none" : this.at < 0 ? `${total} found` : `${(this.at + 1).toLocaleString("en")} of ${total}`;
  }

  private fillList(): void {
    const { graph } = this.app.viewer;
    const rows = this.found.slice(0, LISTED).map((node, at) => {
      const row = h("li", { set: { role: "option", id: `result-${at}`, "aria-selected": "false" } }, h("span", { class: "op" }, opText(graph.nodes[node])), name(graph.nodes[node].name, 200), h("span", { class: "type" }, resultText(graph, graph.nodes[node])));
      row.addEventListener("click", () => {
        this.go(at);
        this.show(false);
      });
      return row;
    });
    const rest = this.found.length - rows.length;
    refill(this.list, ...rows, rest > 0 ? h("li", { class: "more", set: { role: "presentation" } }, `and ${rest.toLocaleString("en")} more: use the arrows to reach them`) : null, this.found.length === 0 ? this.none() : null);
  }

  private none(): HTMLElement {
    const similar = this.search.similar(this.input.value);
    const links = similar.map((query) => button(plain(query, 80), () => this.set(query), { class: "link" }));
    const advice = links.length > 0 ? h("div", { class: "links" }, "Similar: ", ...links) : h("div", {}, "Fields: name: op: dtype: dim:");
    return h("li", { class: "more", set: { role: "presentation" } }, "No node has ", name(this.input.value, 80), ".", advice);
  }
}
