"""How a process came to its end, in words for people and for the log."""

from __future__ import annotations

import signal
from dataclasses import dataclass

_ON_RESTART = "what waits or is asked now is answered when it is back."
_LOAD_CRASHED = (
    "The engine's process ended while the model was being loaded ({}): the machine may be short of "
    "memory; the log may say more."
)


@dataclass(slots=True)
class ProcessEnd:
    """Filled in while it happens; nothing is set where the process just ended."""

    exit_code: int | None = None
    load_failure: str | None = None  # a whole sentence
    what_died: str | None = None  # see Outlet.died
    was_hung: bool = False

    @property
    def what(self) -> str:
        """The beginning of a sentence."""
        if self.was_hung:
            return "The engine did not respond any more"
        return self.what_died or "The engine stopped unexpectedly"

    def restarting_message(self) -> str:
        return f"{self.what} and is starting again; {_ON_RESTART}"

    def load_message(self) -> str:
        """Of the very first load, after which nothing is tried again."""
        if self.load_failure or self.what_died:
            return self.load_failure or f"{self.what_died}."
        return _LOAD_CRASHED.format(self.exit_in_words())

    def giving_up_message(self) -> str:
        reason = self.load_failure or f"{self.what}."
        return f"The engine was started again and again in vain. Restart Hearth. {reason}"

    def exit_in_words(self) -> str:
        code = self.exit_code
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {-code}, {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
