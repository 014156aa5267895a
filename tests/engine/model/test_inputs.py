"""The packed row: ids, positions, slots and tables of a step, exactly."""

from __future__ import annotations

import pytest

from engine.batch import ScheduledBatch, ScheduledRequest
from engine.model.inputs import build_inputs
from tests.runner_driver import make_request


def scheduled(
    prompt: list[int], output: list[int], start: int, count: int, blocks: tuple[int, ...]
) -> ScheduledRequest:
    request = make_request("r", prompt)
    for token_id in output:
        request.append(token_id)
    samples = start + count == request.num_tokens
    return ScheduledRequest(request, start, count, blocks, samples)


def test_a_mixed_step_is_packed_in_order() -> None:
    decoding = scheduled([10, 11, 12], [13, 14], 4, 1, (6, 2))
    chunk = scheduled(list(range(20, 30)), [], 2, 5, (9, 1, 0))
    whole = scheduled([40, 41], [], 0, 2, (5,))
    inputs = build_inputs(ScheduledBatch((decoding, chunk, whole)), block_size=4)
    assert inputs.input_ids.tolist() == [[14, 22, 23, 24, 25, 26, 40, 41]]
    assert inputs.position_ids.tolist() == [[4, 2, 3, 4, 5, 6, 0, 1]]
    assert inputs.attention.slot_mapping.tolist() == [8, 38, 39, 4, 5, 6, 20, 21]
    assert inputs.attention.query_starts.tolist() == [0, 1, 6, 8]
    assert inputs.attention.context_lengths.tolist() == [5, 7, 2]
    assert inputs.attention.block_tables.tolist() == [[6, 2], [9, 1], [5, 0]]
    assert inputs.logits_indices.tolist() == [0, 7]


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(0, 2, [1, 2]), (1, 4, [2, 3, 4, 5]), (3, 2, [4, 5]), (0, 5, [1, 2, 3, 4, 5])],
)
def test_ids_come_from_prompt_and_output(start: int, count: int, expected: list[int]) -> None:
    item = scheduled([1, 2, 3], [4, 5], start, count, (0, 1))
    assert build_inputs(ScheduledBatch((item,)), 4).input_ids.tolist() == [expected]


def test_types_are_those_that_kernels_expect() -> None:
    inputs = build_inputs(ScheduledBatch((scheduled([1, 2], [], 0, 2, (0,)),)), 4)
    tensors = (
        inputs.input_ids,
        inputs.position_ids,
        inputs.attention.slot_mapping,
        inputs.attention.query_starts,
        inputs.attention.context_lengths,
        inputs.attention.block_tables,
        inputs.logits_indices,
    )
    names = ["int64", "int64", "int64", "int32", "int32", "int32", "int64"]
    assert [str(tensor.dtype).removeprefix("torch.") for tensor in tensors] == names


def test_a_plan_past_the_last_token_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="past the request's last token"):
        build_inputs(ScheduledBatch((scheduled([1, 2], [], 0, 3, (0,)),)), 4)


def test_padding_is_in_the_row_and_nowhere_else() -> None:
    batch = ScheduledBatch((scheduled([7, 8, 9], [], 0, 3, (2,)), scheduled([5], [6], 1, 1, (3,))))
    inputs = build_inputs(batch, 4, row_multiple=8)
    assert inputs.input_ids.tolist() == [[7, 8, 9, 6, 0, 0, 0, 0]]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 1, 0, 0, 0, 0]]
    assert inputs.attention.slot_mapping.tolist() == [8, 9, 10, 13]
    assert inputs.attention.query_starts.tolist() == [0, 3, 4]
    assert inputs.logits_indices.tolist() == [2, 3]
