"""What an experiment reports: our table, and what the articles said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.report import print_table


class Section(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    claims: Sequence[str]  # of the articles, and what to think of them
    figures: Mapping[str, Any]  # for the line of JSON


def print_section(section: Section) -> None:
    print(f"\n## {section.title}\n")
    print_table(section.header, section.rows)
    for claim in section.claims:
        print(f"  {claim}")


def ratio(ours: float, other: float) -> str:
    return f"{ours / other:.1f} x" if other else "-"
