// Runs ONNX models in onnxruntime-web. In Node.js it reads a request a line as JSON and writes an answer a line; a page
// imports `answering`. A request is {model, options} or {feeds, fetches}.

const ARRAYS = {
  bool: Uint8Array, int4: Int8Array, uint4: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array, float64: Float64Array,
};

const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

function textOf(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

function tensor(ort, { type, dims, data, strings }) {
  if (strings) return new ort.Tensor("string", strings, dims);
  if (!ARRAYS[type]) throw new Error(`onnxruntime-web has no tensors of ${type}`);
  return new ort.Tensor(type, new ARRAYS[type](bytesOf(data).buffer), dims);
}

function described({ type, dims, data }) {
  if (type === "string") return { type, dims, strings: data };
  return { type, dims, data: textOf(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) };
}

// Returns a function from a request to its answer, with the execution providers of onnxruntime-web by preference.
export function answering(ort, executionProviders) {
  let session;
  return async (request) => {
    try {
      if (request.model !== undefined) {
        const previous = session;
        session = undefined;
        await previous?.release();
        const options = { executionProviders, logSeverityLevel: 4, ...request.options };
        session = await ort.InferenceSession.create(bytesOf(request.model), options);
        return { inputs: session.inputNames, outputs: session.outputNames };
      }
      const feeds = Object.fromEntries(
        Object.entries(request.feeds).map(([name, value]) => [name, tensor(ort, value)]),
      );
      const fetches = request.fetches ?? session.outputNames;
      const results = await session.run(feeds, fetches);
      return { outputs: fetches.map((name) => described(results[name])) };
    } catch (error) {
      return { error: String(error?.message ?? error) };
    }
  };
}

if (globalThis.process?.argv) {
  const { createRequire } = await import("node:module");
  const { resolve } = await import("node:path");
  const { createInterface } = await import("node:readline");
  const ort = createRequire(resolve(process.argv[2], "package.json"))("onnxruntime-web");
  ort.env.logLevel = "fatal";
  ort.env.wasm.numThreads = 1;
  const answer = answering(ort, ["wasm"]);
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
  }
}
