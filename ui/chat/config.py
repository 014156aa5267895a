"""Settings of the chat page's answers."""

from __future__ import annotations

from dataclasses import dataclass

from engine import ConfigError, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """How long answers go on unseen, and who writes titles.

    Raises:
        ConfigError: a value is wrong.
    """

    answer_grace_s: float = setting(
        120.0, "an answer goes on for this many seconds after its person has closed the last page"
    )
    auto_titles: str = setting(
        "auto",
        "who names new conversations: the model, or their first words; "
        "auto: the model if it has a billion parameters or more",
        choices=("auto", "model", "first-words"),
    )

    def __post_init__(self) -> None:
        if not self.answer_grace_s > 0:
            raise ConfigError(f"--answer-grace-s must be above 0, not {self.answer_grace_s:g}.")
