// One call through the Node SDK, as drivers.py describes: JSON on standard input and output.
import { text } from "node:stream/consumers";
import { Client, NoAnswer, Unavailable } from "../../sdk/node/index.js";

const { method, url, idempotency_key: idempotencyKey, request_id: requestId, ...options } =
  JSON.parse(await text(process.stdin));
const client = new Client();
try {
  const answer = await client.send(method, url, { ...options, idempotencyKey, requestId });
  console.log(JSON.stringify({ result: "ok", status: answer.status, effect: answer.effect,
    replayed: answer.isReplayed, attempts: answer.attempts }));
} catch (error) {
  if (!(error instanceof NoAnswer || error instanceof Unavailable)) throw error;
  console.log(JSON.stringify({ result: error.effect === "no" ? "unavailable" : "unknown",
    status: 0, effect: error.effect, replayed: false, attempts: error.attempts }));
}
client.close();
