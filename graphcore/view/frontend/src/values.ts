/** Values for the inputs of a model: typed, or from .npy, image and JSON files. Errors are sentences for the reader. */
import type { End } from "./model";

export type Data = Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array | string[];
export interface Tensor {
  dtype: string;
  dims: number[];
  data: Data;
}

/** By dtype: its array, and the type of its .npy file. float16 and narrower floats cross the border of the model in float32. */
const DTYPES: Record<string, { make: (length: number) => Data; npy: string }> = {
  bool: { make: (n) => new Uint8Array(n), npy: "|b1" }, string: { make: (n) => Array<string>(n).fill(""), npy: "" },
  int8: { make: (n) => new Int8Array(n), npy: "|i1" }, uint8: { make: (n) => new Uint8Array(n), npy: "|u1" },
  int16: { make: (n) => new Int16Array(n), npy: "<i2" }, uint16: { make: (n) => new Uint16Array(n), npy: "<u2" },
  int32: { make: (n) => new Int32Array(n), npy: "<i4" }, uint32: { make: (n) => new Uint32Array(n), npy: "<u4" },
  int64: { make: (n) => new BigInt64Array(n), npy: "<i8" }, uint64: { make: (n) => new BigUint64Array(n), npy: "<u8" },
  float32: { make: (n) => new Float32Array(n), npy: "<f4" }, float64: { make: (n) => new Float64Array(n), npy: "<f8" },
};
const MOST_BYTES = 1 << 28;
const LONGEST = 1 << 24;
const DEEPEST = 32;

const sizeOf = (dims: number[]): number => dims.reduce((size, dim) => size * dim, 1);
const fixed = (dim: string | undefined): number | undefined => (dim !== undefined && /^\d+$/.test(dim) ? Number(dim) : undefined);
const isFloat = (dtype: string): boolean => dtype.startsWith("float");

function made(dtype: string, dims: number[]): Data {
  if (sizeOf(dims) > MOST_BYTES) throw new Error(`[${dims.join(", ")}] has too many elements: a page takes up to ${MOST_BYTES}.`);
  return DTYPES[dtype].make(sizeOf(dims));
}

/** Check a shape against that of an input, and the sizes of named dims, which the first tensor that has them decides. */
export function check(end: End, dims: number[], sizes: Map<string, [size: number, of: string]>, of: string): void {
  const { shape } = end;
  if (shape === null) return;
  const wanted = `the input is of shape [${shape.join(", ")}]`;
  if (shape.length !== dims.length) throw new Error(`The shape [${dims.join(", ")}] has ${dims.length} axes; ${wanted}. Each pair of brackets is an axis.`);
  shape.forEach((dim, axis) => {
    if (/^\d+$/.test(dim) && Number(dim) !== dims[axis]) throw new Error(`Axis ${axis} has ${dims[axis]} elements; ${wanted}.`);
    if (/^(\d+|\?)$/.test(dim)) return;
    const [size, first] = sizes.get(dim) ?? [dims[axis], of];
    if (size !== dims[axis]) throw new Error(`${dim} is ${dims[axis]} here, but ${size} in ${first}.`);
    sizes.set(dim, [size, first]);
  });
}

/** Return one element of a dtype from its text. Integers keep every digit. */
function element(text: string, dtype: string): number | bigint | string {
  const quoted = text.startsWith('"');
  const shown = text.length > 40 ? `${text.slice(0, 40)}…` : text;
  if (dtype === "string") {
    if (quoted) return JSON.parse(text) as string;
    throw new Error(`${shown} is not in double quotes: an element of a list of strings is.`);
  }
  if (dtype === "bool") {
    if (/^(true|false|[01])$/i.test(text)) return /^(true|1)$/i.test(text) ? 1 : 0;
    throw new Error(`${shown} is not true or false.`);
  }
  const word = /^([+-]?)(nan|inf(?:inity)?)$/i.exec(text);
  if (!isFloat(dtype)) {
    if (!/^[+-]?\d{1,30}$/.test(text)) throw new Error(`${shown} is not an integer; the input is of ${dtype}.`);
    const number = BigInt(text.replace("+", ""));
    const bits = BigInt(dtype.replace(/\D/g, ""));
    const [low, high] = dtype.startsWith("u") ? [0n, (1n << bits) - 1n] : [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n];
    if (number < low || number > high) throw new Error(`${shown} is outside of ${dtype}: ${low} to ${high}.`);
    return bits === 64n ? number : Number(number);
  }
  if (word !== null) return word[2].toLowerCase() === "nan" ? NaN : word[1] === "-" ? -Infinity : Infinity;
  const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
  if (Number.isNaN(number)) throw new Error(`${shown} is not a number.`);
  if (!Number.isFinite(dtype === "float32" ? Math.fround(number) : number)) throw new Error(`${shown} is too large for ${dtype}; write inf for infinity.`);
  return number;
}

