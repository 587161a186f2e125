/** Statistics of a value: a table and a histogram. */
import { h, svg } from "./dom";
import type { Statistics } from "./model";
import { numberText } from "./text";

const WIDTH = 320;
const HEIGHT = 60;

export function statistics(values: Statistics): HTMLElement {
  const share = values.elements > 0 ? ` (${((100 * values.zeros) / values.elements).toFixed(1)} %)` : "";
  const rows: [string, string][] = [
    ["elements", numberText(values.elements)], ["min", numberText(values.min)], ["max", numberText(values.max)], ["mean", numberText(values.mean)],
    ["zeros", numberText(values.zeros) + share], ["NaN", numberText(values.nan)], ["infinite", numberText(values.infinite)],
  ];
  return h(
    "div",
    { class: "statistics" },
    histogram(values),
    h("table", {}, h("tbody", {}, ...rows.map(([what, number]) => h("tr", {}, h("th", { set: { scope: "row" } }, what), h("td", { class: "number" }, number))))),
  );
}

function histogram(values: Statistics): SVGElement | null {
  const largest = Math.max(...values.histogram, 0);
  if (largest === 0) return null;
  const step = WIDTH / values.histogram.length;
  const bars = values.histogram.map((count, index) => {
    const height = count === 0 ? 0 : Math.max(1, (count / largest) * HEIGHT);
    return svg("rect", { x: index * step + 0.5, y: HEIGHT - height, width: Math.max(0.5, step - 1), height }, svg("title", {}, `${numberText(count)} elements`));
  });
  const label = `Histogram of ${values.histogram.length} bins from ${numberText(values.min)} to ${numberText(values.max)}`;
  return svg("svg", { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars, svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }));
}
