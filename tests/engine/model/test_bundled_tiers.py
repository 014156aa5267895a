"""The bundled model with host memory below the device: worth it, and the same words."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from engine.admission import Admission
from engine.config import EngineConfig
from engine.model.assembly import assemble
from engine.request import GenerationRequest, RequestOutput
from engine.sampling_params import SamplingParams
from engine.serving import make_serving
from tests.conftest import BundledModel

NUM_TOKENS = 512


def test_restoring_is_at_least_five_times_faster_than_computing_again(
    bundled_model: BundledModel,
) -> None:
    """Of 512 tokens; `python -m bench.tiers` has 2,048, where the difference is larger."""
    config = EngineConfig(max_model_len=NUM_TOKENS + 64, num_gpu_blocks_override=37, swap_space=0.1)
    serving = make_serving(config, assemble(config, *bundled_model, lambda sentence: None))
    admission = Admission(config, serving.info, 37 * 16)
    sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)

    def ask(request_id: str, prompt: Sequence[int]) -> RequestOutput:
        request = GenerationRequest(
            request_id=request_id, prompt_token_ids=tuple(prompt), sampling=sampling
        )
        serving.core.add(admission.check(request, time.monotonic()))
        while not (outputs := serving.core.step()):
            pass
        return outputs[-1]

    rng = random.Random(1)
    chats = [[rng.randrange(1000, 20_000) for _ in range(NUM_TOKENS)] for _ in range(2)]
    cold = ask("cold", [*chats[0], 1001, 1002])
    ask("other", chats[1])
    warm = ask("warm", [*chats[0], 1001, 1002])
    assert warm.trace is not None
    assert warm.trace.num_host_tokens > 0.8 * NUM_TOKENS  # the rest was still on the device
    assert warm.usage is not None
    assert warm.usage.num_cached_tokens == NUM_TOKENS
    assert warm.token_ids == cold.token_ids
    assert cold.timings is not None
    assert warm.timings is not None
    assert cold.timings.prefill_s is not None
    assert warm.timings.prefill_s is not None
    assert 5 * warm.timings.prefill_s < cold.timings.prefill_s
