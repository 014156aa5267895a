"""What a model's keys have in common, learnt once at the start: a mean vector a layer and KV head.

Formats of few bits store keys without it, so that the few levels go to what differs. Scores change
by the same amount for every key of a query, hence the softmax does not change: any vector is right,
and a good one makes the stored numbers smaller. Values have no such freedom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.batch import ScheduledBatch, ScheduledRequest
from engine.kv.storage import PagedKVStorage
from engine.model.runner import ModelRunner
from engine.request import Request
from engine.sampling_params import SamplingParams

# Kinds of text that chats are made of; long enough that each rotary frequency but the slowest
# has turned, short enough to cost a second on two cores.
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

It was late in the afternoon when the two brothers reached the lighthouse. Nobody had lived there \
for years. The door hung from one hinge, and the wind, which had followed them all the way along \
the shore, went in before them as if it owned the place. "Listen," said the younger one. "There is \
somebody upstairs."
"""


def learn_key_offsets(
    storage: PagedKVStorage,
    make_runner: Callable[[AttentionBackend], ModelRunner],
    token_ids: Sequence[int],
) -> torch.Tensor:
    """Mean keys [num_layers, num_kv_heads, head_dim], float32, of a text that fits in `storage`.

    Rounded to float16, so that sums in another order give the same numbers but for a few.
    """
    means = _KeyMeans(ReferenceAttention(storage), storage)
    request = Request(
        request_id="key offsets",
        prompt_token_ids=tuple(token_ids),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=1,
        user=None,
        cache_salt="",
        arrival_s=0.0,
        deadline_s=None,
    )
    blocks = tuple(range(storage.num_blocks))
    step = ScheduledRequest(request, 0, len(token_ids), blocks, samples=True)
    make_runner(means).compute_logits(ScheduledBatch((step,)))
    return means.offsets.half().float()


class _KeyMeans(AttentionBackend):
    """Attends as another back end does, and keeps the mean of each layer's keys."""

    def __init__(self, backend: AttentionBackend, storage: PagedKVStorage) -> None:
        self.name = backend.name
        shape = (storage.num_layers, storage.num_kv_heads, storage.head_dim)
        self.offsets = torch.zeros(shape, device=storage.keys.data.device)
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
        self.offsets[layer_index] = key.float().mean(dim=0)
        return self._backend.attend(layer_index, query, key, value, metadata, scale, sliding_window)
