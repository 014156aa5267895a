"""What a model's keys have in common, learnt once at the start: a mean vector a layer and KV head.

Formats of few bits store keys without it, so that the few levels go to what differs. Scores change
by the same amount for every key of a query, hence the softmax does not change: any vector is right,
and a good one makes the stored numbers smaller. Values have no such freedom.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.kv.storage import PagedKVStorage
from engine.model.attention_hook import StepAttention, layer_windows
from engine.model.rope import choose_tables_of_one_sequence

NUM_SAMPLE_TOKENS = 256
_NUM_PLACES = 4
# Kinds of text that chats are made of.
SAMPLE_TEXT = """You are a helpful assistant. Answer briefly, and say when you are not sure.

How do I keep bread from going stale, and can I freeze it?

Keep it in a paper bag or a wooden box at room temperature; a plastic bag keeps the crust soft but \
lets mould grow sooner. Freezing works very well: slice the loaf first, wrap it tightly, and take \
out what you need. It thaws within half an hour, or goes straight into the toaster. Do not put it \
into the refrigerator, since starch hardens fastest a few degrees above zero.

Thanks! Now something else. Here is my function; why does it return None?

```python
def largest(numbers: list[int]) -> int | None:
    best = None
    for number in numbers:
        if best is None or number > best:
            best = number
    print(best)
```

The loop is right, but the last line prints the result instead of returning it. Replace \
`print(best)` by `return best`. With an empty list it still returns None, which the annotation \
allows. Python's own `max(numbers, default=None)` does the same.

1. The river rose in 1784, 1845 and 2002; the bridge of 1903 stood through all but the last.
2. Der Zug fährt um 7:45 Uhr von Gleis 12 ab. Le marché est ouvert le mardi et le samedi matin.
3. Total: 3 x 4.20 + 2 x 11.95 = 36.50 EUR, to be paid by March 31st.
"""


@torch.inference_mode()
def learn_key_offsets(
    model: PreTrainedModel,
    storage: PagedKVStorage,
    token_ids: Sequence[int],
    max_model_len: int,
) -> torch.Tensor:
    """Mean keys [num_layers, num_kv_heads, head_dim], float32, of a text that fits in `storage`.

    It is read at places all over the context: what a slowly turning pair of a key's numbers is near
    the start is wrong further on. Rounded to float16, so that sums in another order give the same
    numbers but for a few.
    """
    means = _KeyMeans(ReferenceAttention(storage), storage)
    attention = StepAttention(
        means, _one_sequence(len(token_ids), storage), layer_windows(model.config, max_model_len)
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
    return (means.sums / _NUM_PLACES).half().float()


def _one_sequence(num_tokens: int, storage: PagedKVStorage) -> AttentionMetadata:
    device = storage.keys.data.device
    lengths = torch.tensor([0, num_tokens], dtype=torch.int32, device=device)
    return AttentionMetadata(
        slot_mapping=torch.arange(num_tokens, device=device),
        query_starts=lengths,
        context_lengths=lengths[1:],
        block_tables=torch.arange(storage.num_blocks, dtype=torch.int32, device=device)[None],
    )


class _KeyMeans(AttentionBackend):
    """Attends as another back end does, and adds up the mean keys of each layer."""

    def __init__(self, backend: AttentionBackend, storage: PagedKVStorage) -> None:
        self.name = backend.name
        shape = (storage.num_layers, storage.num_kv_heads, storage.head_dim)
        self.sums = torch.zeros(shape, device=storage.keys.data.device)
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
        self.sums[layer_index] += key.float().mean(dim=0)
        return self._backend.attend(layer_index, query, key, value, metadata, scale, sliding_window)
