"""A real model under the real scheduler and core; each sampled token's logits are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from engine.batch import ScheduledBatch
from engine.core import EngineCore
from engine.model.rope import long_rope_length
from engine.request import Request, RequestOutput
from engine.rope_regimes import RopeRegimes
from engine.scheduler import Scheduler
from tests.engine_factories import FixedBudget, make_detokenizer, make_metrics, make_request
from tests.factories import make_kv_manager
from tests.runner_driver import make_factory


class ModelDriver:
    """Greedy replies to prompts that may come at any time. Blocks of 8 tokens."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        scheme: str = "none",
        backend: str = "reference",
        num_blocks: int = 96,
        prompt_tokens: int = 512,
    ) -> None:
        factory = make_factory(model, scheme=scheme, backend=backend)
        self.kv = make_kv_manager(num_blocks=num_blocks, block_size=factory.block_size)
        self.runner = factory.make_runner(factory.make_storage(num_blocks))
        self._compute_logits = self.runner.compute_logits
        self.runner.compute_logits = self._keep_logits  # type: ignore[method-assign]
        self.core = EngineCore(
            scheduler=Scheduler(
                kv=self.kv,
                budget=FixedBudget(prompt_tokens),
                max_num_seqs=8,
                rope=RopeRegimes(long_rope_length(model.config)),
            ),
            runner=self.runner,
            make_detokenizer=make_detokenizer,
            metrics=make_metrics(),
            eos_token_ids=frozenset(),
        )
        self.batches: list[ScheduledBatch] = []
        self.logits: dict[str, list[torch.Tensor]] = defaultdict(list)
        self.outputs: dict[str, list[RequestOutput]] = defaultdict(list)

    def add(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> Request:
        request = make_request(
            request_id,
            prompt,
            max_tokens=max_tokens,
            arrival_s=float(len(self.outputs)),
            temperature=0.0,
        )
        self.core.add(request)
        return request

    def step(self) -> None:
        for output in self.core.step():
            assert output.error is None
            self.outputs[output.request_id].append(output)

    def run(self) -> None:
        while self.core.has_work:
            self.step()
        self.core.check_integrity()

    def reply(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> list[int]:
        """A request alone, to its end."""
        request = self.add(request_id, prompt, max_tokens)
        self.run()
        return request.output_token_ids

    def _keep_logits(self, batch: ScheduledBatch) -> torch.Tensor:
        self.batches.append(batch)
        logits = self._compute_logits(batch)
        sampling = (item.request.request_id for item in batch.requests if item.samples)
        for request_id, row in zip(sampling, logits, strict=True):
            self.logits[request_id].append(row)
        return logits
