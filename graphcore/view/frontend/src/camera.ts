/** The visible part of the drawing, and its scale. */
export const SMALLEST = 0.004;
export const LARGEST = 3;

export class Camera {
  /** The position of the drawing's origin on the screen. */
  x = 0;
  y = 0;
  scale = 1;
  private moving = 0;

  constructor(private readonly changed: () => void) {}

  move(dx: number, dy: number): void {
    this.stop();
    this.x += dx;
    this.y += dy;
    this.changed();
  }

  /** Zoom about a point of the screen. */
  zoom(factor: number, aboutX: number, aboutY: number): void {
    this.stop();
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.x = aboutX - ((aboutX - this.x) * scale) / this.scale;
    this.y = aboutY - ((aboutY - this.y) * scale) / this.scale;
    this.scale = scale;
    this.changed();
  }

  set(x: number, y: number, scale: number): void {
    this.stop();
    this.x = x;
    this.y = y;
    this.scale = scale;
    this.changed();
  }

  /** Move there with an animation, or at once if the user prefers reduced motion. */
  glide(x: number, y: number, scale: number): void {
    this.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.set(x, y, scale);
    const from = { x: this.x, y: this.y, scale: this.scale };
    const start = performance.now();
    const step = (now: number): void => {
      const part = Math.min(1, Math.max(0, now - start) / 220);
      const eased = 1 - (1 - part) ** 3;
      this.scale = from.scale * (scale / from.scale) ** eased;
      const along = scale === from.scale ? eased : (this.scale - from.scale) / (scale - from.scale);
      this.x = from.x + (x - from.x) * along;
      this.y = from.y + (y - from.y) * along;
      this.changed();
      this.moving = part < 1 ? requestAnimationFrame(step) : 0;
    };
    this.moving = requestAnimationFrame(step);
    return undefined;
  }

  private stop(): void {
    cancelAnimationFrame(this.moving);
    this.moving = 0;
  }
}
