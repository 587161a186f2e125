/** Mouse, pen and fingers on a drawing. */
import { scopeOf } from "./boxes";
import type { Viewer, Spot } from "./viewer";

const STILL = 4;

export function listen(viewer: Viewer, hover: (spot: Spot | null, x: number, y: number) => void): void {
  const { canvas, camera } = viewer;
  const pressed = new Map<number, { x: number; y: number }>();
  let travelled = 0;

  const place = (event: MouseEvent): { x: number; y: number } => {
    const around = canvas.getBoundingClientRect();
    return { x: event.clientX - around.left, y: event.clientY - around.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    pressed.set(event.pointerId, place(event));
    travelled = 0;
    hover(null, 0, 0);
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = pressed.get(event.pointerId);
    if (before === undefined) return hover(viewer.spotAt(now.x, now.y), now.x, now.y);
    const other = [...pressed].find(([id]) => id !== event.pointerId)?.[1];
    if (other !== undefined) {
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      camera.zoom(Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, was), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else camera.move(now.x - before.x, now.y - before.y);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    pressed.set(event.pointerId, now);
  });

  const release = (event: PointerEvent): void => {
    if (!pressed.delete(event.pointerId) || event.type === "pointercancel" || travelled > STILL) return;
    const { x, y } = place(event);
    const spot = viewer.spotAt(x, y);
    viewer.select(spot?.box.item ?? null);
    const scope = spot === null ? null : scopeOf(spot.box.item);
    if (spot !== null && scope !== null && onSign(viewer, spot, x, y)) void viewer.toggle(scope);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hover(null, 0, 0));

  canvas.addEventListener("dblclick", (event) => {
    const { x, y } = place(event);
    const spot = viewer.spotAt(x, y);
    const scope = spot === null ? null : scopeOf(spot.box.item);
    if (spot !== null && scope !== null && !onSign(viewer, spot, x, y)) void viewer.toggle(scope);
  });

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = place(event);
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    if (event.shiftKey) camera.move(-(event.deltaY + event.deltaX) * pixels, 0);
    else camera.zoom(Math.exp(-Math.max(-400, Math.min(400, event.deltaY * pixels)) * (event.ctrlKey ? 0.01 : 0.0016)), x, y);
  }, { passive: false });
}

/** The plus or minus sign of a scope; a click on it opens or closes the scope. */
function onSign(viewer: Viewer, spot: Spot, x: number, y: number): boolean {
  const { camera } = viewer;
  const inX = (x - camera.x) / camera.scale - spot.left - spot.box.x;
  const inY = (y - camera.y) / camera.scale - spot.top - spot.box.y;
  if (spot.box.inside !== null) return inY < 32 && inX < viewer.titleWidth(spot.box.item) + 48;
  return inY < 26 && inX > spot.box.width - 30;
}

