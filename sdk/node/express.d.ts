import type { IncomingMessage, ServerResponse } from "node:http";
import type { Fences, HandlersOptions } from "./index.js";

/** Middleware for Express. Mount it before the body parsers. */
export function once(fences?: Fences, options?: HandlersOptions):
  (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void;
