/** The program of the page: it reads the embedded data and shows it. */
import { App } from "./app";
import { h } from "./dom";
import type { Page } from "./model";

function read(): Page {
  const text = document.getElementById("graphcore-data")?.textContent;
  if (text == null) throw new Error("This page contains no graph.");
  const page = JSON.parse(text) as Page;
  if (page.format !== 1) throw new Error(`This page has data of format ${String(page.format)}; its program supports only format 1.`);
  return page;
}

try {
  const app = new App(read());
  Object.assign(window, { graphcore: app }); // for the browser's console, and for the tests
  void app.start();
} catch (problem) {
  document.body.replaceChildren(h("p", { class: "problem", set: { role: "alert" } }, `The graph cannot be shown: ${problem instanceof Error ? problem.message : String(problem)}`));
  throw problem;
}
