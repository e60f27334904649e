"""Once: exactly-once effects over at-least-once delivery.

Two halves. *Call* an API that honours keys: `Client`. *Fence* your own work: `Fences`, and the
middleware in `once.wsgi` and `once.asgi`. The standard library alone.
"""
from .canon import canonical, command_key, effect_key, source_key
from .client import VERSION as __version__
from .client import Attempt, Client, Response
from .errors import (AlreadySealed, Conflict, Failed, InProgress, NoAnswer, NotSealed, NotStarted,
    OnceError, OutcomeUnknown, Problem, StaleFence, Unavailable)
from .fences import Done, Fences, Grant, Guard, Replay

__all__ = ["AlreadySealed", "Attempt", "Client", "Conflict", "Done", "Failed", "Fences", "Grant",
    "Guard", "InProgress", "NoAnswer", "NotSealed", "NotStarted", "OnceError", "OutcomeUnknown",
    "Problem", "Replay", "Response", "StaleFence", "Unavailable", "__version__", "canonical",
    "command_key", "effect_key", "source_key"]
