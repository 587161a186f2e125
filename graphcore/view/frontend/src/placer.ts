/** Place scopes in a worker, or here if the browser does not start one. */
import { place, type Placed, type PlaceRequest } from "./place";

declare const WORKER_SOURCE: string;

export class Placer {
  private readonly waiting = new Map<number, { request: PlaceRequest; answer: (placed: Placed) => void }>();
  private worker: Worker | null = null;
  private next = 0;

  constructor() {
    try {
      const address = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
      this.worker = new Worker(address);
      this.worker.onmessage = (event: MessageEvent<Placed>) => this.answer(event.data);
      this.worker.onerror = (event) => {
        event.preventDefault();
        this.withoutWorker();
      };
    } catch {
      this.worker = null;
    }
  }

  place(request: Omit<PlaceRequest, "id">): Promise<Placed> {
    const message = { ...request, id: this.next++ };
    if (this.worker === null) return Promise.resolve(place(message));
    return new Promise((answer) => {
      this.waiting.set(message.id, { request: message, answer });
      this.worker?.postMessage(message);
    });
  }

  private answer(placed: Placed): void {
    this.waiting.get(placed.id)?.answer(placed);
    this.waiting.delete(placed.id);
  }

  private withoutWorker(): void {
    this.worker?.terminate();
    this.worker = null;
    for (const { request } of [...this.waiting.values()]) this.answer(place(request));
  }
}
