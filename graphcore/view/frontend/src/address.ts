/** The part of the address after #: which node of which graph is selected. */
export interface Place {
  node: string;
  /** -1 for the graph, else an index of `lowered`. */
  view: number;
}

export function readPlace(hash: string): Place | null {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  const node = parameters.get("node");
  const view = Number(parameters.get("lowered") ?? -1);
  return node === null ? null : { node, view: Number.isInteger(view) ? view : -1 };
}

export function placeHash(place: Place | null): string {
  if (place === null) return "";
  const node = `#node=${encodeURIComponent(wellFormed(place.node))}`;
  return place.view < 0 ? node : `${node}&lowered=${place.view}`;
}

/** encodeURIComponent throws at half a surrogate pair, which a broken name may have. */
function wellFormed(text: string): string {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}

/** Write the selection to the address without a new history entry; a frame without an address cannot store it. */
export function keepPlace(place: Place | null): void {
  try {
    history.replaceState(null, "", placeHash(place) || location.pathname + location.search);
  } catch {
    return;
  }
}
