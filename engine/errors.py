"""The one exception family. Every message is a sentence that says what to do."""

from __future__ import annotations


class HearthError(Exception):
    """Base of everything Hearth raises on purpose."""


class ConfigError(HearthError):
    """A setting is wrong, or asks for a part that is not there yet. Ends the start."""


class ModelLoadError(HearthError):
    """The model cannot be found, read or placed in memory."""


class RequestError(HearthError):
    """A request is refused before it is queued.

    Args:
        message: what is wrong and what to change.
        field: the request field at fault, where there is one.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidParameterError(RequestError):
    """A value is out of range or of the wrong type."""


class ContextLengthError(RequestError):
    """The prompt, or prompt and reply together, cannot fit the context or the KV pool."""


class QueueFullError(RequestError):
    """The queue bound, for all or for this user, is reached.

    Args:
        retry_after_s: a whole number of seconds after which trying again makes sense.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineNotReadyError(HearthError):
    """The model is still loading; try again shortly."""


class EngineDeadError(HearthError):
    """The engine has stopped and takes no more requests."""


class DeviceLostError(HearthError):
    """The device fails at everything, for good: only a new process can use it again."""


class OutOfBlocksError(HearthError):
    """A KV block was needed and none could be freed. The scheduler preempts on it."""
