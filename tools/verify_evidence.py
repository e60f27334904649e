#!/usr/bin/env python3
"""Check a chain of evidence without Once: Python's standard library, and openssl for signatures.

Reads entries, one a line, exactly as `once tail --json` prints them, and checks that each is in
canonical form, that their numbers are dense, and what the chain's hash comes to. With a checkpoint
and the public key, checks the signature and that the chain has that hash at that entry.

An entry of version 2 is hashed without what follows from its other members and its place, so that
is left out first, if it is what follows. With --stored, prints what is left, one entry a line.

docs/formats/evidence.md describes the format; this is the description as a program.

Exit: 0 fine, 1 damage found, 2 could not check.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tempfile
import time

# The DER form of an Ed25519 public key (RFC 8410) is these bytes and the 32 bytes of the key.
DER_PREFIX = bytes.fromhex("302a300506032b6570032100")


# What follows from a decision: the state of the record, and the name that IDS gives to an answer.
STATES = {"first_seen": "in_progress", "claimed": "in_progress", "in_progress": "in_progress",
          "renewed": "in_progress", "duplicate_replayed": "executed", "unknown": "unknown",
          "held_unknown": "unknown", "released": "released", "not_found": "absent"}
TOLD = {"in_progress": "duplicate_replayed", "held_unknown": "duplicate_replayed",
        "stale_version": "conflict_rejected", "enqueued": "first_seen"}
# The words of each kind of record for its statuses, where they are not the status.
WORDS = {
    "cmd_": {"pending": "received", "in_progress": "started", "unknown": "blocked",
             "dead": "blocked"},
    "eff_": {"waiting": "pending", "in_progress": "dispatched", "unknown": "dispatched",
             "executed": "acknowledged", "rejected": "failed", "dead": "dead_letter",
             "compensating": "acknowledged"},
    "dlv_": {"in_progress": "delivering", "rejected": "failed", "dead": "dead_letter"},
}


class Damage(Exception):
    """Something does not check out."""


class Number(str):
    """A number as it is written: canonical text is compared as text."""


def canonical(value):
    """RFC 8785 of a value whose numbers are canonical already."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(canonical(n) + ":" + canonical(value[n]) for n in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def members_once(pairs):
    """An object, unless a member is there twice."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Damage("a member is there twice")
    return value


def no_number(text):
    """NaN and the infinities are Python's own idea of JSON."""
    raise Damage(f"not JSON: {text}")


def read_entry(line):
    """The entry of a line, in its one spelling."""
    try:
        entry = json.loads(line.decode("utf-8"), object_pairs_hook=members_once,
                           parse_int=Number, parse_float=Number, parse_constant=no_number)
        again = canonical(entry).encode("utf-8")
    except ValueError as error:
        raise Damage(f"not JSON: {error}") from error
    if not isinstance(entry, dict) or again != line:
        raise Damage("not in canonical form")
    return entry


def stamp(now_ms):
    """A time in milliseconds, as text."""
    seconds, rest = divmod(int(now_ms), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03}Z"


def type_of(decision, state):
    """The type of most entries with such a decision."""
    if decision in ("first_seen", "claimed"):
        return "execution.started"
    is_seal = decision == "sealed" and state in ("executed", "failed", "rejected")
    return f"execution.{state}" if is_seal else "observation.emitted"


def word_of(entry):
    """What lifecycle_state is, by the record's kind and status: outcome has the status."""
    decided, kind = entry["decided"], entry["operation_id"][:4]
    status = entry["outcome"]["status"]
    wakes = decided["request"] == "wake" and decided["decision"] == "done"
    if kind == "cmd_" and status == "pending" and wakes:
        return "confirmed"
    if kind == "cmd_" and status == "waiting" and wakes and "delay_ms" not in decided:
        return "blocked"
    if kind == "cmd_" and status == "waiting":
        return "awaiting_confirmation" if decided["attempt"] == "0" else "awaiting_effects"
    return WORDS.get(kind, {}).get(status, status)


def with_status(entry):
    """The entry with the status itself as lifecycle_state, as it is stored and as it was shown by
    releases up to November 2026."""
    status = entry["outcome"]["status"]
    if entry["lifecycle_state"] not in (word_of(entry), status):
        raise Damage("lifecycle_state is not the word for outcome.status")
    return {**entry, "lifecycle_state": status}


def derive(entry, chain_id, seq):
    """What follows from the other members of an entry and from its place."""
    number = Number(seq) if seq <= 1 << 53 else str(seq)
    derived = {"chain_id": chain_id, "entry_id": f"ent_{chain_id[:8]}_{seq}", "seq": number}
    decided = entry.get("decided")
    if decided is None:
        return derived
    decision, own_id = decided["decision"], entry["operation_id"]
    usual = STATES.get(decision, decided.get("status"))
    state = entry.get("lifecycle_state", usual)
    derived |= {"lifecycle_state": usual, "occurred_at": stamp(decided["now_ms"]),
                "type": type_of(decision, state), "outcome": {"status": state},
                "decided": {"attempt": Number(1), "version": Number(0),
                            "fence": decided.get("fence_next", Number(0))}}
    if "fingerprint" in decided:
        derived["decided"]["fingerprint_version"] = Number(1)
    if "lease_ms" in decided and decided["request"] != "renew":
        derived["decided"]["on_unknown"] = "hold"
    if decided["request"] in ("begin", "enqueue"):
        detail = {"detail": decision} if decision in TOLD else {}
        derived["dedupe"] = {"decision": TOLD.get(decision, decision), **detail,
                             "executed": decision == "first_seen", "original_operation_id": own_id}
    if own_id[:4] in ("cmd_", "eff_"):
        derived["command_id" if own_id[0] == "c" else "effect_id"] = own_id
    return derived


