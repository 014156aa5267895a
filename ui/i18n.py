"""The page's texts: one catalogue for each language, shared by Gradio's labels and the scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import gradio as gr

_CATALOGUES = Path(__file__).parents[1] / "assets" / "i18n"
# Gradio looks for the browser's whole tag first. Other Chinese ones speak English; i18n.js agrees.
_LANGUAGE_OF_LOCALE = {"en": "en", "zh": "zh", "zh-CN": "zh", "zh-TW": "zh"}


def load_catalogue(language: str) -> Mapping[str, str]:
    """Texts by key."""
    texts: dict[str, str] = json.loads((_CATALOGUES / f"{language}.json").read_text("utf-8"))
    return texts


def page_texts() -> gr.I18n:
    """For labels, `page_texts()("composer.send")`, and for `mount_gradio_app(i18n=...)`."""
    return gr.I18n(
        **{locale: dict(load_catalogue(name)) for locale, name in _LANGUAGE_OF_LOCALE.items()}
    )
