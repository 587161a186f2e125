/** Bundle src/ into ../assets/: page.js, page.css and the licences of what is bundled. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "assets");

/** The digest that `tests/view/test_bundle.py` works out again: each source's path and bytes, sorted by path. */
function digest() {
  const files = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json", ...readdirSync(join(here, "src")).map((file) => `src/${file}`)];
  const hash = createHash("sha256");
  for (const file of files.sort()) hash.update(file).update("\0").update(readFileSync(join(here, file))).update("\0");
  return hash.digest("hex");
}

const banner = `/*! graphcore: built from graphcore/view/frontend by make page; do not edit. Sources sha256:${digest()} */`;
const options = { bundle: true, minify: true, charset: "ascii", legalComments: "none", target: "es2022", write: false, absWorkingDir: here };

async function bundled(entry, more) {
  const result = await build({ ...options, entryPoints: [entry], ...more });
  return result.outputFiles[0].text;
}

/** The workers' programs travel in the page as strings: a file opened from disk may not load a second one. */
const worker = await bundled("src/worker.ts", { format: "iife" });
const runner = await bundled("src/runner.ts", { format: "iife" });
const page = await bundled("src/main.ts", { format: "iife", define: { WORKER_SOURCE: JSON.stringify(worker), RUNNER_SOURCE: JSON.stringify(runner) } });
const style = await bundled("src/page.css", {});

/** `</script` and `<!--` must not stand in what is put between script tags. */
const embeddable = (text) => text.replace(/<(?=\/script|!--)/gi, "\\x3c");
writeFileSync(join(assets, "page.js"), `${banner}\n${embeddable(page)}`);
writeFileSync(join(assets, "page.css"), `${banner}\n${style}`);

const vendored = ["@dagrejs/dagre", "@dagrejs/graphlib"];
const lock = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"));
const licences = vendored
  .filter((name) => `node_modules/${name}` in lock.packages)
  .map((name) => `${name} ${lock.packages[`node_modules/${name}`].version}, https://www.npmjs.com/package/${name}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}\n`);
writeFileSync(join(assets, "LICENCES.txt"), `Licences of the libraries that page.js contains.\n\n${licences.join("\n\n")}`);
