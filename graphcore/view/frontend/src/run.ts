/** The part of the panel that runs the model on values typed or dropped in. */
import type { App } from "./app";
import { button, h, name, refill, type Child } from "./dom";
import type { End, Run } from "./model";
import type { Answer, Feeds, Setup, Summary } from "./runner";
import { statistics } from "./statistics";
import { check, fromFile, npyOf, typed, zeros, type Tensor } from "./values";

declare const RUNNER_SOURCE: string;

/** The WebAssembly of the page, packed, or that beside it. */
async function wasmOf(run: Run): Promise<string | ArrayBuffer> {
  if (run.wasm !== "") return run.wasm;
  if (location.protocol === "file:") throw new Error(`A browser does not read ${run.beside} beside a page that is opened from disk. Serve the folder (python -m http.server), or write the page with --wasm inline.`);
  const response = await fetch(run.beside);
  if (!response.ok) throw new Error(`${run.beside}, which belongs beside this page, cannot be read: ${response.status}.`);
  return response.arrayBuffer();
}

class Field {
  readonly problem = h("p", { class: "wrong", set: { role: "alert" } });
  readonly text = h("textarea", { set: { rows: 2, spellcheck: false }, on: { input: () => void (this.held = null) } });
  private held: Tensor | null = null;
  private readonly file = h("input", { set: { type: "file", "aria-label": "File" }, on: { change: () => void this.take(this.file.files?.[0]) } });
  private readonly scale = h("select", { set: { "aria-label": "Pixels" } }, ...["0 to 1", "0 to 255", "-1 to 1"].map((range) => h("option", {}, range)));

  constructor(readonly end: End, readonly title: string, type: string) {
    this.text.setAttribute("aria-label", title);
    this.text.placeholder = `${end.own}, typed such as ${end.dtype === "string" ? '["a", "b"]' : "[[1, 2], [3, 4]]"}, or drop a file`;
    this.scale.hidden = !end.dtype.startsWith("float") || (end.shape?.length ?? 0) < 3;
    this.element = h("div", { class: "card" }, h("div", { class: "role" }, name(title)), h("code", {}, type), this.text, h("div", { class: "actions" }, this.file, this.scale), this.problem);
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      void this.take(event.dataTransfer?.files[0]);
    });
  }
  readonly element: HTMLElement;

  hold(tensor: Tensor | null, from: string): void {
    this.held = tensor;
    this.text.value = tensor === null ? "" : `${from}: ${tensor.dtype}[${tensor.dims.join(", ")}]`;
  }

  async take(file: File | undefined): Promise<void> {
    if (file === undefined) return;
    refill(this.problem);
    try {
      this.hold(await fromFile(file, this.end, this.scale.value), file.name);
    } catch (problem) {
      this.hold(null, "");
      refill(this.problem, `${file.name}: ${problem instanceof Error ? problem.message : String(problem)}`);
    }
  }

  /** Return the tensor, undefined with a message if there is none. */
  read(sizes: Map<string, [number, string]>): Tensor | undefined {
    refill(this.problem);
    try {
      const tensor = this.held ?? typed(this.text.value, this.end);
      check(this.end, tensor.dims, sizes, this.title);
      return tensor;
    } catch (problem) {
      refill(this.problem, problem instanceof Error ? problem.message : String(problem));
      return undefined;
    }
  }
}

export class Runner {
  readonly element: HTMLElement;
  private readonly fields: Field[];
  private readonly state = h("p", { set: { role: "status" } });
  private readonly outputs = h("div");
  private readonly start = button("Run", () => void this.press());
  private worker: Worker | null = null;
  private stop: () => void = () => undefined;

  constructor(private readonly app: App, private readonly run: Run) {
    this.fields = run.inputs.map((end) => new Field(end, end.name, `${end.own}${end.shape === null ? ", rank unknown" : `[${end.shape.join(", ")}]`}`));
    const actions = h("div", { class: "actions" }, this.start, button("Stop", () => this.stop()), button("Zeros", () => this.fields.forEach((field) => field.hold(zeros(field.end), "zeros"))));
    const about = `In this page, with onnxruntime-web ${run.release}; nothing is sent.`;
    this.element = h("section", { class: "run" }, h("h3", {}, "Run"), ...this.fields.map((field) => field.element), actions, this.state, this.outputs, h("p", { class: "subtitle" }, about));
  }

  private say(words: string, isWrong = false): void {
    this.state.className = isWrong ? "wrong" : "subtitle";
    refill(this.state, words);
  }

  private ask(message: Setup | Feeds): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.stop = () => reject(new Error("Stopped."));
      const worker = this.worker as Worker;
      worker.onmessage = (event: MessageEvent<Answer>) => ("error" in event.data ? reject(new Error(event.data.error)) : resolve(event.data));
      worker.onerror = (event) => reject(new Error(event.message || "The browser does not start a worker."));
      worker.postMessage(message);
    });
  }

  private async press(): Promise<void> {
    const sizes = new Map<string, [number, string]>();
    const feeds = this.fields.map((field) => field.read(sizes));
    const at = feeds.indexOf(undefined);
    if (at >= 0) return this.say(`Not run: see the message at ${this.fields[at].title}.`, true);
    this.start.disabled = true;
    try {
      if (this.worker === null) {
        this.say("Starting onnxruntime-web…");
        const wasm = await wasmOf(this.run);
        this.worker = new Worker(URL.createObjectURL(new Blob([RUNNER_SOURCE], { type: "text/javascript" })));
        await this.ask({ engine: this.run.engine, wasm, model: this.run.model });
      }
      this.say("Running…");
      const start = performance.now();
      const answer = await this.ask({ feeds: feeds as Tensor[], watched: this.run.watched });
      if ("results" in answer) this.show(answer.results, `Ran in ${(performance.now() - start).toFixed(1)} ms.`);
    } catch (problem) {
      this.worker?.terminate(); // after an error its memory may be full
      this.worker = null;
      this.say(`Not run: ${problem instanceof Error ? problem.message : String(problem)}`, true);
    } finally {
      this.start.disabled = false;
    }
  }

  private show(results: Summary[], words: string): void {
    const { values } = this.app.page.graph;
    this.say(words);
    const cards = results.map((result, at): Child => {
      const { name: title, value } = this.run.outputs[at];
      const { dtype, dims, first, data } = result;
      const text = `${dtype}[${dims.join(", ")}]`;
      if (value >= 0) Object.assign(values[value], { text, first, statistics: result.statistics });
      if (data === undefined) return null;
      const file = npyOf({ dtype, dims, data });
      const save = file === null ? null : h("div", { class: "actions" }, button("Save .npy", () => this.app.save(file, title, ".npy")));
      return h("div", { class: "card" }, h("div", { class: "role" }, name(title)), h("code", {}, text), h("pre", {}, first), statistics(result.statistics), save);
    });
    refill(this.outputs, ...cards);
  }
}
