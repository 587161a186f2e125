/** The look of a box: its text and size, measured once and drawn often. */
import type { Graph } from "./model";
import { familyOf, type Family } from "./ops";
import { kindOf } from "./sections";
import { countText, plain, resultText, tally, typeText } from "./text";
import { nodesIn, type Item, type Scope } from "./tree";

export interface Face {
  title: string;
  /** Lines below the title. */
  lines: string[];
  family: Family;
  /** A cast that promotion inserted: its border is dashed. */
  implicit: boolean;
  opens: boolean;
  /** The number of its kind, for layers that are numbered; -1 for others. */
  kind: number;
}

const TITLE = 600;
export const SIZE = { title: 13, line: 11.5, titleHeight: 24, lineHeight: 15.5, padding: 10 };
const WIDEST_TITLE = 44;
const WIDEST_LINE = 42;
const WEIGHTS_SHOWN = 3;

export class Faces {
  private readonly cache = new Map<string, Face>();
  private readonly widths = new Map<string, number>();
  private readonly pen = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;

  /** Kinds of numbered layers, the most common first. */
  private readonly kinds: string[];

  constructor(private readonly graph: Graph, private readonly ui: string) {
    this.kinds = tally(graph.groups.flatMap((group) => kindOf(group.name) ?? [])).flatMap(([kind, count]) => (count > 1 ? [kind] : []));
  }

  face(item: Item): Face {
    const key = item.kind === "scope" ? `s${item.scope.id}` : item.kind === "node" ? `n${item.node}` : `${item.role}${item.value}`;
    const cached = this.cache.get(key);
    if (cached !== undefined) return cached;
    const face = item.kind === "node" ? this.ofNode(item.node) : item.kind === "value" ? this.ofValue(item.value) : this.ofScope(item.scope);
    this.cache.set(key, face);
    return face;
  }

  size(item: Item): { width: number; height: number } {
    const face = this.face(item);
    const badge = face.opens ? 26 : 0;
    const widest = Math.max(this.width(face.title, SIZE.title, TITLE) + badge, ...face.lines.map((line) => this.width(line, SIZE.line, 400)));
    const height = SIZE.titleHeight + (face.lines.length > 0 ? face.lines.length * SIZE.lineHeight + 7 : 0);
    return { width: Math.ceil(Math.max(64, widest + 2 * SIZE.padding)), height };
  }

  titleWidth(item: Item): number {
    return this.width(this.face(item).title, SIZE.title, TITLE);
  }

  private width(text: string, size: number, weight: number): number {
    const key = `${size} ${text}`;
    const cached = this.widths.get(key);
    if (cached !== undefined) return cached;
    this.pen.font = `${weight} ${size}px ${this.ui}`;
    const width = this.pen.measureText(text).width;
    this.widths.set(key, width);
    return width;
  }

  private ofNode(index: number): Face {
    const node = this.graph.nodes[index];
    const lines = [plain(resultText(this.graph, node), WIDEST_LINE)];
    const constants = node.operands.flatMap((value, at) => {
      const operand = this.graph.values[value];
      return operand?.kind === "weight" || operand?.kind === "constant" ? [{ operand, as: node.operandNames[at] ?? "" }] : [];
    });
    for (const { operand, as } of constants.slice(0, WEIGHTS_SHOWN)) {
      const what = operand.text !== undefined && operand.text.length < 24 ? operand.text : operand.shape === null ? operand.dtype : `⟨${operand.shape.join("×")}⟩`;
      lines.push(plain(`${as} ${what}`, WIDEST_LINE));
    }
    if (constants.length > WEIGHTS_SHOWN) lines.push(`… ${constants.length - WEIGHTS_SHOWN} more`);
    return { title: plain(node.op, WIDEST_TITLE), lines: lines.filter((line) => line !== ""), family: familyOf(node.op), implicit: node.cast?.implicit === true, opens: false, kind: -1 };
  }

  private ofValue(index: number): Face {
    const value = this.graph.values[index];
    return { title: plain(value.name, WIDEST_TITLE), lines: [plain(typeText(value), WIDEST_LINE)], family: "end", implicit: false, opens: false, kind: -1 };
  }

  private ofScope(scope: Scope): Face {
    if (scope.node >= 0) return { ...this.ofNode(scope.node), opens: true };
    const kind = scope.kind === "layers" ? scope.name.replace(/ ?\u00d7\d+$/, "") : kindOf(scope.name);
    const layers = scope.kind === "layers" ? [] : tally(scope.items.flatMap((item) => (item.kind === "scope" ? (kindOf(item.scope.name) ?? []) : []))).filter(([name, count]) => name !== "" && count > 1);
    const counts = layers.length > 0 ? layers : tally(nodesIn(scope).map((node) => this.graph.nodes[node].op));
    const top = counts.slice(0, 3).map(([name, count]) => (count > 1 ? `${name} ×${count}` : name));
    return { title: plain(scope.name === "" ? scope.kind : scope.name, WIDEST_TITLE), lines: [countText(scope.total, "node"), plain(top.join(", "), WIDEST_LINE)], family: "math", implicit: false, opens: true, kind: kind === null ? -1 : this.kinds.indexOf(kind) };
  }
}

