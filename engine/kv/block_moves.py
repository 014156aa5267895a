"""What has to be moved between device, host and disk before a step runs.

The four kinds are carried out in this order, each once:

    spills   host slot -> bytes, for the disk    before the slot gets something else
    fills    bytes from the disk -> host slot
    saves    device block -> host slot           before the step writes the block
    loads    host slot -> device block           after the slot was filled or saved to

A save must never be repeated later: the block holds something else by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.kv.hashing import BlockKey


class Spill(NamedTuple):
    slot: int
    key: BlockKey
    owner: str


class Fill(NamedTuple):
    slot: int
    payload: bytes


class Save(NamedTuple):
    block_id: int
    slot: int


class Load(NamedTuple):
    slot: int
    block_id: int


@dataclass(frozen=True, slots=True)
class BlockMoves:
    spills: tuple[Spill, ...] = ()
    fills: tuple[Fill, ...] = ()
    saves: tuple[Save, ...] = ()
    loads: tuple[Load, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.spills or self.fills or self.saves or self.loads)


NO_MOVES = BlockMoves()


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """What came of it: the spilled slots' bytes, and what did not succeed."""

    payloads: Mapping[int, bytes] = field(default_factory=dict)
    failed_slots: frozenset[int] = frozenset()  # hold nothing that can be used
    unfilled_block_ids: frozenset[int] = frozenset()  # loads into these did not happen
