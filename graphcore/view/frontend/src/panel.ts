/** The side panel: details of the selection, or of the graph. */
import type { App } from "./app";
import { button, h, name, type Child } from "./dom";
import type { Graph, Node, Reason, Source, Value } from "./model";
import { statistics } from "./statistics";
import { bytesText, countText, fileText, opText, tally, targetText, typeText } from "./text";
import { nodesIn, type Item, type Scope } from "./tree";
import type { Viewer } from "./viewer";

const LINKS_SHOWN = 30;

export function describe(app: App, viewer: Viewer, item: Item | null): Child[] {
  if (item === null) return ofGraph(app, viewer);
  if (item.kind === "value") return ofValue(app, viewer, item.value);
  if (item.kind === "node") return ofNode(app, viewer, item.node);
  return item.scope.node >= 0 ? ofNode(app, viewer, item.scope.node, item.scope) : ofScope(app, viewer, item.scope);
}

function titled(app: App, title: string, ...subtitle: Child[]): Child[] {
  const close = button("×", () => app.select(null), { set: { "aria-label": "Close" } });
  return [h("div", { class: "top" }, h("h2", {}, name(title)), close), h("div", { class: "subtitle" }, ...subtitle)];
}

function section(title: string, ...children: Child[]): HTMLElement | null {
  const present = children.filter((child) => child !== null && child !== undefined);
  return present.length === 0 ? null : h("section", {}, h("h3", {}, title), ...present);
}

function path(app: App, viewer: Viewer, home: Scope): HTMLElement | null {
  const around = viewer.tree.path(home).slice(1);
  if (around.length === 0) return null;
  const links = around.map((scope) => button(scope.name || scope.kind, () => void app.showScope(scope), { class: "link" }));
  return h("nav", { class: "links", set: { "aria-label": "Groups around" } }, "in ", ...links);
}

function ofNode(app: App, viewer: Viewer, index: number, scope?: Scope): Child[] {
  const { graph, tree } = viewer;
  const node = graph.nodes[index];
  const actions = h("div", { class: "actions" }, button("Copy link", () => void app.copyLink()), scope === undefined ? null : toggle(viewer, scope));
  const attributes = node.attributes.map(([key, text]) => h("tr", {}, h("th", { set: { scope: "row" } }, name(key)), h("td", {}, name(text))));
  const bodyElsewhere = node.bodies.length > 0 && scope === undefined ? "The function is drawn at its first call." : null;
  return [
    ...titled(app, opText(node), name(node.name)),
    path(app, viewer, tree.home[index]),
    actions,
    node.cast === undefined ? null : reason(node.cast),
    source(node.source),
    lowering(app, viewer, node, index),
    measured(app, index),
    section("Attributes", attributes.length === 0 ? null : h("table", {}, h("tbody", {}, ...attributes))),
    section("Operands", ...node.operands.map((value, at) => operand(app, viewer, value, node.operandNames[at] ?? ""))),
    section("Results", ...node.results.map((value) => result(app, viewer, value))),
    bodyElsewhere === null ? null : section("Body", h("p", {}, bodyElsewhere)),
  ];
}

function toggle(viewer: Viewer, scope: Scope): HTMLElement {
  return button(viewer.open.has(scope) ? "Close" : "Open", () => void viewer.toggle(scope).then(() => viewer.select(viewer.selected)));
}

function reason(cast: Reason): HTMLElement {
  const who = cast.implicit ? h("strong", {}, `Inserted by the promotion system ${cast.system}`) : null;
  const pair = cast.pair === null ? null : h("p", { class: "type" }, `${cast.pair[0]} with ${cast.pair[1]} → ${cast.result}`);
  return h("section", { class: "why" }, h("h3", {}, "Why this cast"), h("div", { class: "card reason" }, who, pair, h("p", {}, cast.words)));
}

function source(origin: Source | undefined): HTMLElement | null {
  if (origin === undefined) return null;
  const where = h("p", { class: "subtitle", set: { title: `${origin.file}:${origin.line}` } }, name(`${fileText(origin.file)}:${origin.line}`));
  return section("Source", where, origin.text === "" ? null : h("pre", {}, origin.text.trim().replaceAll("\t", "    ")));
}

