"""What one request's sampled tokens become: text deltas, and the reason to end."""

from __future__ import annotations

import logging
from typing import NamedTuple

from engine.batch import SampledToken
from engine.request import (
    FinishReason,
    Request,
    RequestOutput,
    RequestTimings,
    RequestTrace,
    Usage,
)
from engine.text.detokenizer import IncrementalDetokenizer

logger = logging.getLogger(__name__)


class _End(NamedTuple):
    reason: FinishReason
    stop_reason: str | int | None = None


class Reply:
    """Grows a request's output. Decides that it ends, but ends nothing itself."""

    def __init__(
        self,
        request: Request,
        detokenizer: IncrementalDetokenizer,
        eos_token_ids: frozenset[int],
    ) -> None:
        self.request = request
        self._detokenizer = detokenizer
        self._eos_token_ids = frozenset() if request.sampling.ignore_eos else eos_token_ids

    @property
    def num_accepted_positions(self) -> int:
        """Prompt, and output whose text is accepted: what the cache may keep."""
        return self.request.num_prompt_tokens + self._detokenizer.num_accepted_tokens

    def append(self, sampled: SampledToken, now_s: float) -> RequestOutput:
        """Take the next token; the output has a finish_reason if it is the last."""
        request = self.request
        request.append(sampled.token_id)
        request.last_token_s = now_s
        if request.first_token_s is None:
            request.first_token_s = now_s
        end = self._end_by_id(sampled.token_id)
        text = ""
        if end is None:
            text, stop_match = self._detokenizer.push([sampled.token_id])
            end = self._end_by_length_or_text(stop_match)
        if end is None:
            return self._output(text, sampled)
        text += self._detokenizer.finish()
        if self._detokenizer.stop_match is not None:
            end = _End(FinishReason.STOP, self._detokenizer.stop_match)
        return self._output(text, sampled, end, now_s)

    def end(self, reason: FinishReason, now_s: float, error: str | None = None) -> RequestOutput:
        """The last output of a request that is ended from outside, held-back text included."""
        return self._output(self._held_back_text(), None, _End(reason), now_s, error)

    def _held_back_text(self) -> str:
        try:
            return self._detokenizer.finish()
        except Exception:
            logger.exception("The end of request %s has no text", self.request.request_id)
            return ""

    def _end_by_id(self, token_id: int) -> _End | None:
        if token_id in self._eos_token_ids:
            return _End(FinishReason.STOP)
        if token_id in self.request.sampling.stop_token_ids:
            return _End(FinishReason.STOP, token_id)
        return None

    def _end_by_length_or_text(self, stop_match: str | None) -> _End | None:
        if stop_match is not None:
            return _End(FinishReason.STOP, stop_match)
        if len(self.request.output_token_ids) >= self.request.max_tokens:
            return _End(FinishReason.LENGTH)
        return None

    def _output(
        self,
        text: str,
        sampled: SampledToken | None,
        end: _End | None = None,
        now_s: float = 0.0,
        error: str | None = None,
    ) -> RequestOutput:
        logprobs = sampled.logprobs if sampled else None
        return RequestOutput(
            request_id=self.request.request_id,
            text=text,
            token_ids=(sampled.token_id,) if sampled else (),
            logprobs=(logprobs,) if logprobs else (),
            finish_reason=end.reason if end else None,
            stop_reason=end.stop_reason if end else None,
            error=error,
            num_accepted_tokens=self._detokenizer.num_accepted_tokens if end else None,
            usage=self._usage(),
            timings=self._timings(now_s) if end else None,
            trace=self._trace() if end else None,
        )

    def _usage(self) -> Usage:
        request = self.request
        return Usage(
            num_prompt_tokens=request.num_prompt_tokens,
            num_cached_tokens=request.num_cached_tokens,
            num_output_tokens=len(request.output_token_ids),
        )

    def _timings(self, now_s: float) -> RequestTimings:
        request = self.request
        return RequestTimings(
            queued_s=_between(request.arrival_s, request.first_scheduled_s),
            prefill_s=_between(request.first_scheduled_s, request.first_token_s),
            ttft_s=_between(request.arrival_s, request.first_token_s),
            decode_s=_between(request.first_token_s, request.last_token_s),
            e2e_s=now_s - request.arrival_s,
        )

    def _trace(self) -> RequestTrace:
        request = self.request
        num_steps = request.num_decode_steps
        return RequestTrace(
            num_ahead=request.num_ahead,
            num_running=request.num_running_at_arrival,
            num_preemptions=request.num_preemptions,
            num_prefill_steps=request.num_prefill_steps,
            num_decode_steps=num_steps,
            mean_step_requests=request.num_decode_step_requests / num_steps if num_steps else None,
            num_recomputed_tokens=request.num_recomputed_tokens,
            num_host_tokens=request.num_host_tokens,
            num_disk_tokens=request.num_disk_tokens,
        )


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s
