"""The catalogues: both languages complete, every text used, every used text there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ui.i18n import load_catalogue, page_texts

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = [
    *ROOT.glob("assets/chat/*.js"),
    *ROOT.glob("assets/chat/*.html"),
    *ROOT.glob("ui/**/*.py"),
]
_PLURAL = re.compile(r"\.(one|other)$")
_PLACE = re.compile(r"\{(\w+)\}")
_KEY = re.compile(r"""["'`]([a-z]+\.[a-z_]+)["'`]""")
_START_OF_KEY = re.compile(r"""["'`]([a-z]+\.[a-z_]*)[{$]""")  # t(`a.${b}`), f"a.{b}"


def base_keys(language: str) -> set[str]:
    return {_PLURAL.sub("", key) for key in load_catalogue(language)}


def in_sources(pattern: re.Pattern[str]) -> Iterator[str]:
    areas = {key.split(".")[0] for key in base_keys("en")}
    for source in _SOURCES:
        for key in pattern.findall(source.read_text("utf-8")):
            if key.split(".")[0] in areas and not key.endswith((".css", ".js")):
                yield key


def test_both_languages_have_the_same_keys() -> None:
    assert base_keys("en") == base_keys("zh")


def test_english_has_both_numbers_and_chinese_needs_one() -> None:
    english, chinese = load_catalogue("en"), load_catalogue("zh")
    counted = {_PLURAL.sub("", key) for key in english if _PLURAL.search(key)}
    assert [key for key in counted if not {f"{key}.one", f"{key}.other"} <= set(english)] == []
    assert [key for key in chinese if _PLURAL.search(key)] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_is_empty(language: str) -> None:
    texts = load_catalogue(language)
    assert [key for key, text in texts.items() if not text.strip()] == []


def test_both_languages_fill_in_the_same_values() -> None:
    english, chinese = load_catalogue("en"), load_catalogue("zh")
    for key, text in chinese.items():
        other = english.get(key) or english[f"{key}.other"]
        assert set(_PLACE.findall(text)) == set(_PLACE.findall(other)), key


def test_chinese_is_chinese() -> None:
    words = {key: _PLACE.sub("", text) for key, text in load_catalogue("zh").items()}
    latin = {key for key, text in words.items() if re.search(r"[A-Za-z]", text)}
    foreign = {key for key in latin if not re.search(r"[\u4e00-\u9fff]", words[key])}
    assert foreign == {"settings.top_p", "settings.top_k", "settings.min_p"}


def test_every_key_that_is_used_exists() -> None:
    keys = base_keys("en")
    assert set(in_sources(_KEY)) - keys == set()
    starts = set(in_sources(_START_OF_KEY))
    assert [start for start in starts if not any(key.startswith(start) for key in keys)] == []


def test_every_key_is_used() -> None:
    used, starts = set(in_sources(_KEY)), tuple(in_sources(_START_OF_KEY))
    assert {key for key in base_keys("en") - used if not key.startswith(starts)} == set()


def test_gradio_gets_both_languages() -> None:
    texts = page_texts()
    assert set(texts.translations) == {"en", "zh", "zh-CN", "zh-TW"}
    assert texts.translations["zh-TW"] == load_catalogue("zh")
    assert texts("composer.send").key == "composer.send"