function lowering(app: App, viewer: Viewer, node: Node, index: number): HTMLElement | null {
  const origins = app.originsOf(viewer, index);
  if (origins.length > 0) {
    const links = origins.map((origin) => button(app.page.graph.nodes[origin].name, () => void app.showIn(-1, origin), { class: "link" }));
    return section("Replaces", h("div", { class: "links" }, ...links));
  }
  const parts = (node.lowered ?? []).map(({ target, nodes, reason: why }) => {
    const lowered = app.page.lowered[target];
    if (lowered === undefined) return null;
    const links = nodes.slice(0, LINKS_SHOWN).map((one) => button(opText(lowered.graph.nodes[one]), () => void app.showIn(target, one), { class: "link" }));
    return h(
      "div",
      { class: "card" },
      h("div", { class: "role" }, targetText(lowered)),
      h("p", {}, why === "" ? "Unchanged." : why),
      h("div", { class: "links" }, ...links),
      h("div", { class: "actions" }, button("Before and after", () => app.compare(index, target))),
    );
  });
  return section("After lowering", ...parts);
}

function measured(app: App, index: number): HTMLElement | null {
  const rows = app.textsOf(index).map(([what, text]) => h("tr", {}, h("th", { set: { scope: "row" } }, what), h("td", {}, name(text))));
  return section("Measured", rows.length === 0 ? null : h("table", {}, h("tbody", {}, ...rows)));
}

function nodeLink(app: App, graph: Graph, node: number): HTMLElement {
  return button(`${opText(graph.nodes[node])}  ${graph.nodes[node].name}`, () => void app.showNode(node), { class: "link" });
}

function facts(app: App, value: Value): Child[] {
  const size = value.bytes === undefined ? "" : `, ${bytesText(value.bytes)}`;
  return [
    h("code", {}, typeText(value)),
    h("span", { class: "role" }, size),
    value.text === undefined ? null : h("pre", {}, value.text),
    value.first === undefined ? null : h("pre", { set: { "aria-label": "First values" } }, value.first),
    value.statistics === undefined ? null : statistics(value.statistics),
    app.view < 0 && value.bytes !== undefined ? saving(app, value) : null,
  ];
}

/** The .npy file of a weight, or how to get it. NumPy reads dtypes of ml_dtypes as raw bytes. */
function saving(app: App, value: Value): Child {
  const { npy, name: title } = value;
  if (npy === "" || (npy === undefined && value.first === undefined)) return null;
  if (npy === undefined) return h("p", { class: "subtitle" }, "Its values are not in this page. Write the page with more: graphcore view --weight-bytes, or graph.save_html(weight_bytes=...).");
  const raw = /descr': '.V/.test(atob(npy.slice(0, 64)));
  const save = button("Save .npy", () => app.save(new Blob([Uint8Array.from(atob(npy), (letter) => letter.charCodeAt(0))]), title, ".npy"));
  return h("div", { class: "actions" }, save, raw ? h("span", { class: "subtitle" }, `np.load(path).view(ml_dtypes.${value.dtype})`) : null);
}

function operand(app: App, viewer: Viewer, index: number, as: string): HTMLElement {
  const value = viewer.graph.values[index];
  if (value === undefined) return h("div", { class: "card" }, h("span", { class: "role" }, `${as} `), "left out");
  const producer = viewer.tree.producer[index];
  const from = producer >= 0 ? h("div", { class: "links" }, "from ", nodeLink(app, viewer.graph, producer)) : null;
  const home = viewer.tree.inputHome.get(index);
  const link = producer < 0 && home !== undefined ? h("div", { class: "links" }, button(`Show the ${value.kind}`, () => void viewer.showValue(index, "input"), { class: "link" })) : null;
  return h("div", { class: "card" }, h("div", { class: "role" }, as === "" ? "" : `${as}: `, value.kind === "result" ? "" : `${value.kind} `, name(value.name)), ...facts(app, value), from, link);
}

function consumers(app: App, viewer: Viewer, index: number): HTMLElement {
  const users = viewer.tree.consumers[index];
  const more = users.length > LINKS_SHOWN ? `and ${users.length - LINKS_SHOWN} more` : null;
  const isOutput = viewer.graph.outputs.includes(index);
  const end = isOutput ? button("output of the graph", () => void viewer.showValue(index, "output"), { class: "link" }) : null;
  if (users.length === 0 && !isOutput) return h("div", { class: "role" }, "not used");
  return h("div", { class: "links" }, "to ", ...users.slice(0, LINKS_SHOWN).map((node) => nodeLink(app, viewer.graph, node)), more, end);
}

