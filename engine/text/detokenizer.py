"""From sampled ids to the text that may be shown: whole characters, nothing of a stop string."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from engine.text.stop_strings import StopStringMatcher
from engine.text.token_decoder import DecodingTokenizer, TokenDecoder


class DetokenizedDelta(NamedTuple):
    text: str
    stop_match: str | None  # the stop string that ended the text; later ids are ignored


class IncrementalDetokenizer:
    """One request's text. All deltas and `finish()` joined are the decode of all ids, up to a stop.

    End tokens are the caller's affair: it decides about ids and calls `finish()`.
    """

    def __init__(self, tokenizer: DecodingTokenizer, *, stop: Sequence[str] = ()) -> None:
        self._decoder = TokenDecoder(tokenizer)
        self._matcher = StopStringMatcher(stop)
        self._text_ends: list[int] = []  # for each pushed id: characters of text up to its end
        self._num_open = 0  # pushed ids whose end is not known yet
        self._num_released = 0
        self._is_finished = False
        self.stop_match: str | None = None

    def push(self, token_ids: Sequence[int]) -> DetokenizedDelta:
        """Text that is certain now. Ids after a stop string or after `finish` are dropped."""
        released: list[str] = []
        for token_id in token_ids:
            if self._is_finished:
                break
            self._num_open += 1
            released.append(self._release(self._decoder.push(token_id)))
        return DetokenizedDelta("".join(released), self.stop_match)

    def finish(self) -> str:
        """Text held back until now, at the end for another reason than a stop string.

        What was held back may itself complete one; then `stop_match` says so and the text ends
        before it.
        """
        if self._is_finished:
            return ""
        text = self._release(self._decoder.flush())
        if not self._is_finished:
            tail = self._matcher.finish()
            self._num_released += len(tail)
            self._is_finished = True
            text += tail
        return text

    @property
    def num_accepted_tokens(self) -> int:
        """Pushed ids whose text lies wholly in the released text."""
        return bisect_right(self._text_ends, self._num_released)

    def _release(self, decoded: str) -> str:
        if not self._decoder.in_byte_run:
            self._text_ends += [self._decoder.num_chars] * self._num_open
            self._num_open = 0
        scan = self._matcher.push(decoded)
        self._num_released += len(scan.text)
        if scan.stop_match is not None:
            self.stop_match = scan.stop_match
            self._is_finished = True
        return scan.text
