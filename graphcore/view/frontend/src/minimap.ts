/** The whole drawing in a corner, with a frame around the visible part; click or drag to move there. */
import { everyBox } from "./boxes";
import { h } from "./dom";
import type { Viewer } from "./viewer";

const WIDEST = 190;
const HIGHEST = 230;
const NARROWEST = 56;

export class Minimap {
  readonly canvas = h("canvas", { class: "minimap", set: { "aria-hidden": "true" } });
  private readonly picture = document.createElement("canvas");
  /** Screen pixels per unit of the drawing; a very narrow drawing is widened. */
  private across = 1;
  private down = 1;

  constructor(private viewer: Viewer) {
    const go = (event: PointerEvent): void => {
      const { camera, canvas } = this.viewer;
      const x = event.offsetX / this.across;
      const y = event.offsetY / this.down;
      camera.set(canvas.clientWidth / 2 - x * camera.scale, canvas.clientHeight / 2 - y * camera.scale, camera.scale);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons > 0) go(event);
    });
  }

  show(viewer: Viewer): void {
    this.viewer = viewer;
    this.drawPicture();
  }

  /** Draw every box once; `drawFrame` then copies the picture. */
  drawPicture(): void {
    const { inside, colours } = this.viewer;
    if (inside === null || inside.width === 0) return;
    const scale = Math.min(WIDEST / inside.width, HIGHEST / inside.height);
    this.across = Math.max(scale, NARROWEST / inside.width);
    this.down = Math.max(scale, NARROWEST / inside.height);
    const dots = Math.min(2, window.devicePixelRatio || 1);
    const width = inside.width * this.across;
    const height = inside.height * this.down;
    for (const canvas of [this.canvas, this.picture]) {
      canvas.width = Math.round(width * dots);
      canvas.height = Math.round(height * dots);
    }
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.picture.getContext("2d") as CanvasRenderingContext2D;
    pen.setTransform(this.across * dots, 0, 0, this.down * dots, 0, 0);
    everyBox(inside, 0, 0, (box, left, top) => {
      const overlay = box.inside === null ? this.viewer.colour(box.item)?.fill : undefined;
      const usual = box.inside !== null ? colours.colour.scope : overlay === colours.colour.sheet ? colours.colour.line : (overlay ?? colours.colour.edge);
      pen.fillStyle = this.viewer.isFound(box.item) ? colours.colour.found : usual;
      pen.fillRect(left + box.x, top + box.y, Math.max(1.2 / this.across, box.width), Math.max(1.2 / this.down, box.height));
    });
    this.drawFrame();
  }

  drawFrame(): void {
    const pen = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const { camera, canvas, colours } = this.viewer;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.picture, 0, 0);
    const dots = Math.min(2, window.devicePixelRatio || 1);
    const across = (this.across * dots) / camera.scale;
    const down = (this.down * dots) / camera.scale;
    pen.strokeStyle = colours.colour.accent;
    pen.lineWidth = 1.5 * dots;
    const edge = pen.lineWidth / 2;
    const x = Math.max(edge, -camera.x * across);
    const y = Math.max(edge, -camera.y * down);
    const right = Math.min(this.canvas.width - edge, (canvas.clientWidth - camera.x) * across);
    const bottom = Math.min(this.canvas.height - edge, (canvas.clientHeight - camera.y) * down);
    pen.strokeRect(x, y, Math.max(2 * dots, right - x), Math.max(2 * dots, bottom - y));
  }
}
