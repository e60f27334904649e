import type { Fences, HandlersOptions } from "./index.js";

/** A plugin for Fastify. */
export function once(app: any, options: HandlersOptions & { fences?: Fences }): Promise<void>;
export default once;
