/** The data of a page: `graphcore/view/` writes it as JSON and this page draws it. Both follow this file; `format` is its version.
 *
 * `notebook.py` puts it all into one file: the data as JSON in `<script type="application/json" id="graphcore-data">`, page.css in
 * a style element, page.js in the last script of the body; the page is drawn into `<main id="page">`, whose noscript it
 * replaces. The Content-Security-Policy allows this one script by its digest, workers and images from `blob:`, images
 * from `data:`, styles, and no network: no eval, no inline handlers, no second script element. With --run it also allows
 * WebAssembly, and if that is beside the page, to read files of the page's own server.
 *
 * Every string may come from a third-party model: it is text, never markup.
 */

export interface Page {
  format: 1;
  title: string;
  /** The version of graphcore that wrote the page. */
  writer: string;
  /** The promotion system of the graph. */
  promotion: string;
  graph: Graph;
  /** The same graph after lowering, for each target. */
  lowered: Lowered[];
  overlays: Overlay[];
  /** Targets that the graph could not be lowered for, and the error. */
  failures?: { target: string; reason: string }[];
  run?: Run;
}

/** With --run: the program of onnxruntime-web, its WebAssembly and the model, each compressed by gzip and in base64. */
export interface Run {
  release: string;
  engine: string;
  /** "" if it is in a file beside the page, which `beside` names. */
  wasm: string;
  beside: string;
  model: string;
  /** In the order of the model. Outputs from the first to before the second index of `watched` are results of nodes. */
  inputs: End[];
  outputs: End[];
  watched: [number, number];
}

export interface End {
  name: string;
  /** Index of a value of `graph`, or -1. */
  value: number;
  /** The dtype in the file, and in the graph: narrow floats enter and leave the file as float32. */
  dtype: string;
  own: string;
  shape: string[] | null;
}

export interface Graph {
  name: string;
  nodes: Node[];
  values: Value[];
  groups: Group[];
  /** Values by index. */
  inputs: number[];
  outputs: number[];
}

export interface Node {
  /** Unique within its Graph: the name of the node, or of its first result. */
  name: string;
  op: string;
  domain: string;
  /** Index of the innermost group, or -1 for the top level. */
  group: number;
  attributes: [name: string, text: string][];
  /** Values by index, -1 for an omitted operand; `operandNames` has the names of the operator's parameters. */
  operands: number[];
  operandNames: string[];
  results: number[];
  /** Groups that are bodies of this node (If, Loop, Scan) or the function that it calls. */
  bodies: number[];
  source?: Source;
  /** The reason of a Cast, inserted or explicit. */
  cast?: Reason;
  /** Nodes of `lowered[i].graph` that replace this one. */
  lowered?: { target: number; nodes: number[]; reason: string }[];
}

export interface Source {
  file: string;
  line: number;
  text: string;
}

/** The reason for a cast, as from `promotion.explain`. */
export interface Reason {
  implicit: boolean;
  system: string;
  /** The operands' dtypes, and the result. */
  pair: [string, string] | null;
  result: string;
  words: string;
}

/** A body that reads a value of the graph around it has that value itself as operand: such an edge crosses the border
 * of the body. "captured" is for writers that copy the value. */
export type Kind = "input" | "buffer" | "weight" | "constant" | "result" | "captured";

export interface Value {
  name: string;
  kind: Kind;
  dtype: string;
  /** `null` if the rank is unknown; dims as text, named ones by their names. */
  shape: string[] | null;
  /** Of a weight or a constant. */
  bytes?: number;
  /** The text of a short constant: `0.5`, `[1, -1]`. */
  text?: string;
  /** The first elements of a longer one. */
  first?: string;
  /** Its .npy file in base64; "" if such a file cannot have the dtype. Without it, the page does not contain the values. */
  npy?: string;
  source?: Source;
  statistics?: Statistics;
}

export interface Statistics {
  min: number | null;
  max: number | null;
  mean: number | null;
  nan: number;
  infinite: number;
  zeros: number;
  elements: number;
  /** Counts of equal bins from min to max. */
  histogram: number[];
}

/** Nodes that are drawn as one until opened: a layer, the body of a node, or a function. */
export interface Group {
  name: string;
  kind: "layer" | "body" | "function";
  /** Index of the enclosing group, or -1. */
  parent: number;
  /** Index of the node that a body belongs to, or -1. */
  owner: number;
  /** The number of nodes in it and in its nested groups. */
  nodes: number;
  /** Of a body or a function: its own inputs (kind "input", in order; none for what a body captures) and results. */
  inputs?: number[];
  outputs?: number[];
}

export interface Lowered {
  target: string;
  runtime: string;
  graph: Graph;
  passes: { name: string; reason: string }[];
}

/** A number or a word for each node, drawn as its colour, with a legend and a table of the largest. */
export interface Overlay {
  name: string;
  kind: "time" | "memory" | "placement" | "quantization" | "difference" | "dtype";
  /** `of` names the graph: -1 for `graph`, else an index of `lowered`. */
  of: number;
  unit: string;
  /** Numbers: [node, value, text shown on the node]. */
  numbers?: [number, number, string][];
  /** Words: [node, category, text shown on the node]. */
  words?: [number, string, string][];
  note: string;
}
