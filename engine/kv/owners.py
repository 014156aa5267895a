"""Whose a block is: one conversation's, or everybody's once a second one has used it.

So that deleting a conversation can remove just what it alone has used. Owners are short digests:
they stand in the names of files.
"""

from __future__ import annotations

from hashlib import blake2b

SHARED = "0" * 16  # used by several, or by somebody unknown


def owner_of(conversation: str) -> str:
    """An empty name is nobody's."""
    if not conversation:
        return SHARED
    return blake2b(conversation.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def joined(owner: str | None, other: str) -> str:
    """After `other` has used it, too; None: nobody has before."""
    return other if owner is None or owner == other else SHARED
