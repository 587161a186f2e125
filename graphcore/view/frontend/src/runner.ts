/** The program of the worker that runs the model in onnxruntime-web: the first message sets it up, each later one runs it. */
import type { Statistics } from "./model";
import type { Data, Tensor } from "./values";

export interface Setup { engine: string; wasm: string | ArrayBuffer; model: string }
/** Inputs and outputs have the order of the file. Tensors of outputs but those in the range `watched` are returned, statistics of all. */
export interface Feeds { feeds: Tensor[]; watched: [number, number] }
export interface Summary { dtype: string; dims: number[]; first: string; statistics: Statistics; data?: Data }
export type Answer = { ready: true } | { results: Summary[] } | { error: string };

interface Value { type: string; dims: number[]; data: Data }
interface Session { inputNames: string[]; outputNames: string[]; run(feeds: Record<string, Value>, options: object): Promise<Record<string, Value>> }
interface Engine {
  env: { logLevel: string; wasm: { numThreads: number; wasmBinary: ArrayBuffer } };
  Tensor: new (type: string, data: Data, dims: number[]) => Value;
  InferenceSession: { create(model: Uint8Array, options: object): Promise<Session> };
}

const QUIET = { logSeverityLevel: 4 }; // errors are returned, not printed
const SHOWN = 8;
const BINS = 32;
let engine: Engine;
let session: Session;

/** As `graphcore.analysis.statistics`. */
function statistics(data: Data, isFloat: boolean): Statistics {
  const counts = { min: null as number | null, max: null as number | null, mean: null as number | null, nan: 0, infinite: 0, zeros: 0, elements: data.length, histogram: [] as number[] };
  if (Array.isArray(data)) return { ...counts, zeros: data.filter((text) => text === "").length };
  const finite = new Float64Array(data.length);
  let count = 0;
  for (const element of data as Float64Array) {
    const each = Number(element);
    if (each === 0) counts.zeros += 1;
    if (Number.isFinite(each)) finite[count++] = each;
    else if (Number.isNaN(each)) counts.nan += 1;
    else counts.infinite += 1;
  }
  if (count === 0) return counts;
  let [min, max, mean] = [Infinity, -Infinity, 0];
  for (const each of finite.subarray(0, count)) [min, max, mean] = [Math.min(min, each), Math.max(max, each), mean + each / count];
  const histogram = Array<number>(min === max ? 1 : isFloat ? BINS : Math.min(BINS, max - min + 1)).fill(0);
  const [start, width] = [min / 2, max / 2 - min / 2];
  for (const each of finite.subarray(0, count)) histogram[width === 0 ? 0 : Math.min(histogram.length - 1, Math.floor(((each / 2 - start) / width) * histogram.length))] += 1;
  return { ...counts, min, max, mean: Math.min(Math.max(mean, min), max), histogram };
}

/** Return the shortest text that reads as the same element. */
function text(element: unknown, dtype: string): string {
  if (typeof element === "string") return JSON.stringify(element.slice(0, 200));
  if (dtype === "bool") return element === 0 ? "false" : "true";
  if (dtype !== "float32" || !Number.isFinite(element)) return String(element);
  for (let digits = 1; digits < 9; digits++) if (Math.fround(Number((element as number).toPrecision(digits))) === element) return String(Number(element.toPrecision(digits)));
  return String(Number((element as number).toPrecision(9)));
}

/** Return the bytes that are packed by gzip and in base64. A callback for each letter would take minutes. */
function unpacked(packed: string): Promise<ArrayBuffer> {
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function answer(message: Setup | Feeds): Promise<Answer> {
  if ("engine" in message) {
    const program = new Blob([await unpacked(message.engine)], { type: "text/javascript" });
    engine = (await import(URL.createObjectURL(program))) as Engine;
    engine.env.logLevel = "fatal";
    engine.env.wasm.numThreads = 1;
    engine.env.wasm.wasmBinary = typeof message.wasm === "string" ? await unpacked(message.wasm) : message.wasm;
    session = await engine.InferenceSession.create(new Uint8Array(await unpacked(message.model)), { executionProviders: ["wasm"], ...QUIET });
    return { ready: true };
  }
  const feeds = message.feeds.map(({ dtype, data, dims }, at) => [session.inputNames[at], new engine.Tensor(dtype, data, dims)] as const);
  const results = await session.run(Object.fromEntries(feeds), QUIET);
  return {
    results: session.outputNames.map((name, at) => {
      const { type: dtype, dims, data } = results[name];
      const first = `${Array.from(data.slice(0, SHOWN) as Iterable<unknown>, (each) => text(each, dtype)).join(", ")}${data.length > SHOWN ? ", ..." : ""}`;
      return { dtype, dims: [...dims], first, statistics: statistics(data, dtype.startsWith("float")), ...(at < message.watched[0] || at >= message.watched[1] ? { data } : {}) };
    }),
  };
}

self.onmessage = (event: MessageEvent<Setup | Feeds>) => {
  answer(event.data).then(
    (result) => self.postMessage(result),
    (problem: unknown) => self.postMessage({ error: String((problem as Error | null)?.message ?? problem) }),
  );
};
