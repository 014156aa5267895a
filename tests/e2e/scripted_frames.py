"""What the scripted server sends, in the shapes of docs/protocol.md."""

from __future__ import annotations

import time
from typing import Any

Json = dict[str, Any]
DEFAULTS: Json = {
    "system_prompt": "",
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": 512,
    "repetition_penalty": 1.0,
    "seed": None,
}
MAX_CONTEXT = 4096


def message_frame(message_id: str, parent_id: str | None, role: str, text: str) -> Json:
    return {
        "message_id": message_id,
        "parent_id": parent_id,
        "role": role,
        "text": text,
        "revision": 1,
        "state": "done",
        "created_s": time.time(),
        "variant_ids": [message_id],
        "facts": None,
        "cut": None,
    }


def answer_frame(conversation_id: str, message: Json) -> Json:
    numbers = ("queue_position", "expected_wait_s", "num_computed_tokens", "num_prompt_tokens")
    return {
        "type": "answer",
        "conversation_id": conversation_id,
        "message_id": message["message_id"],
        "is_whole": True,
        "text": message["text"],
        "phase": "writing",
        "num_output_tokens": 3,
        "tokens_per_s": 5.0,
        **dict.fromkeys(numbers),
    }
