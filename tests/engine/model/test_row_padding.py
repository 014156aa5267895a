"""Rows of a matrix product that do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.kv.schemes import kv_scheme
from engine.model.assembly import row_multiple
from engine.model.row_padding import Product, find_row_multiple, smallest_multiple
from tests.conftest import BundledModel
from tests.tiny_models import ARCHITECTURES, tiny_model


def product(multiply: Callable[[torch.Tensor], torch.Tensor]) -> Product:
    return Product(torch.randn(256, 8, generator=torch.Generator().manual_seed(0)), multiply)


def in_groups(size: int) -> Product:
    """Another result in a last group that is not full."""

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        result = rows * 2
        result[len(rows) - len(rows) % size :] += 1e-3
        return result

    return product(multiply)


@pytest.mark.parametrize(("sizes", "expected"), [((), 1), ((1,), 1), ((4,), 4), ((2, 8, 4), 8)])
def test_the_multiple_is_the_smallest_that_every_product_is_content_with(
    sizes: tuple[int, ...], expected: int
) -> None:
    assert smallest_multiple([in_groups(size) for size in sizes]) == expected


def test_there_is_no_padding_where_nothing_helps() -> None:
    assert smallest_multiple([product(torch.rand_like)]) == 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_s_products_can_be_tried(architecture: str) -> None:
    assert find_row_multiple(tiny_model(architecture)) in {1, 2, 4, 8, 16}


def test_only_formats_that_amplify_are_padded(bundled_model: BundledModel) -> None:
    model = bundled_model.model
    assert row_multiple(model, kv_scheme("none")) == 1
    for name in ("int8", "k8v4", "int4"):
        assert row_multiple(model, kv_scheme(name)) == find_row_multiple(model)