/** Return the tensor of nested lists as in JSON, which may have the words nan and inf. */
export function typed(text: string, end: End): Tensor {
  const { dtype } = end;
  if (text.length > LONGEST) throw new Error(`The text has ${text.length} characters; a page reads up to ${LONGEST}: give a .npy file.`);
  if (dtype === "string" && !/^\s*[["]/.test(text)) return { dtype, dims: [], data: [text] };
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\],]|[^\s[\],"]+|"/g) ?? [];
  if (tokens.length === 0) throw new Error("Nothing is typed: give a number, or lists in brackets such as [1, 2].");
  const dims: number[] = [];
  const flat: (number | bigint | string)[] = [];
  let at = 0;
  let leaf = -1; // the depth of elements, once one is read
  const read = (depth: number): void => {
    if (tokens[at] !== "[") {
      const token = tokens[at++];
      if (token === undefined || token === "," || token === "]" || token === '"') throw new Error(`${token === undefined ? "The end" : token} stands where an element should.`);
      if (leaf >= 0 && leaf !== depth) throw new Error("Elements are in brackets of different depths.");
      leaf = depth;
      flat.push(element(token, dtype));
      return;
    }
    if (depth === DEEPEST) throw new Error(`Lists are more than ${DEEPEST} deep.`);
    at += 1;
    let count = 0;
    for (; at < tokens.length && tokens[at] !== "]"; count++) {
      if (count > 0 && tokens[at++] !== ",") throw new Error(`A comma is missing before ${tokens[at - 1].slice(0, 40)}.`);
      read(depth + 1);
    }
    if (tokens[at++] !== "]") throw new Error("A closing bracket is missing.");
    if (leaf >= 0 && leaf <= depth) throw new Error("Elements are in brackets of different depths.");
    if ((dims[depth] ??= count) !== count) throw new Error(`Lists of ${dims[depth]} and of ${count} elements stand side by side.`);
  };
  read(0);
  if (at < tokens.length) throw new Error(`${tokens[at].slice(0, 40)} stands after the end of the value.`);
  if (flat.length !== sizeOf(dims)) throw new Error("Elements are in brackets of different depths.");
  const data = made(dtype, dims);
  flat.forEach((each, index) => ((data as (number | bigint | string)[])[index] = each));
  return { dtype, dims, data };
}

export function zeros(end: End): Tensor {
  const dims = (end.shape ?? []).map((dim) => fixed(dim) ?? 1);
  return { dtype: end.dtype, dims, data: made(end.dtype, dims) };
}

/** Return the tensor of a dropped file, by its ending. scale: of pixels, for floats. */
export async function fromFile(file: File, end: End, scale: string): Promise<Tensor> {
  if (file.size > MOST_BYTES) throw new Error(`The file has ${file.size} bytes; a page reads up to ${MOST_BYTES}.`);
  if (/\.npy$/i.test(file.name)) return fromNpy(await file.arrayBuffer(), end);
  if (/\.(json|txt)$/i.test(file.name)) return typed(await file.text(), end);
  if (/\.(png|jpe?g|webp|gif|bmp)$/i.test(file.name)) return fromImage(file, end, scale);
  throw new Error("The file is not .npy, .json or an image (.png, .jpg, .webp).");
}

function half(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent < 31 ? (1024 + fraction) * 2 ** (exponent - 25) : fraction === 0 ? Infinity : NaN;
  return bits & 0x8000 ? -size : size;
}

function fromNpy(bytes: ArrayBuffer, end: End): Tensor {
  const view = new DataView(bytes);
  const start = bytes.byteLength > 12 && view.getUint32(0) === 0x934e554d ? (view.getUint8(6) === 1 ? 10 + view.getUint16(8, true) : 12 + view.getUint32(8, true)) : 0;
  const header = new TextDecoder("latin1").decode(bytes.slice(0, start));
  const [, descr] = /'descr': '([^']*)'/.exec(header) ?? [];
  const [, shape] = /'shape': \(([\d, ]*)\)/.exec(header) ?? [];
  if (start === 0 || descr === undefined || shape === undefined) throw new Error("The file is not a .npy file of an array of numbers.");
  if (/'fortran_order': True/.test(header)) throw new Error("The array is in Fortran's order: save np.ascontiguousarray(x).");
  const dims = shape.split(",").filter((dim) => dim.trim() !== "").map(Number);
  const { dtype } = end;
  const narrow = descr === "<f2" ? half : descr === "|V2" && end.own === "bfloat16" ? (bits: number) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0] : null;
  const stored = narrow !== null ? "uint16" : Object.keys(DTYPES).find((name) => DTYPES[name].npy === descr);
  if (stored === undefined || (narrow === null && stored !== dtype && !(isFloat(stored) && isFloat(dtype))) || (narrow !== null && !isFloat(dtype))) {
    throw new Error(`The file has elements of ${descr} (NumPy's name); the input is of ${end.own}: save x.astype("${dtype}").`);
  }
  const data = made(dtype, dims);
  const elements = made(stored, dims) as Float32Array;
  if (bytes.byteLength - start !== elements.byteLength) throw new Error(`The file has ${bytes.byteLength - start} bytes of elements; [${dims.join(", ")}] needs ${elements.byteLength}.`);
  new Uint8Array(elements.buffer).set(new Uint8Array(bytes, start));
  if (stored === dtype) return { dtype, dims, data: elements };
  elements.forEach((each, index) => ((data as Float32Array)[index] = narrow === null ? each : narrow(each)));
  return { dtype, dims, data };
}

