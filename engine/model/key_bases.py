"""The basis in which a model's keys are stored best, learnt once at the start.

A format of few bits rounds a key's numbers to few levels. What that does to scores depends on the
basis: numbers that queries multiply by much need small steps. So a sample of text is read, and for
each layer and KV head a basis is chosen in which keys and queries are spread alike, the widest
directions first; the codec gives those more bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.attention.reference import ReferenceAttention, visible_keys
from engine.kv.key_basis import KeyBasis, hadamard_basis
from engine.kv.storage import PagedKVStorage
from engine.model.attention_hook import StepAttention, layer_windows
from engine.model.balancing import balanced_matrices
from engine.model.rope import choose_tables_of_one_sequence

_NUM_PLACES = 6
_LEAST_WEIGHT = 1e-6  # so that a text of one token, which nothing competes with, counts


@torch.inference_mode()
def learn_key_basis(
    model: PreTrainedModel,
    storage: PagedKVStorage,
    token_ids: Sequence[int],
    *,
    max_model_len: int,
    num_leading: int,
) -> KeyBasis:
    """From a text that fits in `storage`, unquantized.

    It is read at places all over the context: how keys are spread near the start is wrong further
    on, where slowly turning pairs of a key's numbers have turned.
    """
    watching = _WatchingAttention(ReferenceAttention(storage), storage)
    attention = StepAttention(
        watching,
        _one_sequence(len(token_ids), storage),
        layer_windows(model.config, max_model_len),
    )
    input_ids = torch.tensor([token_ids], device=model.device)
    positions = torch.arange(len(token_ids), device=model.device)[None]
    last_start = max_model_len - len(token_ids)
    for place in range(_NUM_PLACES):
        position_ids = positions + last_start * place // (_NUM_PLACES - 1)
        choose_tables_of_one_sequence(model, position_ids)
        # The layers alone: nobody asks what comes next.
        model.base_model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            step_attention=attention,
        )
    return _basis(watching.keys, watching.queries, num_leading)


def _basis(keys: _Moments, queries: _Moments, num_leading: int) -> KeyBasis:
    offsets = keys.means()
    num_layers, num_kv_heads, head_dim = offsets.shape
    plain = hadamard_basis(num_layers, num_kv_heads, head_dim, offsets.device)
    balanced = balanced_matrices(
        keys.second_moments(offsets), queries.second_moments(), num_leading
    )
    learnt = KeyBasis(offsets.float(), *(matrices.float() for matrices in balanced))
    is_good = offsets.isfinite().all(dim=-1)
    for part in learnt[1:]:
        is_good &= part.isfinite().all(dim=-1).all(dim=-1)
    return KeyBasis(
        *(
            torch.where(is_good.view(*is_good.shape, *(1,) * (own.ndim - 2)), own, other)
            for own, other in zip(learnt, plain, strict=True)
        )
    )


def _one_sequence(num_tokens: int, storage: PagedKVStorage) -> AttentionMetadata:
    device = storage.keys.data.device
    lengths = torch.tensor([0, num_tokens], dtype=torch.int32, device=device)
    return AttentionMetadata(
        slot_mapping=torch.arange(num_tokens, device=device),
        query_starts=lengths,
        context_lengths=lengths[1:],
        block_tables=torch.arange(storage.num_blocks, dtype=torch.int32, device=device)[None],
    )


class _Moments(NamedTuple):
    """Sums over weighted vectors, float64, for each layer and KV head."""

    weights: torch.Tensor  # [num_layers, num_kv_heads]
    vectors: torch.Tensor  # [num_layers, num_kv_heads, head_dim]
    products: torch.Tensor  # [num_layers, num_kv_heads, head_dim, head_dim]

    @classmethod
    def none(cls, storage: PagedKVStorage) -> _Moments:
        shape = (storage.num_layers, storage.num_kv_heads)
        dims = (storage.head_dim,) * 2
        return cls(
            *(
                torch.zeros(*shape, *dims[:count], dtype=torch.float64, device=storage.device)
                for count in range(3)
            )
        )

    def add(self, layer_index: int, vectors: torch.Tensor, weights: torch.Tensor) -> None:
        """Vectors [num_kv_heads, n, head_dim] and weights [num_kv_heads, n]."""
        vectors, weights = vectors.double(), weights.double() + _LEAST_WEIGHT
        weighted = vectors * weights[..., None]
        self.weights[layer_index] += weights.sum(dim=-1)
        self.vectors[layer_index] += weighted.sum(dim=-2)
        self.products[layer_index] += weighted.mT @ vectors

    def means(self) -> torch.Tensor:
        """Rounded to float16: sums in another order give the same numbers but for a few."""
        return (self.vectors / self.weights[..., None]).half().double()

    def second_moments(self, centers: torch.Tensor | None = None) -> torch.Tensor:
        """Around zero, or around centers [num_layers, num_kv_heads, head_dim]."""
        moments = self.products / self.weights[..., None, None]
        if centers is None:
            return moments
        crossed = (self.vectors / self.weights[..., None])[..., None] * centers[..., None, :]
        return moments - crossed - crossed.mT + centers[..., None] * centers[..., None, :]


class _WatchingAttention(AttentionBackend):
    """Attends as another back end does, and adds up what keys and queries are like.

    The error of a score moves a query's weight p of a key by p (1 - p) times as much. So a query
    counts with the sum of that over its keys, a key with the square root of that over its queries.
    """

    def __init__(self, backend: AttentionBackend, storage: PagedKVStorage) -> None:
        self.name = backend.name
        self.keys, self.queries = _Moments.none(storage), _Moments.none(storage)
        self._backend = backend

    def attend(
        self,
        layer_index: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> torch.Tensor:
        num_tokens, num_kv_heads, head_dim = key.shape
        keys = key.float().transpose(0, 1)
        # [num_kv_heads, heads that share one, num_tokens, head_dim]
        queries = query.float().transpose(0, 1).reshape(num_kv_heads, -1, num_tokens, head_dim)
        scores = queries @ keys[:, None].mT * scale
        visible = visible_keys(num_tokens, num_tokens, sliding_window, query.device)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        effects = weights * (1 - weights)
        self.keys.add(layer_index, keys, effects.sum(dim=(1, 2)).sqrt())
        self.queries.add(layer_index, queries.flatten(1, 2), effects.sum(dim=-1).flatten(1))
        return self._backend.attend(layer_index, query, key, value, metadata, scale, sliding_window)
