"""How much may be kept."""

from __future__ import annotations

from dataclasses import dataclass

from ui.chat.conversation import LimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLimits:
    max_conversations: int = 10_000  # of one person
    max_messages: int = 5_000  # in one conversation, all branches together
    max_message_chars: int = 200_000
    max_title_chars: int = 200
    max_presets: int = 100  # of one person
    max_preset_name_chars: int = 60
    max_search_chars: int = 500
    max_database_bytes: int = 8 * 1024**3

    def check_text(self, text: str) -> None:
        """Raises LimitError."""
        if len(text) > self.max_message_chars:
            raise LimitError(
                f"This message has {len(text):,} characters; {self.max_message_chars:,} are the "
                "most. Send it in parts."
            )

    def check_num_conversations(self, number: int) -> None:
        """Raises LimitError."""
        if number > self.max_conversations:
            raise LimitError(
                f"{self.max_conversations:,} conversations are the most that are kept for a "
                "person. Delete some that you no longer need."
            )

    def check_num_messages(self, number: int) -> None:
        """Raises LimitError."""
        if number > self.max_messages:
            raise LimitError(
                f"A conversation has room for {self.max_messages:,} messages, and this one is "
                "full. Go on in a new one."
            )

    def check_database_bytes(self, number: int) -> None:
        """Raises LimitError."""
        if number > self.max_database_bytes:
            raise LimitError(
                "The space for conversations is used up. Delete some, and wait a day until they "
                "are erased, or ask whoever runs this server to allow more."
            )
