"""A page of text that a model's keys and queries are looked at on."""

from __future__ import annotations

NUM_SAMPLE_TOKENS = 256
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
