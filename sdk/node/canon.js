// Canonical form (RFC 8785), and the keys that are derived from it.
//
// `canonical` gives the bytes of `once canon --strict`; the keys are those of `once key`. Equal
// values have equal keys on every platform, so what would be lost is refused: a number that a
// double cannot hold, a duplicate member, a lone surrogate. Parse texts with `parse`: JSON.parse
// has lost those digits already.
import { createHash } from "node:crypto";

/** A number of a text that a double does not hold; `canonical` refuses it. */
class LossyNumber {
  constructor(text) {
    this.text = text;
  }
}

/** Reads I-JSON (RFC 7493). */
export function parse(text) {
  JSON.parse(text); // throws for what is not JSON; what follows need not look twice
  const token = /\s*("(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,]+)/y;
  const next = () => token.exec(text)[1];
  const read = (first) => {
    if (first === "{") return readObject();
    if (first === "[") return readArray();
    if (first[0] === '"' || /^[tfn]/.test(first)) return JSON.parse(first);
    return isLossy(first) ? new LossyNumber(first) : Number(first);
  };
  const readObject = () => {
    const members = Object.create(null);
    for (let first = next(); first !== "}"; first = next()) {
      const name = JSON.parse(first === "," ? next() : first);
      if (name in members) throw new SyntaxError(`duplicate member "${name}"`);
      next(); // the colon
      members[name] = read(next());
    }
    return members;
  };
  const readArray = () => {
    const items = [];
    for (let first = next(); first !== "]"; first = next()) {
      items.push(read(first === "," ? next() : first));
    }
    return items;
  };
  return read(next());
}

function isLossy(text) {
  const value = Number(text);
  return !Number.isFinite(value) || decimal(text) !== decimal(String(value));
}

/** The digits and the exponent of a number: the same for all spellings of one value. */
function decimal(text) {
  const [, sign, whole, fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text);
  const digits = (whole + fraction).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  if (short === "") return "0";
  const power = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - short.length);
  return `${sign}${short}e${power}`;
}

/** The canonical text of a JSON value. Throws TypeError for one that has none. */
export function canonical(value) {
  return put(value, "");
}

function put(value, pointer) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value, pointer);
  if (typeof value === "number" || typeof value === "bigint") return number(value, pointer);
  if (value instanceof LossyNumber) throw lossy(value.text, pointer);
  if (Array.isArray(value)) {
    return `[${value.map((item, index) => put(item, `${pointer}/${index}`)).join(",")}]`;
  }
  if (typeof value === "object") {
    const names = Object.keys(value).filter((name) => value[name] !== undefined).sort();
    const below = (name) => `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    return `{${names
      .map((name) => `${quoted(name, pointer)}:${put(value[name], below(name))}`)
      .join(",")}}`;
  }
  throw new TypeError(`"${pointer}" is a ${typeof value}, which JSON does not have`);
}

function quoted(text, pointer) {
  if (/\p{Surrogate}/u.test(text)) {
    throw new TypeError(`a string at "${pointer}" has a lone surrogate`);
  }
  return JSON.stringify(text);
}

function number(value, pointer) {
  if (typeof value === "bigint") {
    if (isLossy(String(value))) throw lossy(value, pointer);
    return String(Number(value));
  }
  if (!Number.isFinite(value)) {
    throw new TypeError(`number ${value} at "${pointer}" is beyond the largest double`);
  }
  return JSON.stringify(value);
}

function lossy(text, pointer) {
  return new TypeError(`number ${text} at "${pointer}" is lossy: a double does not hold it`);
}

// --- Keys ----------------------------------------------------------------------------------------

const required = (rule) => ({ rule, isRequired: true });
const optional = (rule) => ({ rule, isRequired: false });
const ignored = optional("ignored"); // it never enters the key
const COMMAND = {
  actor_id: required("name"), args: optional("object"), command_kind: optional("name"),
  intent: required("object"), tenant_id: required("name"), effective_actor_id: ignored,
  command_id: ignored, source: ignored, trace: ignored, created_at: ignored,
  confirmation: ignored, idempotency_key: ignored, extensions: ignored,
};
const INTENT = { action: required("name"), entity: required("name"), target: required("any") };
const EFFECT = {
  command_id: required("name"), effect_type: required("name"), ordinal: optional("ordinal"),
  target: optional("any"), tenant_id: required("name"), effect_id: ignored,
  idempotency_key: ignored, payload: ignored, trace: ignored, attempt: ignored,
  created_at: ignored, policy_refs: ignored, extensions: ignored,
};
const SOURCE = {
  action: optional("scalar"), index_hash: optional("scalar"), revision: optional("scalar"),
  source_id: optional("scalar"), source_type: optional("scalar"), tenant_id: required("name"),
};

/** The key of a command: of who asks for what, not of how and when it was asked. */
export function commandKey(envelope) {
  const hashed = { args: {}, ...collect(COMMAND, envelope, "", true) };
  hashed.intent = collect(INTENT, hashed.intent, "/intent", false);
  return digest(hashed);
}

/** The key of an effect: its command, type, target and ordinal. */
export function effectKey(envelope) {
  return digest({ ordinal: 0, ...collect(EFFECT, envelope, "", true) });
}

/** The key of a message by where it came from (`key_from`). */
export function sourceKey(envelope) {
  const hashed = collect(SOURCE, envelope, "", false);
  if (Object.keys(hashed).length < 2) {
    throw new TypeError("one of source_type, source_id, revision, index_hash, action is needed");
  }
  return digest(hashed);
}

export function sha256(data) {
  return createHash("sha256").update(data).digest("hex");
}

function digest(hashed) {
  return sha256(canonical(hashed));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) &&
    !(value instanceof LossyNumber);
}

/** What is hashed of an object, checked. */
function collect(form, envelope, prefix, isExtensible) {
  if (!isObject(envelope)) throw new TypeError(`"${prefix}" is not an object`);
  for (const name of Object.keys(envelope)) {
    if (!Object.hasOwn(form, name) && !(isExtensible && name.startsWith("x_"))) {
      throw new TypeError(`unknown member "${prefix}/${name}"`);
    }
  }
  const hashed = {};
  for (const [name, { rule, isRequired }] of Object.entries(form)) {
    if (rule === "ignored") continue;
    // If one actor acts for a different one, the effective actor counts.
    const isActedFor = name === "actor_id" && envelope.effective_actor_id !== undefined;
    const given = isActedFor ? "effective_actor_id" : name;
    const value = envelope[given];
    if (value === undefined && isRequired) {
      throw new TypeError(`member "${prefix}/${given}" is missing`);
    }
    if (value === undefined) continue;
    const wanted = broken(rule, value);
    if (wanted) throw new TypeError(`member "${prefix}/${given}" must be ${wanted}`);
    hashed[name] = value;
  }
  return hashed;
}

/** What a value should have been; undefined if it is right. */
function broken(rule, value) {
  const isName = typeof value === "string" && value !== "";
  const isNumber = ["number", "bigint"].includes(typeof value) || value instanceof LossyNumber;
  if (rule === "name" && !isName) return "a string that is not empty";
  if (rule === "scalar" && !isName && !isNumber) return "a string that is not empty, or a number";
  if (rule === "object" && !isObject(value)) return "an object";
  if (rule === "ordinal" && !(Number.isInteger(value) && value >= 0) &&
      !(value instanceof LossyNumber)) {
    return "an integer from 0 on";
  }
  return undefined;
}
