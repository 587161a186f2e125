/** The toolbar, and the zoom buttons. */
import type { App } from "./app";
import { button, h, name } from "./dom";
import { help } from "./keys";
import { plain } from "./text";

const SAID = 4000;

export class Toolbar {
  private readonly views = h("select", { set: { "aria-label": "Graph" } });
  private readonly overlays = h("select", { set: { "aria-label": "Overlay" } });
  private readonly message = h("span", { class: "subtitle", set: { "aria-hidden": "true" } });
  readonly element: HTMLElement;
  readonly zoom: HTMLElement;

  constructor(private readonly app: App) {
    const { page } = app;
    ["as built", ...page.lowered.map((lowered) => `lowered for ${lowered.target}`)].forEach((text, index) => {
      this.views.append(h("option", { set: { value: index - 1 } }, plain(text, 80)));
    });
    this.views.addEventListener("change", () => void app.showView(Number(this.views.value)));
    this.overlays.addEventListener("change", () => app.paintOverlay(page.overlays[Number(this.overlays.value)] ?? null));
    this.element = h(
      "header",
      {},
      h("h1", {}, name(page.title, 80)),
      app.search.element,
      page.lowered.length === 0 ? null : h("label", {}, h("span", {}, "Graph"), this.views),
      page.overlays.length === 0 ? null : h("label", {}, h("span", {}, "Overlay"), this.overlays),
      this.message,
      h("span", { class: "gap" }),
      button("Open all", () => void app.openAll(), { set: { title: "Open all groups (e)" } }),
      button("Close all", () => void app.viewer.closeAll(), { set: { title: "Close all groups (c)" } }),
      button("Light / dark", () => app.switchTheme(), { set: { title: "Light or dark (d)" } }),
      button("?", () => help(), { set: { "aria-label": "Keys", title: "Keys (?)" } }),
    );
    this.zoom = h(
      "div",
      { class: "zoom", set: { role: "group", "aria-label": "Zoom" } },
      button("−", () => app.zoom(1 / 1.3), { set: { "aria-label": "Smaller" } }),
      button("+", () => app.zoom(1.3), { set: { "aria-label": "Larger" } }),
      button("Fit", () => app.viewer.fit(), { set: { title: "Show everything, or as much as is legible (0)" } }),
      button("Panel", () => app.togglePanel(), { set: { title: "Show or hide the panel (p)" } }),
    );
    this.viewChanged();
  }

  viewChanged(): void {
    this.views.value = String(this.app.view);
    this.overlays.replaceChildren(h("option", { set: { value: -1 } }, "none"));
    this.app.page.overlays.forEach((overlay, index) => {
      if (overlay.of === this.app.view) this.overlays.append(h("option", { set: { value: index } }, plain(overlay.name, 80)));
    });
    this.overlayChanged();
  }

  overlayChanged(): void {
    const { painted, page } = this.app;
    this.overlays.value = String(painted === null ? -1 : page.overlays.indexOf(painted.overlay));
  }

  say(words: string): void {
    this.message.textContent = words;
    setTimeout(() => {
      if (this.message.textContent === words) this.message.textContent = "";
    }, SAID);
  }
}
