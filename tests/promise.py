"""What Once promises, as a failure that no second try excuses (tools/test, NO_EXCUSE).

    with promise.kept():
        assert not granted_twice

A wait that was too short on a busy machine fails otherwise, and may be tried again.
"""
import contextlib


class PromiseBroken(AssertionError):
    """Something happened twice, or what was acknowledged is lost, or no order explains the
    answers."""


@contextlib.contextmanager
def kept():
    """What is asserted here is a promise: a failure has the name PromiseBroken. A function that
    asserts nothing else may have it as its decorator."""
    try:
        yield
    except AssertionError as broken:
        raise PromiseBroken(str(broken)) from broken
