"""Runs one scheduled step on the device: block copies, forward pass, sampling."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from engine.attention.interface import AttentionBackend
from engine.batch import ScheduledBatch, ScheduledRequest, StepResult
from engine.kv.host_storage import HostStorage
from engine.kv.storage import PagedKVStorage
from engine.model.attention_hook import StepAttention
from engine.model.inputs import build_inputs
from engine.model.random_streams import derive_stream_seed
from engine.model.rope import long_ropes
from engine.model.sampler import Sampler, SamplerRow


class ModelRunner:
    """The unmodified model's forward over all tokens of a step, packed in one row.

    The model keeps no cache: its attention layers write and read the paged storage themselves.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        storage: PagedKVStorage,
        backend: AttentionBackend,
        *,
        windows: Sequence[int | None],
        vocab_size: int,
        seed: int,
        row_multiple: int = 1,
        num_host_slots: int = 0,
    ) -> None:
        self.mover = HostStorage(storage, num_host_slots)
        self._model = model
        self._storage = storage
        self._backend = backend
        self._windows = windows
        self._vocab_size = vocab_size
        self._seed = seed
        self._row_multiple = row_multiple
        self._long_ropes = long_ropes(model)
        self._sampler = Sampler(vocab_size)
        self._selects_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def execute(self, batch: ScheduledBatch) -> StepResult:
        """Copy blocks, run the forward pass, sample where asked."""
        self._storage.copy_blocks(batch.block_copies)
        if not batch:
            return StepResult({})
        logits = self.compute_logits(batch)
        sampling = [scheduled for scheduled in batch.requests if scheduled.samples]
        if not sampling:
            return StepResult({})
        return self._sampler.sample(logits, [self._sampler_row(item) for item in sampling])

    @torch.inference_mode()
    def check_device(self) -> None:
        """Raises if the device does not compute any more, as after a fault in a CUDA kernel."""
        device = self._model.device
        if device.type == "cuda":
            torch.cuda.empty_cache()  # a step that ran out of memory says nothing about the device
        torch.ones(1, device=device).add_(1).item()

    @torch.inference_mode()
    def compute_logits(
        self, batch: ScheduledBatch, *, every_position: bool = False
    ) -> torch.Tensor:
        """Logits [num_sampling, vocab_size] of the ids that may be sampled.

        With `every_position`, those after each token of the batch: [num_tokens, vocab_size].
        """
        inputs = build_inputs(
            batch, self._storage.block_size, self._model.device, self._row_multiple
        )
        for rope in self._long_ropes:
            rope.table_indices = inputs.rope_tables
        kept = inputs.logits_indices
        if every_position:
            kept = torch.arange(batch.num_tokens, device=self._model.device)
        selection = {"logits_to_keep": kept} if self._selects_logits else {}
        output = self._model(
            input_ids=inputs.input_ids,
            position_ids=inputs.position_ids,
            use_cache=False,
            step_attention=StepAttention(self._backend, inputs.attention, self._windows),
            **selection,
        )
        logits: torch.Tensor = output.logits[0]
        if not self._selects_logits:
            logits = logits[kept]
        # Ids above the tokenizer's only pad the matrix: they are never sampled.
        return logits[:, : self._vocab_size]

    def _sampler_row(self, scheduled: ScheduledRequest) -> SamplerRow:
        request = scheduled.request
        seed = request.sampling.seed
        if seed is None:
            seed = derive_stream_seed(self._seed, request.request_id)
        return SamplerRow(
            request_id=request.request_id,
            sampling=request.sampling,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=request.output_token_ids,
            stream_seed=seed,
        )
