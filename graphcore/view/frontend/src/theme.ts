/** The colours and fonts of the canvas, read from the style sheet so that they are defined once. */
import { FAMILIES, type Family } from "./ops";

const NAMES = ["paper", "sheet", "ink", "quiet", "line", "edge", "accent", "accent-soft", "found", "found-soft", "scope", "scope-line", "pile", "heat-low", "heat-high", "added", "removed", "changed", "warn"] as const;
const WORDS = 8;

export interface Theme {
  colour: Record<(typeof NAMES)[number], string>;
  family: Record<Family, string>;
  words: string[];
  ui: string;
}

export function readTheme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    colour: Object.fromEntries(NAMES.map((name) => [name, read(name)])) as Theme["colour"],
    family: Object.fromEntries(FAMILIES.map((name) => [name, read(`op-${name}`)])) as Theme["family"],
    words: Array.from({ length: WORDS }, (_, index) => read(`word-${index}`)),
    ui: read("ui"),
  };
}

/** Interpolate two colours of the form #rrggbb. */
export function between(low: string, high: string, part: number): string {
  const channel = (colour: string, at: number): number => parseInt(colour.slice(1 + 2 * at, 3 + 2 * at), 16);
  const mixed = [0, 1, 2].map((at) => Math.round(channel(low, at) + (channel(high, at) - channel(low, at)) * part));
  return `rgb(${mixed.join(" ")})`;
}

const KEY = "graphcore-theme";

/** Follow the system until the user chooses a theme; the choice is stored if the browser allows it. */
export function startTheme(changed: () => void): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = (): void => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    changed();
  };
  system.addEventListener("change", apply);
  apply();
}

export function switchTheme(): string {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Storage may be denied to a page in a frame or from disk.
  }
  return next;
}

function chosen(): string | null {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "dark" || stored === "light" ? stored : null;
  } catch {
    return null;
  }
}