/** Return a picture as [N, C, H, W], [N, H, W, C] or a part of these, resized where the input's sizes are fixed. */
async function fromImage(file: File, end: End, scale: string): Promise<Tensor> {
  const { dtype, shape } = end;
  if (shape === null || shape.length < 2 || shape.length > 4 || (dtype !== "uint8" && !isFloat(dtype))) throw new Error("An image needs an input of 2 to 4 axes and of uint8 or floats.");
  const rank = shape.length;
  const last = rank > 2 && /^[134]$/.test(shape[rank - 1]) && !/^[13]$/.test(shape[rank - 3]);
  const [down, across, channel] = rank === 2 ? [0, 1, -1] : last ? [rank - 3, rank - 2, rank - 1] : [rank - 2, rank - 1, rank - 3];
  const [high, wide, channels] = [shape[down], shape[across], shape[channel] ?? "1"].map(fixed);
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" }).catch(() => Promise.reject(new Error("The browser cannot read this image.")));
  const [width, height] = [wide ?? bitmap.width, high ?? bitmap.height];
  const context = new OffscreenCanvas(width, height).getContext("2d") as OffscreenCanvasRenderingContext2D;
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data;
  const count = channels ?? 3;
  if (count !== 1 && count !== 3 && count !== 4) throw new Error(`An image has 1, 3 or 4 channels; axis ${channel} of the input has ${count}.`);
  const [factor, less] = dtype === "uint8" || scale === "0 to 255" ? [1, 0] : scale === "-1 to 1" ? [1 / 127.5, 1] : [1 / 255, 0];
  const dims = shape.map((_, axis) => (axis === down ? height : axis === across ? width : axis === channel ? count : 1));
  const data = made(dtype, dims) as Float32Array;
  for (let at = 0; at < width * height; at++) {
    const gray = 0.299 * pixels[4 * at] + 0.587 * pixels[4 * at + 1] + 0.114 * pixels[4 * at + 2];
    for (let c = 0; c < count; c++) data[last ? at * count + c : c * width * height + at] = (count === 1 ? (dtype === "uint8" ? Math.round(gray) : gray) : pixels[4 * at + c]) * factor - less;
  }
  return { dtype, dims, data };
}

/** Return the .npy file of a tensor; null for strings. */
export function npyOf({ dtype, dims, data }: Tensor): Blob | null {
  const { npy } = DTYPES[dtype];
  if (npy === "") return null;
  const header = `{'descr': '${npy}', 'fortran_order': False, 'shape': (${dims.map((dim) => `${dim},`).join("")}), }`;
  const padded = `${header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11)}\n`;
  return new Blob([Uint8Array.of(0x93, 78, 85, 77, 80, 89, 1, 0, padded.length & 255, padded.length >> 8), padded, data as Float32Array<ArrayBuffer>]);
}
