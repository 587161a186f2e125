/** The keyboard shortcuts: one table, which the help shows. */
import type { App } from "./app";
import { button, h } from "./dom";
import { into, out, step, type Way } from "./walk";

interface Key {
  keys: string[];
  words: string;
  press: (app: App, event: KeyboardEvent) => void;
}

const PAN = 90;

const KEYS: Key[] = [
  { keys: ["/"], words: "Search; fields: op:conv dtype:int8 dim:batch name:encoder", press: (app) => app.search.focus() },
  { keys: ["n", "N"], words: "Next and previous search result", press: (app, event) => app.search.move(event.key === "N" ? -1 : 1) },
  { keys: ["ArrowUp", "ArrowDown"], words: "Go to a producer of the node, to a consumer", press: walk },
  { keys: ["ArrowLeft", "ArrowRight"], words: "Go to a neighbour; with Shift, all four arrows move the drawing", press: walk },
  { keys: ["Enter"], words: "Open or close the selected group", press: (app) => app.toggleSelected() },
  { keys: ["i", "o"], words: "Go into the open group, out to the enclosing group", press: (app, event) => app.select((event.key === "i" ? into : out)(app.viewer) ?? app.viewer.selected, true) },
  { keys: ["e", "c"], words: "Open all groups, close all", press: (app, event) => void (event.key === "e" ? app.openAll() : app.viewer.closeAll()) },
  { keys: ["+", "-"], words: "Larger, smaller", press: (app, event) => app.zoom(event.key === "-" ? 1 / 1.3 : 1.3) },
  { keys: ["0", "1"], words: "Fit the graph as far as it is legible, show full size", press: (app, event) => (event.key === "0" ? app.viewer.fit() : app.fullSize()) },
  { keys: ["g", "v"], words: "Next graph (as built, as lowered), next overlay", press: (app, event) => (event.key === "g" ? app.nextView() : app.nextOverlay()) },
  { keys: ["b"], words: "Compare the selected node before and after lowering", press: (app) => app.compareSelected() },
  { keys: ["l"], words: "Copy a link to the selected node", press: (app) => void app.copyLink() },
  { keys: ["s", "S"], words: "Save the drawing as SVG, as PNG", press: (app, event) => (event.key === "s" ? app.saveSvg() : void app.savePng()) },
  { keys: ["p", "m"], words: "Show or hide the panel, the map", press: (app, event) => (event.key === "p" ? app.togglePanel() : app.toggleMap()) },
  { keys: ["d"], words: "Light or dark", press: (app) => app.switchTheme() },
  { keys: ["Escape"], words: "Clear the selection; leave the search", press: (app) => app.escape() },
  { keys: ["?"], words: "These keys", press: () => help() },
];

const WAYS: Record<string, Way> = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const PANS: Record<Way, [number, number]> = { up: [0, PAN], down: [0, -PAN], left: [PAN, 0], right: [-PAN, 0] };

function walk(app: App, event: KeyboardEvent): void {
  const way = WAYS[event.key];
  if (event.shiftKey) app.viewer.camera.move(...PANS[way]);
  else app.select(step(app.viewer, way) ?? app.viewer.selected, true);
}

export function listenToKeys(app: App): void {
  document.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
    if (target.matches("input, select, textarea")) return;
    if (event.key === "Enter" && target.matches("button, a")) return;
    if (event.key.startsWith("Arrow") && target.closest("aside") !== null) return;
    const key = KEYS.find((one) => one.keys.includes(event.key));
    if (key === undefined) return;
    event.preventDefault();
    key.press(app, event);
  });
}

const SHOWN: Record<string, string> = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

export function help(): void {
  const rows = KEYS.flatMap((key) => [h("dt", {}, ...key.keys.map((one) => h("kbd", {}, SHOWN[one] ?? one))), h("dd", {}, key.words)]);
  const pointer = "Drag to move the drawing; the wheel zooms, with Shift it scrolls sideways. Click to select; click + or −, or double-click, to open and close a group.";
  const dialog = h(
    "dialog",
    { set: { "aria-labelledby": "help-title" } },
    h("div", { class: "top" }, h("h2", { set: { id: "help-title" } }, "Keys"), button("Close", () => dialog.close())),
    h("dl", { class: "keys" }, ...rows),
    h("p", { class: "subtitle" }, pointer),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
