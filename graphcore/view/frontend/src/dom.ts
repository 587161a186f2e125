/** The only module that creates elements. Text is added as text nodes, so that no name in a model is parsed as markup. */
import { plain } from "./text";

export type Child = Element | string | number | null | undefined;

interface Properties {
  class?: string;
  /** Attributes by name. */
  set?: Record<string, string | number | boolean>;
  on?: Partial<{ [K in keyof HTMLElementEventMap]: (event: HTMLElementEventMap[K]) => void }>;
}

export function fill<E extends Element>(parent: E, ...children: Child[]): E {
  for (const child of children) {
    if (child === null || child === undefined) continue;
    parent.append(child instanceof Element ? child : document.createTextNode(plain(String(child))));
  }
  return parent;
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, properties: Properties = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (properties.class !== undefined) element.className = properties.class;
  for (const [name, value] of Object.entries(properties.set ?? {})) {
    if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [name, listener] of Object.entries(properties.on ?? {})) element.addEventListener(name, listener as EventListener);
  return fill(element, ...children);
}

export function svg(tag: string, attributes: Record<string, string | number>, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return fill(element, ...children);
}

export function button(label: string, press: () => void, properties: Properties = {}): HTMLButtonElement {
  return h("button", { ...properties, set: { type: "button", ...properties.set }, on: { click: press } }, label);
}

/** Replace the children of an element. */
export function refill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  fill(parent, ...children);
}

/** A name from a model in running text, isolated so that right-to-left letters do not reorder the text around it. */
export function name(text: string, longest?: number): HTMLElement {
  return h("bdi", { class: "name" }, plain(text === "" ? "(no name)" : text, longest));
}

/** Save a file as if by a link, which is never part of the page. */
export function download(blob: Blob, file: string): void {
  const link = h("a", { set: { href: URL.createObjectURL(blob), download: file.replace(/[^\p{L}\p{N}._-]+/gu, "_") } });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
