/** The colours and texts of an overlay, its legend, and its table of the largest values. */
import { h, name } from "./dom";
import type { Graph, Overlay } from "./model";
import { opText, quantityText, tally } from "./text";
import { between, type Theme } from "./theme";
import { nodesIn, type Item, type Scope } from "./tree";

/** Overlays in which the number of a group is the sum over its nodes; in others it is the maximum. */
const SUMMED = new Set(["time", "memory"]);
const SHOWN = 25;

interface Colour {
  fill: string;
  text: string;
}

export class Painted {
  private readonly numbers = new Map<number, { value: number; text: string }>();
  private readonly words = new Map<number, { category: string; text: string }>();
  private readonly categories: [string, number][];
  private readonly cache = new Map<Scope, Colour | null>();
  private readonly scopes = new Map<Scope, number | null>();
  private readonly greatest: number;

  constructor(readonly overlay: Overlay, private readonly graph: Graph, private readonly theme: Theme) {
    for (const [node, value, text] of overlay.numbers ?? []) this.numbers.set(node, { value, text });
    for (const [node, category, text] of overlay.words ?? []) this.words.set(node, { category, text });
    this.categories = tally((overlay.words ?? []).map((word) => word[1]));
    this.greatest = Math.max(0, ...[...this.numbers.values()].map((number) => Math.abs(number.value)));
  }

  colour(item: Item): Colour | null {
    if (item.kind === "value") return null;
    if (item.kind === "node") return this.ofNode(item.node);
    const cached = this.cache.get(item.scope);
    if (cached !== undefined) return cached;
    const colour = this.ofScope(item.scope);
    this.cache.set(item.scope, colour);
    return colour;
  }

  textOf(node: number): string | null {
    return this.numbers.get(node)?.text ?? this.words.get(node)?.text ?? null;
  }

  private ofNode(node: number): Colour | null {
    const number = this.numbers.get(node);
    if (number !== undefined) return { fill: this.heat(Math.abs(number.value) / (this.greatest || 1)), text: number.text };
    const word = this.words.get(node);
    return word === undefined ? this.blank() : { fill: this.ofCategory(word.category), text: word.text };
  }

  private blank(): Colour {
    return { fill: this.theme.colour.sheet, text: "" };
  }

  private heat(part: number): string {
    return between(this.theme.colour["heat-low"], this.theme.colour["heat-high"], Math.min(1, part));
  }

  private ofScope(scope: Scope): Colour | null {
    if (this.words.size > 0) return this.ofWords(scope);
    const value = this.number(scope);
    if (value === null) return this.blank();
    const beside = (scope.parent?.items ?? []).flatMap((item) => (item.kind === "scope" ? (this.number(item.scope) ?? 0) : []));
    const text = SUMMED.has(this.overlay.kind) ? quantityText(value, this.overlay.unit) : `up to ${quantityText(value, this.overlay.unit)}`;
    return { fill: this.heat(value / (Math.max(this.greatest, ...beside) || 1)), text };
  }

  private number(scope: Scope): number | null {
    const cached = this.scopes.get(scope);
    if (cached !== undefined) return cached;
    const values = nodesIn(scope).flatMap((node) => this.numbers.get(node)?.value ?? []);
    const number = values.length === 0 ? null : SUMMED.has(this.overlay.kind) ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values.map(Math.abs));
    this.scopes.set(scope, number);
    return number;
  }

  private ofWords(scope: Scope): Colour | null {
    const sorted = tally(nodesIn(scope).flatMap((node) => this.words.get(node)?.category ?? []));
    if (sorted.length === 0) return this.blank();
    const text = sorted.length === 1 ? sorted[0][0] : sorted.slice(0, 3).map(([category, count]) => `${category} ×${count}`).join(", ");
    return { fill: this.ofCategory(sorted[0][0]), text };
  }

  private ofCategory(category: string): string {
    const { colour, words } = this.theme;
    if (this.overlay.kind === "difference") {
      if (category.startsWith("added") || category === "only here") return colour.added;
      if (category.startsWith("removed")) return colour.removed;
      if (category.startsWith("changed")) return colour.changed;
    }
    const at = this.categories.findIndex(([label]) => label === category);
    return words[Math.min(at, words.length - 1)];
  }

  legend(): HTMLElement {
    const { overlay } = this;
    const list = h("ul");
    if (this.words.size > 0) {
      for (const [category, count] of this.categories.slice(0, 16)) {
        const swatch = h("span", { class: "swatch" });
        swatch.style.background = this.ofCategory(category);
        list.append(h("li", {}, swatch, name(category, 60), h("span", {}, count.toLocaleString("en"))));
      }
      return h("section", { class: "legend", set: { "aria-label": "Legend" } }, h("h2", {}, overlay.name), list);
    }
    const ends = h("div", { class: "ends" }, h("span", {}, "0"), h("span", {}, quantityText(this.greatest, overlay.unit)));
    return h("section", { class: "legend", set: { "aria-label": "Legend" } }, h("h2", {}, overlay.name), h("div", { class: "heat" }), ends);
  }

  /** Return the nodes with the largest numbers, or with words other than the most common one. */
  table(go: (node: number) => void): HTMLElement {
    const row = (node: number, text: string): HTMLElement => {
      const graphNode = this.graph.nodes[node];
      const link = h("button", { class: "link", set: { type: "button" }, on: { click: () => go(node) } }, name(graphNode.name, 90));
      return h("tr", {}, h("td", {}, link, h("div", { class: "subtitle" }, opText(graphNode))), h("td", { class: "number" }, text));
    };
    const [largest, count] = this.categories[0] ?? ["", 0];
    const usual = 2 * count > this.graph.nodes.length ? largest : null;
    const rows = this.numbers.size > 0
      ? [...this.numbers].sort((a, b) => Math.abs(b[1].value) - Math.abs(a[1].value)).slice(0, SHOWN).map(([node, number]) => row(node, number.text))
      : [...this.words].filter(([, word]) => word.category !== usual).slice(0, SHOWN).map(([node, word]) => row(node, word.text));
    const title = this.numbers.size > 0 ? "largest" : usual === null ? "nodes" : `other than ${usual}`;
    const body = rows.length === 0 ? h("p", { class: "subtitle" }, "None.") : h("table", {}, h("tbody", {}, ...rows));
    return h("section", { class: "greatest" }, h("h3", {}, `${this.overlay.name}: ${title}`), this.overlay.note === "" ? null : h("p", { class: "subtitle" }, this.overlay.note), body);
  }
}
