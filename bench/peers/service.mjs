// The business code of bench_peers.py, three ways: plain, behind Powertools, behind Restate.
//
//     node service.mjs plain PORT | powertools PORT REDIS_PORT | restate PORT COUNT_PORT
//
// A payment is a number here: what it costs to run it exactly once is what is measured. Each run is
// counted; GET /count says how often.
import { createServer } from "node:http";

const [mode, port, other] = process.argv.slice(2);
let runs = 0;

function pay(order) {
  runs += 1;
  return { id: `pay_${order}`, status: "captured", amount: 1999 };
}

async function web(handler) {
  const { default: fastify } = await import("fastify");
  const app = fastify({ logger: false });
  app.get("/count", () => ({ runs }));
  app.post("/v1/payments", (request) => handler(request.headers["idempotency-key"], request.body));
  await app.listen({ host: "127.0.0.1", port: Number(port) });
}

async function powertools() {
  const { IdempotencyConfig, makeIdempotent } = await import("@aws-lambda-powertools/idempotency");
  const { CachePersistenceLayer } = await import("@aws-lambda-powertools/idempotency/cache");
  const { createClient } = await import("@redis/client");
  const client = await createClient({ url: `redis://127.0.0.1:${other}` }).connect();
  const config = new IdempotencyConfig({ eventKeyJmesPath: "key" });
  // Without the time that is left it writes no lease, and duplicates in flight run twice.
  config.registerLambdaContext({ getRemainingTimeInMillis: () => 5000 });
  const once = makeIdempotent(async ({ body }) => pay(body.order), {
    persistenceStore: new CachePersistenceLayer({ client }), config });
  await web((key, body) => once({ key, body }));
}

async function restate() {
  // Its SDK is for Node 22, which has this; in Node 20 a call would hang without it.
  Promise.withResolvers ??= () => {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  };
  const { endpoint, service } = await import("@restatedev/restate-sdk");
  await endpoint().bind(service({ name: "payments", handlers: {
    pay: async (context, body) => pay(body.order) } })).listen(Number(port));
  createServer((request, answer) => answer.end(JSON.stringify({ runs })))
    .listen(Number(other), "127.0.0.1");
}

await { plain: () => web((key, body) => pay(body.order)), powertools, restate }[mode]();