function result(app: App, viewer: Viewer, index: number): HTMLElement | null {
  const value = viewer.graph.values[index];
  if (value === undefined) return null;
  return h("div", { class: "card" }, h("div", { class: "role" }, name(value.name)), ...facts(app, value), consumers(app, viewer, index));
}

function ofValue(app: App, viewer: Viewer, index: number): Child[] {
  const value = viewer.graph.values[index];
  const producer = viewer.tree.producer[index];
  return [
    ...titled(app, value.name, producer >= 0 ? "output" : value.kind),
    section("Type", h("div", { class: "card" }, ...facts(app, value))),
    source(value.source),
    section("From", producer >= 0 ? nodeLink(app, viewer.graph, producer) : null),
    section("Used", consumers(app, viewer, index)),
  ];
}

function opsTable(app: App, graph: Graph, nodes: number[]): HTMLElement | null {
  const counts = tally(nodes.map((node) => opText(graph.nodes[node])));
  if (counts.length === 0) return null;
  const rows = counts.map(([op, count]) =>
    h("tr", {}, h("td", {}, button(op, () => app.searchFor(`op:${op}`), { class: "link" })), h("td", { class: "number" }, count.toLocaleString("en"))),
  );
  return h("table", {}, h("tbody", {}, ...rows));
}

function ofScope(app: App, viewer: Viewer, scope: Scope): Child[] {
  const kind = scope.kind === "section" ? "A section of a long list of nodes" : scope.kind === "layers" ? "layers of one kind" : scope.kind;
  return [
    ...titled(app, scope.name || scope.kind, `${kind}, ${countText(scope.total, "node")}`),
    scope.parent === null ? null : path(app, viewer, scope.parent),
    h("div", { class: "actions" }, toggle(viewer, scope)),
    section("Operators", opsTable(app, viewer.graph, nodesIn(scope))),
  ];
}

function ofGraph(app: App, viewer: Viewer): Child[] {
  const { graph } = viewer;
  const lowered = app.page.lowered[app.view];
  const ends = (values: number[], role: "input" | "output"): HTMLElement | null => section(
    role === "input" ? "Inputs" : "Outputs",
    ...values.map((value) => h("div", { class: "card" }, button(graph.values[value].name, () => void viewer.showValue(value, role), { class: "link" }), h("div", { class: "type" }, typeText(graph.values[value])))),
  );
  const implicit = graph.nodes.flatMap((node, index) => (node.cast?.implicit === true ? [index] : []));
  const passes = (lowered?.passes ?? []).map((pass) => h("tr", {}, h("th", { set: { scope: "row" } }, pass.name), h("td", {}, pass.reason)));
  const failures = app.view < 0 ? (app.page.failures ?? []) : [];
  const weights = graph.values.reduce((sum, value) => sum + (value.bytes ?? 0), 0);
  return [
    h("h2", {}, name(graph.name)),
    h("div", { class: "subtitle" }, lowered === undefined ? `${countText(graph.nodes.length, "node")}, weights of ${bytesText(weights)}, promotion ${app.page.promotion}` : `Lowered for ${targetText(lowered)}: ${countText(graph.nodes.length, "node")}`),
    h("div", { class: "actions" }, button("Save SVG", () => app.saveSvg(), { set: { title: "Save the drawing as SVG (s)" } }), button("Save PNG", () => void app.savePng(), { set: { title: "Save the drawing as PNG (S)" } })),
    app.view < 0 ? app.runner?.element : null,
    app.painted?.table((node) => void app.showNode(node)),
    ends(graph.inputs, "input"),
    ends(graph.outputs, "output"),
    section(`Inserted casts: ${implicit.length.toLocaleString("en")}`, ...implicit.slice(0, LINKS_SHOWN).map((node) =>
      h("div", { class: "card reason" }, nodeLink(app, graph, node), h("p", { class: "subtitle" }, graph.nodes[node].cast?.words)))),
    section("Not lowered", ...failures.map(({ target, reason: why }) => h("div", { class: "card" }, h("div", { class: "role" }, target), h("p", {}, why)))),
    section("Passes", passes.length === 0 ? null : h("table", {}, h("tbody", {}, ...passes))),
    section("Operators", opsTable(app, graph, graph.nodes.map((_, index) => index))),
    h("p", { class: "subtitle" }, `Written by graphcore ${app.page.writer}. Press ? for help.`),
  ];
}
