/** The whole drawing as a file: SVG, or PNG by way of a canvas. */
import { svg } from "./dom";
import type { Ink } from "./draw";
import type { Viewer } from "./viewer";

/** Pixels of a PNG: sides and areas that the canvases of all browsers have. */
const LONGEST = 16_000;
const MOST = 64_000_000;
const SHARP = 2;

export function svgOf(viewer: Viewer): Blob {
  const { left, top, right, bottom } = viewer.whole;
  const pen = new SvgInk();
  viewer.drawOn(pen, viewer.whole, 1);
  const [width, height] = [Math.ceil(right - left), Math.ceil(bottom - top)];
  const picture = svg("svg", { width, height, viewBox: `${left} ${top} ${width} ${height}` }, ...pen.elements);
  return new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" });
}

/** Return the PNG, or null without memory for it, and its scale: 2, or less for a large drawing. */
export async function pngOf(viewer: Viewer): Promise<{ blob: Blob | null; scale: number }> {
  const { left, top, right, bottom } = viewer.whole;
  const [width, height] = [right - left, bottom - top];
  const scale = Math.min(SHARP, LONGEST / width, LONGEST / height, Math.sqrt(MOST / (width * height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.setTransform(scale, 0, 0, scale, -left * scale, -top * scale);
  viewer.drawOn(context, viewer.whole, Math.min(1, scale));
  return { blob: await new Promise((done) => canvas.toBlob(done)), scale };
}

/** Elements of an SVG in place of what `draw` puts on a canvas. Every element has its style, so that the file needs no other. */
class SvgInk implements Ink {
  fillStyle: Ink["fillStyle"] = "";
  strokeStyle: Ink["strokeStyle"] = "";
  lineWidth = 1;
  font = "";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "middle";
  direction: CanvasDirection = "ltr";
  readonly elements: SVGElement[] = [];
  private readonly measure = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  private path: string[] = [];
  private dashes: number[] = [];

  beginPath(): void {
    this.path = [];
  }

  moveTo(...point: [number, number]): void {
    this.add("M", point);
  }

  lineTo(...point: [number, number]): void {
    this.add("L", point);
  }

  bezierCurveTo(...points: [number, number, number, number, number, number]): void {
    this.add("C", points);
  }

  closePath(): void {
    this.path.push("Z");
  }

  roundRect(x: number, y: number, width: number, height: number, radii: number | number[]): void {
    const [a, b, c, d] = typeof radii === "number" ? [radii, radii, radii, radii] : radii;
    this.add("M", [x + a, y]);
    this.add("H", [x + width - b]);
    this.add("A", [b, b, 0, 0, 1, x + width, y + b]);
    this.add("V", [y + height - c]);
    this.add("A", [c, c, 0, 0, 1, x + width - c, y + height]);
    this.add("H", [x + d]);
    this.add("A", [d, d, 0, 0, 1, x, y + height - d]);
    this.add("V", [y + a]);
    this.add("A", [a, a, 0, 0, 1, x + a, y]);
  }

  fill(): void {
    if (this.path.length > 0) this.elements.push(svg("path", { d: this.path.join(""), fill: String(this.fillStyle) }));
  }

  stroke(): void {
    if (this.path.length > 0) this.elements.push(svg("path", { d: this.path.join(""), fill: "none", stroke: String(this.strokeStyle), "stroke-width": rounded(this.lineWidth), "stroke-dasharray": this.dashes.join(" ") || "none" }));
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.elements.push(svg("rect", { x, y, width, height, fill: String(this.fillStyle) }));
  }

  /** At the alphabetic baseline: not all programs know another. */
  fillText(text: string, x: number, y: number): void {
    const down = this.ascent("alphabetic") - this.ascent(this.textBaseline);
    const anchor = this.textAlign === "center" ? "middle" : "start";
    this.elements.push(svg("text", { x: rounded(x), y: rounded(y + down), "text-anchor": anchor, fill: String(this.fillStyle), style: `font: ${this.font}` }, text));
  }

  private ascent(baseline: CanvasTextBaseline): number {
    this.measure.textBaseline = baseline;
    return this.measureText("").fontBoundingBoxAscent;
  }

  measureText(text: string): TextMetrics {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  setLineDash(dashes: Iterable<number>): void {
    this.dashes = [...dashes];
  }

  private add(letter: string, numbers: number[]): void {
    this.path.push(letter + numbers.map(rounded).join(" "));
  }
}

function rounded(number: number): number {
  return Math.round(number * 100) / 100;
}