def left_out(full, derived):
    """A document without the members that are what follows; a different value stays."""
    if not set(derived) <= set(full):
        raise Damage(f"member {min(set(derived) - set(full))} is missing")
    kept = {}
    for name, value in full.items():
        if isinstance(derived.get(name), dict):
            value = left_out(value, derived[name])
            if value:
                kept[name] = value
        elif name not in derived or type(value) is not type(derived[name]) \
                or value != derived[name]:
            kept[name] = value
    return kept


def stored_form(entry, chain_id, seq):
    """The bytes that are hashed."""
    if "v" not in entry:
        return canonical(entry).encode("utf-8")
    if canonical(entry["v"]) != "2":
        raise Damage(f"version {entry['v']} is not known")
    try:
        entry = with_status(entry) if "decided" in entry else entry
        return canonical(left_out(entry, derive(entry, chain_id, seq))).encode("utf-8")
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Damage(f"a member is missing or wrong: {error}") from error


def link(previous, stored, is_version_2, chain_id, seq):
    """The hash of an entry, which ties it to its chain, its number and the entries before it."""
    if not is_version_2:
        return hashlib.sha256(previous + stored).digest()
    place = bytes.fromhex(chain_id.replace("-", "")) + seq.to_bytes(8, "big")
    return hashlib.sha256(previous + place + hashlib.sha256(stored).digest()).digest()


def check_entry(entry, chain_id, seq):
    """The members that say where the entry belongs."""
    if entry.get("seq") != str(seq):
        raise Damage(f"entry {entry.get('seq')} stands where {seq} belongs")
    if entry.get("chain_id") != chain_id:
        raise Damage(f"the entry is of another chain, {entry.get('chain_id')}")
    if entry.get("entry_id") != f"ent_{chain_id[:8]}_{seq}":
        raise Damage("entry_id is not that of the entry")


def check_signature(body, signature, public_key):
    """True when the 64 bytes are the key's signature of the body, says openssl."""
    with tempfile.TemporaryDirectory() as where:
        for name, data in (("body", body), ("signature", signature),
                           ("key", DER_PREFIX + public_key)):
            with open(f"{where}/{name}", "wb") as file:
                file.write(data)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey",
                   f"{where}/key", "-rawin", "-in", f"{where}/body", "-sigfile",
                   f"{where}/signature"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def read_checkpoint(note, key):
    """Origin, seq and hash of a signed note, once its signature is right."""
    name, key_id, key_data = key.strip().split("+", 2)
    public_key = base64.b64decode(key_data, validate=True)
    expected_id = hashlib.sha256(name.encode() + b"\n" + public_key).digest()[:4]
    if public_key[:1] != b"\x01" or expected_id.hex() != key_id:
        raise ValueError("not a public key of a chain of evidence")
    body, separator, last = note.partition(b"\n\n")
    lines = body.decode("utf-8").split("\n")
    mark, origin, signed = last.decode("utf-8").rstrip("\n").split(" ")
    signed = base64.b64decode(signed, validate=True)
    if not separator or mark != "\u2014" or len(lines) != 4:
        raise ValueError("not a checkpoint")
    if lines[0] != name or origin != name or signed[:4] != expected_id:
        raise Damage("the checkpoint is of another chain or key")
    if not check_signature(body + b"\n", signed[4:], public_key[1:]):
        raise Damage("the checkpoint's signature is wrong")
    return lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)


def run(arguments):
    """Check everything; the text that says how far it is good."""
    checkpoint = None
    if arguments.checkpoint:
        with open(arguments.checkpoint, "rb") as note, open(arguments.key, encoding="utf-8") as key:
            checkpoint = read_checkpoint(note.read(), key.read())
    seq, previous = 0, bytes(32)
    if arguments.after:
        text, _, digest = arguments.after.partition(":")
        seq, previous = int(text), bytes.fromhex(digest)
    chain_id, compared = None, False
    with (open(arguments.entries, "rb") if arguments.entries else sys.stdin.buffer) as lines:
        for line in lines:
            line = line.rstrip(b"\n")
            try:
                entry = read_entry(line)
                chain_id = chain_id or str(entry.get("chain_id"))
                check_entry(entry, chain_id, seq + 1)
                stored = stored_form(entry, chain_id, seq + 1)
                previous = link(previous, stored, "v" in entry, chain_id, seq + 1)
            except (Damage, ValueError) as damage:
                raise Damage(f"behind entry {seq}: {damage}") from damage
            seq += 1
            if arguments.stored:
                print(stored.decode("utf-8"))
            if checkpoint and checkpoint[1] == seq:
                compared = True
                if checkpoint[0] != f"once/{chain_id}" or checkpoint[2] != previous:
                    raise Damage(f"the checkpoint has another hash for entry {seq}")
    if checkpoint and checkpoint[1] > seq:
        raise Damage(f"older than the checkpoint: ends with entry {seq}, not {checkpoint[1]}")
    signed = f", the checkpoint agrees at entry {checkpoint[1]}" if compared else ""
    return f"{seq} entries check out, hash {previous.hex()}{signed}"


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("entries", nargs="?", help="file of entries, one a line; default: stdin")
    parser.add_argument("--checkpoint", help="a signed note, as a file")
    parser.add_argument("--key", help="the public key, as a file")
    parser.add_argument("--stored", action="store_true", help="print the entries as stored")
    parser.add_argument("--after", metavar="SEQ:HASH", help="where the entries continue from")
    arguments = parser.parse_args()
    if bool(arguments.checkpoint) != bool(arguments.key):
        parser.error("--checkpoint and --key go together")
    try:
        result = run(arguments)
        print(result, file=sys.stderr if arguments.stored else sys.stdout)
    except Damage as damage:
        print(f"damage: {damage}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"cannot check: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
