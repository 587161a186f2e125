/** The program of the worker: it places one scope for each message. */
import { place, type PlaceRequest } from "./place";

self.onmessage = (event: MessageEvent<PlaceRequest>) => self.postMessage(place(event.data));
