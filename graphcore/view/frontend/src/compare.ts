/** A node before lowering and its replacement, side by side. */
import type { App } from "./app";
import { cut } from "./cut";
import { button, h, name } from "./dom";
import type { Graph } from "./model";
import { listen } from "./pointer";
import type { Placer } from "./placer";
import { countText, opText } from "./text";
import { Viewer } from "./viewer";

export async function compare(app: App, placer: Placer, node: number, target: number): Promise<void> {
  const { page } = app;
  const lowered = page.lowered[target];
  const record = page.graph.nodes[node].lowered?.find((one) => one.target === target);
  if (lowered === undefined || record === undefined) return;
  const close = button("Close", () => dialog.close());
  const words = record.reason === "" ? "Lowering did not change it." : record.reason;
  const before = figure("Before", page.graph, [node]);
  const after = figure(`After, for ${lowered.target}`, lowered.graph, record.nodes);
  const dialog = h(
    "dialog",
    { set: { "aria-labelledby": "compare-title" } },
    h("div", { class: "top" }, h("h2", { set: { id: "compare-title" } }, opText(page.graph.nodes[node]), " ", name(page.graph.nodes[node].name)), close),
    h("p", { class: "reason-words" }, words),
    h("div", { class: "sides" }, before.element, after.element),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  const viewers = [before, after].map((side) => new Viewer(side.canvas, side.graph, placer));
  for (const viewer of viewers) {
    listen(viewer, () => undefined);
    await viewer.start();
    viewer.fit();
  }
  const scale = Math.min(...viewers.map((viewer) => viewer.camera.scale));
  for (const { camera, canvas } of viewers) camera.zoom(scale / camera.scale, canvas.clientWidth / 2, canvas.clientHeight / 2);
  for (const viewer of viewers) viewer.paint();
  dialog.dataset.ready = "true";

  function figure(caption: string, graph: Graph, nodes: number[]): { element: HTMLElement; canvas: HTMLCanvasElement; graph: Graph } {
    const ops = nodes.map((one) => opText(graph.nodes[one])).join(", ");
    const canvas = h("canvas", { set: { role: "img", "aria-label": `${caption}: ${ops}` } });
    return { element: h("figure", {}, h("figcaption", {}, `${caption}: ${countText(nodes.length, "node")}`), canvas), canvas, graph: cut(graph, nodes).graph };
  }
}
