/** Sentence embeddings by all-MiniLM-L6-v2 with onnxruntime-web, in browsers and in Node.js. */

const SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const MAX_TOKENS = 256;
const MAX_LETTERS = 100;
const PUNCTUATION = /([!-/:-@[-`{-~]|\p{P})/u;
const CHINESE = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b820}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

/** Return the function from a text to its tokens: BERT's, without case and accents. vocabulary: a token a line. */
export function tokenizer(vocabulary) {
  const ids = new Map(vocabulary.split("\n").map((token, id) => [token, id]));
  const unknown = ids.get("[UNK]");
  const special = new RegExp(`(${SPECIAL.map((token) => token.replace(/[[\]]/g, "\\$&")).join("|")})`);

  function words(text) {
    const clean = text.replace(/[^\P{C}\t\n\r]|\ufffd/gu, "").replace(CHINESE, " $& ");
    const bare = clean.normalize("NFD").replace(/\p{Mn}/gu, "");
    // Each letter alone: the form of a letter at the end of a word, as of sigma, is no other token.
    const small = Array.from(bare, (letter) => letter.toLowerCase()).join("");
    return small.split(/\p{White_Space}+/u).flatMap((word) => word.split(PUNCTUATION)).filter((word) => word !== "");
  }

  function pieces(word) {
    const letters = Array.from(word);
    if (letters.length > MAX_LETTERS) return [unknown];
    const found = [];
    for (let start = 0; start < letters.length; ) {
      let end = letters.length;
      const piece = () => ids.get((start > 0 ? "##" : "") + letters.slice(start, end).join(""));
      while (end > start && piece() === undefined) end -= 1;
      if (end === start) return [unknown];
      found.push(piece());
      start = end;
    }
    return found;
  }

  return (text) => {
    const parts = text.split(special);
    const tokens = parts.flatMap((part, at) => (at % 2 === 1 ? [ids.get(part)] : words(part).flatMap(pieces)));
    return [ids.get("[CLS]"), ...tokens.slice(0, MAX_TOKENS - 2), ids.get("[SEP]")];
  };
}

/** Return the function from a text to its embedding, of length 1. read: returns a promise of the bytes of a file. */
export async function load(ort, read) {
  const [model, vocabulary, wasm] = await Promise.all(["model.onnx", "vocab.txt", "ort-wasm-simd-threaded.wasm"].map(read));
  ort.env.wasm.numThreads = 1; // more need headers that few static servers send
  ort.env.wasm.wasmBinary = wasm;
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  const tokens = tokenizer(new TextDecoder().decode(vocabulary));
  return async (text) => {
    const ids = BigInt64Array.from(tokens(text), BigInt);
    const shape = [1, ids.length];
    const feeds = { input_ids: new ort.Tensor("int64", ids, shape), attention_mask: new ort.Tensor("int64", ids.map(() => 1n), shape) };
    const { embedding } = await session.run(feeds);
    return embedding.data;
  };
}

/** Return the cosine of the angle between two embeddings. */
export const similarity = (a, b) => a.reduce((sum, each, at) => sum + each * b[at], 0);
