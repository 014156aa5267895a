"""Which blocks hold the KV of which token prefix: trees of published blocks, one per namespace.

A whole block is found by its chained hash, then compared with the tokens wanted and with the
parent reached so far, so a colliding hash is a miss. What follows the last whole block is looked
for among that block's children, by longest common prefix. Knows nothing of requests or of room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from engine.kv.block_pool import Block, PrefixNode
from engine.kv.hashing import BlockHash, PrefixHashes, hash_block

MAX_TAIL_CANDIDATES = 64


@dataclass(slots=True, eq=False, kw_only=True)
class PrefixRoot(PrefixNode):
    """Where the prefixes of one namespace begin."""

    namespace: str


class CacheTail(NamedTuple):
    """A block whose first `num_tokens` slots follow the whole blocks of a match.

    in_place: it may be written on, because nobody refers to it and it is wanted up to its last
    token. (A whole block never is: it would have been matched as a whole one.)
    """

    block: Block
    num_tokens: int
    in_place: bool


class CacheMatch(NamedTuple):
    blocks: tuple[Block, ...]  # whole ones
    tail: CacheTail | None
    next_hash: BlockHash | None  # of the first whole block that is not published


class PrefixCache:
    """Changes what is published; reference counts are the caller's."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._roots: dict[str, PrefixRoot] = {}  # by namespace; only those with children
        self._by_hash: dict[BlockHash, Block] = {}

    def match(self, hashes: PrefixHashes, token_ids: Sequence[int]) -> CacheMatch:
        """The longest published prefix that leaves a token to compute. Changes nothing."""
        limit = max(len(token_ids) - 1, 0)
        node: PrefixNode = self._root(hashes)
        blocks: list[Block] = []
        for index in range(limit // self._block_size):
            block = self._find(node, hashes, token_ids, index)
            if block is None:
                break
            blocks.append(block)
            node = block
        start = len(blocks) * self._block_size
        wanted = tuple(token_ids[start : min(start + self._block_size, limit)])
        next_hash = self._next_hash(node, hashes, token_ids, len(blocks))
        return CacheMatch(tuple(blocks), _longest_tail(node, wanted), next_hash)

    def whole_hashes(
        self, hashes: PrefixHashes, token_ids: Sequence[int], start: int, end: int
    ) -> tuple[BlockHash, ...]:
        """Of the whole blocks from index `start` to `end`."""
        return tuple(hashes.at(token_ids, index) for index in range(start, end))

    def publish(
        self,
        previous: Block | None,
        block: Block,
        hashes: PrefixHashes,
        token_ids: Sequence[int],
        index: int,
    ) -> Block | None:
        """Make whole block `index` of a token list findable, after `previous` (None: the first).

        Returns the published block: this one, or an equal one that was there before. None when it
        cannot be published, because its hash is taken or `previous` is not published itself.
        """
        parent = self._parent(previous, hashes)
        if parent is None:
            return None
        block_hash = hashes.at(token_ids, index)
        if block_hash in self._by_hash:
            return self._find(parent, hashes, token_ids, index)
        block.block_hash = block_hash
        self._by_hash[block_hash] = block
        self._attach(parent, block, self._tokens(token_ids, index))
        return block

    def publish_tail(
        self, previous: Block | None, block: Block, hashes: PrefixHashes, token_ids: tuple[int, ...]
    ) -> Block | None:
        """Make a partial block findable; its computed slots hold `token_ids`.

        Returns like `publish`; a longer block that starts with the same tokens serves as well.
        """
        parent = self._parent(previous, hashes)
        if parent is None:
            return None
        for child in _candidates(parent):
            if child.token_ids[: len(token_ids)] == token_ids:
                return child
        self._attach(parent, block, token_ids)
        return block

    def unpublish(self, block: Block) -> None:
        """Nobody finds this leaf any more."""
        parent = block.parent
        assert parent is not None, f"block {block.block_id} is not published"
        assert not block.children, f"block {block.block_id} has published children"
        del parent.children[block.block_id]
        if isinstance(parent, PrefixRoot) and not parent.children:
            del self._roots[parent.namespace]
        if block.block_hash is not None:
            del self._by_hash[block.block_hash]
        block.block_hash, block.parent, block.token_ids = None, None, ()

    def subtree(self, block: Block) -> list[Block]:
        """A block and all that was published after it, children before parents."""
        blocks = [block]
        for parent in blocks:
            blocks.extend(parent.children.values())
        return blocks[::-1]

    def touch(self, block: Block) -> None:
        """Used just now: among its siblings it is tried first."""
        assert block.parent is not None
        siblings = block.parent.children
        siblings[block.block_id] = siblings.pop(block.block_id)

    def check_integrity(self, blocks: Collection[Block]) -> None:
        """`blocks`: all there are."""
        reached: set[int] = set()
        for namespace, root in self._roots.items():
            assert root.namespace == namespace, (
                f"root {root.namespace!r} is filed under {namespace!r}"
            )
            assert root.children, f"root {namespace!r} has no children"
            reached.update(*(self._check_child(root, child) for child in root.children.values()))
        published = {block.block_id for block in blocks if block.is_published}
        assert reached == published, f"published {published}, but reached {reached}"
        hashed = {block.block_id for block in self._by_hash.values()}
        whole = {block.block_id for block in blocks if block.block_hash is not None}
        assert hashed == whole, f"whole blocks {whole}, but indexed {hashed}"
        stray = [block.block_id for block in blocks if block.children and not block.is_published]
        assert not stray, f"blocks {stray} have children, but are not published"

    def _check_child(self, root: PrefixNode, child: Block) -> set[int]:
        subtree = self.subtree(child)
        for block in subtree:
            parent, block_id = block.parent, block.block_id
            assert parent is not None, f"block {block_id} is a child, but not published"
            assert parent is not root or block is child, f"block {block_id} is reached twice"
            assert parent.children.get(block_id) is block, f"block {block_id} is no child"
            assert parent.block_hash is not None, f"block {block_id} follows a partial block"
            self._check_whole_or_tail(block, parent.block_hash)
        assert len({block.block_id for block in subtree}) == len(subtree), "the tree has a cycle"
        return {block.block_id for block in subtree}

    def _check_whole_or_tail(self, block: Block, parent_hash: BlockHash) -> None:
        name, num_tokens = f"block {block.block_id}", len(block.token_ids)
        if block.block_hash is None:
            assert 0 < num_tokens < self._block_size, f"{name}: a tail of {num_tokens} tokens"
            assert not block.children, f"{name}: a tail with children"
            return
        assert num_tokens == self._block_size, f"{name}: whole with {num_tokens} tokens"
        assert block.block_hash == hash_block(parent_hash, block.token_ids), f"{name}: wrong hash"
        assert self._by_hash.get(block.block_hash) is block, f"{name}: not under its hash"

    def _root(self, hashes: PrefixHashes) -> PrefixRoot:
        root = self._roots.get(hashes.namespace)
        return root or PrefixRoot(block_hash=hashes.root, namespace=hashes.namespace)

    def _parent(self, previous: Block | None, hashes: PrefixHashes) -> PrefixNode | None:
        if previous is None:
            return self._root(hashes)
        return previous if previous.block_hash is not None else None

    def _attach(self, parent: PrefixNode, block: Block, token_ids: tuple[int, ...]) -> None:
        block.parent, block.token_ids = parent, token_ids
        parent.children[block.block_id] = block
        if isinstance(parent, PrefixRoot):
            self._roots[parent.namespace] = parent

    def _find(
        self, parent: PrefixNode, hashes: PrefixHashes, token_ids: Sequence[int], index: int
    ) -> Block | None:
        block = self._by_hash.get(hashes.at(token_ids, index))
        if block is None or block.parent is not parent:
            return None
        return block if block.token_ids == self._tokens(token_ids, index) else None

    def _next_hash(
        self, node: PrefixNode, hashes: PrefixHashes, token_ids: Sequence[int], index: int
    ) -> BlockHash | None:
        if (index + 1) * self._block_size > len(token_ids):
            return None
        if self._find(node, hashes, token_ids, index) is not None:
            return None
        return hashes.at(token_ids, index)

    def _tokens(self, token_ids: Sequence[int], index: int) -> tuple[int, ...]:
        return tuple(token_ids[index * self._block_size : (index + 1) * self._block_size])


class NoPrefixCache(PrefixCache):
    """Nothing is matched, nothing is published: the cache of `--no-enable-prefix-caching`."""

    def match(self, hashes: PrefixHashes, token_ids: Sequence[int]) -> CacheMatch:
        return CacheMatch((), None, None)

    def whole_hashes(
        self, hashes: PrefixHashes, token_ids: Sequence[int], start: int, end: int
    ) -> tuple[BlockHash, ...]:
        return ()

    def _parent(self, previous: Block | None, hashes: PrefixHashes) -> PrefixNode | None:
        return None


def _candidates(node: PrefixNode) -> Iterator[Block]:
    return islice(reversed(node.children.values()), MAX_TAIL_CANDIDATES)


def _longest_tail(node: PrefixNode, wanted: tuple[int, ...]) -> CacheTail | None:
    """Among equally long ones, one that needs no copy, then the most recently used."""
    best: CacheTail | None = None
    best_rank = (0, True)
    for block in _candidates(node):
        num_tokens = _num_common(block.token_ids, wanted)
        in_place = not block.ref_count and num_tokens == len(block.token_ids)
        rank = (num_tokens, in_place)
        if rank > best_rank:
            best, best_rank = CacheTail(block, num_tokens, in_place), rank
    return best


def _num_common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    for index, (left_id, right_id) in enumerate(zip(left, right, strict=False)):
        if left_id != right_id:
            return index
    return min(len(left), len(right))
