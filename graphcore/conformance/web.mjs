// Runs ONNX models in onnxruntime-web: reads a request a line as JSON, {model} or {feeds}, and writes an answer a line.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import path from "node:path";

const load = createRequire(path.join(process.argv[2], "package.json"));
const ort = load("onnxruntime-web");
ort.env.logLevel = "fatal";
ort.env.wasm.numThreads = 1;

const ARRAYS = {
  bool: Uint8Array, int4: Int8Array, uint4: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array, float64: Float64Array,
};

function tensor({ type, dims, data, strings }) {
  if (strings) return new ort.Tensor("string", strings, dims);
  if (!ARRAYS[type]) throw new Error(`onnxruntime-web has no tensors of ${type}`);
  const bytes = Buffer.from(data, "base64");
  return new ort.Tensor(type, new ARRAYS[type](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)), dims);
}

function described(value) {
  const { type, dims, data } = value;
  if (type === "string") return { type, dims, strings: data };
  return { type, dims, data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64") };
}

let session;
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    if (request.model !== undefined) {
      const previous = session;
      session = undefined;
      await previous?.release();
      const options = { executionProviders: ["wasm"], logSeverityLevel: 4 };
      session = await ort.InferenceSession.create(Buffer.from(request.model, "base64"), options);
      answer = { inputs: session.inputNames };
    } else {
      const feeds = Object.fromEntries(Object.entries(request.feeds).map(([name, value]) => [name, tensor(value)]));
      const results = await session.run(feeds);
      answer = { outputs: session.outputNames.map((name) => described(results[name])) };
    }
  } catch (error) {
    answer = { error: String(error?.message ?? error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
