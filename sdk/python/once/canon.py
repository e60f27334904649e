"""Canonical form (RFC 8785), and the keys that are derived from it.

`canonical` gives the bytes of `once canon --strict`; `command_key`, `effect_key` and `source_key`
give those of `once key`. Equal values have equal keys on every platform, so what cannot survive is
refused: a number that a double does not hold, a duplicate member, a lone surrogate.
"""
import hashlib
import json
from decimal import Decimal
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Tuple, Union

__all__ = ["canonical", "command_key", "effect_key", "loads", "source_key"]

ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t"}
EXPONENT_FROM = 21  # ECMAScript writes 1e+21, and every digit below that
EXPONENT_BELOW = -6  # and 1e-7, but 0.000001


def loads(text: Union[str, bytes]) -> Any:
    """Reads I-JSON (RFC 7493). Fractions become Decimal, so that no digit is lost."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant,
            object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def canonical(value: Any) -> bytes:
    """The canonical bytes of a JSON value. Raises ValueError for one that has none."""
    parts: List[str] = []
    try:
        _put(value, "", parts)
        return "".join(parts).encode("utf-8")
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a string has a lone surrogate") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _members(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members: Dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f'duplicate member "{name}"')
        members[name] = value
    return members


def _put(value: Any, pointer: str, parts: List[str]) -> None:
    if value is None or value is True or value is False:
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, str):
        parts.append(_quoted(value))
    elif isinstance(value, (int, float, Decimal)):
        parts.append(_number(value, pointer))
    elif isinstance(value, Mapping):
        _put_object(value, pointer, parts)
    elif isinstance(value, (list, tuple)):
        _put_array(value, pointer, parts)
    else:
        raise ValueError(f'"{pointer}" is a {type(value).__name__}, which JSON does not have')


def _put_object(value: Mapping[Any, Any], pointer: str, parts: List[str]) -> None:
    for name in value:
        if not isinstance(name, str):
            raise ValueError(f'a member of "{pointer}" has a name that is not a string')
    separator = "{"
    for name in sorted(value, key=lambda name: str(name).encode("utf-16-be", "surrogatepass")):
        parts.append(f"{separator}{_quoted(name)}:")
        _put(value[name], f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", parts)
        separator = ","
    parts.append("}" if value else "{}")


def _put_array(value: Union[List[Any], Tuple[Any, ...]], pointer: str, parts: List[str]) -> None:
    separator = "["
    for index, item in enumerate(value):
        parts.append(separator)
        _put(item, f"{pointer}/{index}", parts)
        separator = ","
    parts.append("]" if value else "[]")


def _quoted(text: str) -> str:
    plain = (ESCAPES.get(c, c) if c >= " " else ESCAPES.get(c, f"\\u{ord(c):04x}") for c in text)
    return '"' + "".join(plain) + '"'


def _number(value: Union[int, float, Decimal], pointer: str) -> str:
    try:
        double = float(value)
    except OverflowError:
        double = float("inf")
    if double in (float("inf"), float("-inf")) or double != double:
        raise ValueError(f'number {value} at "{pointer}" is beyond the largest double')
    text = _double(double)
    if not isinstance(value, float) and Decimal(text) != value:
        raise ValueError(f'number {value} at "{pointer}" is lossy: a double does not hold it')
    return text


def _double(value: float) -> str:
    """As ECMAScript writes it."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + _double(-value)
    mantissa, _, exponent = f"{Decimal(repr(value)):e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0")
    point = int(exponent) + 1  # digits before the decimal point
    if EXPONENT_BELOW < point <= 0:
        return "0." + "0" * -point + digits
    if 0 < point <= EXPONENT_FROM:
        whole = digits[:point].ljust(point, "0")
        return whole + ("." + digits[point:] if digits[point:] else "")
    fraction = "." + digits[1:] if digits[1:] else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


# --- Keys -----------------------------------------------------------------------------------------


class _Field(NamedTuple):
    rule: str  # name, scalar, object, any, ordinal, intent; ignored: never enters the key
    required: bool = False


