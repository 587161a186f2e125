/** Statistics of a value: a table and a histogram. */
import { h, svg } from "./dom";
import type { Statistics } from "./model";
import { numberText } from "./text";

const WIDTH = 320;
const HEIGHT = 60;

export function statistics(found: Statistics): HTMLElement {
  const share = found.elements > 0 ? ` (${((100 * found.zeros) / found.elements).toFixed(1)} %)` : "";
  const rows: [string, string][] = [
    ["elements", numberText(found.elements)], ["min", numberText(found.min)], ["max", numberText(found.max)], ["mean", numberText(found.mean)],
    ["zeros", numberText(found.zeros) + share], ["NaN", numberText(found.nan)], ["infinite", numberText(found.infinite)],
  ];
  return h(
    "div",
    { class: "statistics" },
    histogram(found),
    h("table", {}, h("tbody", {}, ...rows.map(([what, number]) => h("tr", {}, h("th", { set: { scope: "row" } }, what), h("td", { class: "number" }, number))))),
  );
}

function histogram(found: Statistics): SVGElement | null {
  const most = Math.max(...found.histogram, 0);
  if (most === 0) return null;
  const step = WIDTH / found.histogram.length;
  const bars = found.histogram.map((count, index) => {
    const height = count === 0 ? 0 : Math.max(1, (count / most) * HEIGHT);
    return svg("rect", { x: index * step + 0.5, y: HEIGHT - height, width: Math.max(0.5, step - 1), height }, svg("title", {}, `${numberText(count)} elements`));
  });
  const label = `Histogram of ${found.histogram.length} bins from ${numberText(found.min)} to ${numberText(found.max)}`;
  return svg("svg", { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars, svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }));
}
