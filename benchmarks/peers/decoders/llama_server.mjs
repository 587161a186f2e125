// llama.cpp behind the HTTP server of Node.js: node llama_server.mjs FILE PORT STREAMS CACHE THREADS
//
// POST /v1/completions with a prompt of tokens, as the OpenAI API has it; texts of all clients are sequences of one
// context, which node-llama-cpp evaluates in one batch. GET answers when the model is loaded.

import { createServer } from "node:http";
import { getLlama } from "node-llama-cpp";

const [file, port, streams, cache, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  sequences: Number(streams),
  contextSize: Number(cache),
  threads: Number(threads),
});
const free = Array.from({ length: Number(streams) }, () => context.getSequence());

async function complete({ prompt, max_tokens: most }) {
  const sequence = free.pop();
  await sequence.clearHistory();
  const tokens = [];
  for await (const token of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === most) break;
  }
  free.push(sequence);
  return { choices: [{ text: model.detokenize(tokens), tokens }], usage: { completion_tokens: tokens.length } };
}

createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const answer = request.method === "POST" ? await complete(JSON.parse(body)) : {};
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(answer));
}).listen(Number(port), "127.0.0.1");