_IGNORED = _Field("ignored")
_COMMAND = {"actor_id": _Field("name", True), "args": _Field("object"),
    "command_kind": _Field("name"), "intent": _Field("intent", True),
    "tenant_id": _Field("name", True), "effective_actor_id": _IGNORED, "command_id": _IGNORED,
    "source": _IGNORED, "trace": _IGNORED, "created_at": _IGNORED, "confirmation": _IGNORED,
    "idempotency_key": _IGNORED, "extensions": _IGNORED}
_INTENT = {"action": _Field("name", True), "entity": _Field("name", True),
    "target": _Field("any", True)}
_EFFECT = {"command_id": _Field("name", True), "effect_type": _Field("name", True),
    "ordinal": _Field("ordinal"), "target": _Field("any"), "tenant_id": _Field("name", True),
    "effect_id": _IGNORED, "idempotency_key": _IGNORED, "payload": _IGNORED, "trace": _IGNORED,
    "attempt": _IGNORED, "created_at": _IGNORED, "policy_refs": _IGNORED, "extensions": _IGNORED}
_SOURCE = {"action": _Field("scalar"), "index_hash": _Field("scalar"),
    "revision": _Field("scalar"), "source_id": _Field("scalar"), "source_type": _Field("scalar"),
    "tenant_id": _Field("name", True)}
_DEFAULTS: Dict[str, Any] = {"object": {}, "ordinal": 0}
_ABSENT = object()


def command_key(envelope: Any) -> str:
    """The key of a command: of who asks for what, not of how and when it was asked."""
    hashed = _collect(_COMMAND, envelope, "", extensible=True)
    hashed["intent"] = _collect(_INTENT, hashed["intent"], "/intent", extensible=False)
    return _digest(hashed)


def effect_key(envelope: Any) -> str:
    """The key of an effect: its command, type, target and ordinal."""
    return _digest(_collect(_EFFECT, envelope, "", extensible=True))


def source_key(envelope: Any) -> str:
    """The key of a message by where it came from (`key_from`)."""
    hashed = _collect(_SOURCE, envelope, "", extensible=False)
    if len(hashed) < 2:
        raise ValueError("one of source_type, source_id, revision, index_hash, action is needed")
    return _digest(hashed)


def _digest(hashed: Any) -> str:
    return hashlib.sha256(canonical(hashed)).hexdigest()


def _collect(form: Mapping[str, _Field], envelope: Any, prefix: str, extensible: bool) -> Any:
    """What is hashed of an object, checked."""
    if not isinstance(envelope, Mapping):
        raise ValueError(f'"{prefix}" is not an object')
    for name in envelope:
        if name not in form and not (extensible and str(name).startswith("x_")):
            raise ValueError(f'unknown member "{prefix}/{name}"')
    hashed = {}
    for name, field in form.items():
        if field.rule == "ignored":
            continue
        given = name  # if one actor acts for another, the effective one counts
        if name == "actor_id" and "effective_actor_id" in envelope:
            given = "effective_actor_id"
        value = envelope.get(given, _DEFAULTS.get(field.rule, _ABSENT))
        if value is _ABSENT and field.required:
            raise ValueError(f'member "{prefix}/{given}" is missing')
        if value is not _ABSENT:
            wanted = _broken(field.rule, value)
            if wanted is not None:
                raise ValueError(f'member "{prefix}/{given}" must be {wanted}')
            hashed[name] = value
    return hashed


def _broken(rule: str, value: Any) -> Optional[str]:
    """What a value should have been; None if it is right."""
    is_name = isinstance(value, str) and value != ""
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if rule == "name" and not is_name:
        return "a string that is not empty"
    if rule == "scalar" and not is_name and not is_number:
        return "a string that is not empty, or a number"
    if rule in ("object", "intent") and not isinstance(value, Mapping):
        return "an object"
    if rule == "ordinal" and not (is_number and value >= 0 and value == int(value)):
        return "an integer from 0 on"
    return None
