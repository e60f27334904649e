"""The hash of an entry of evidence as a server shows it, by the code that strangers are given."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import verify_evidence  # noqa: E402


def canonical(value):
    """RFC 8785, for entries: their numbers are whole and their member names ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def link(prev, shown):
    """Its hash after the hash `prev`; what it says of its own hashes does not count."""
    bare = {name: value for name, value in shown.items() if name not in ("prev_hash", "hash")}
    entry = verify_evidence.read_entry(canonical(bare))
    chain_id, seq = bare["chain_id"], bare["seq"]
    stored = verify_evidence.stored_form(entry, chain_id, seq)
    return verify_evidence.link(prev, stored, "v" in entry, chain_id, seq)
