from __future__ import annotations

from engine.model.random_streams import derive_stream_seed, uniform


def test_a_stream_is_a_function_of_its_seed_and_position() -> None:
    numbers = [uniform(seed, position) for seed in (-(2**63), -1, 0, 1) for position in range(50)]
    assert len(set(numbers)) == 200
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert uniform(3, 17) == uniform(3, 17)
    assert derive_stream_seed(0, "a") != derive_stream_seed(1, "a")
