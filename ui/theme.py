"""How the pages look and what the browser loads with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradio.themes import Base
from gradio.themes.utils import colors, sizes

from ui.i18n import page_texts

ASSETS = Path(__file__).parents[1] / "assets"
_STYLES = [ASSETS / "chat.css", ASSETS / "chat" / "side.css", ASSETS / "chat" / "overlays.css"]
_HEAD = '<script type="module" src="/assets/chat/main.js"></script>'
_EMBER = colors.Color(
    name="ember",
    c50="#fdf6f1",
    c100="#fae8dc",
    c200="#f3cdb6",
    c300="#eaab88",
    c400="#de8357",
    c500="#cc6237",
    c600="#b04e28",
    c700="#8f3f21",
    c800="#70331d",
    c900="#562a1a",
    c950="#2f150c",
)
_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def hearth_theme() -> Base:
    """Warm greys with one ember accent; fonts of the system, so nothing is fetched."""
    theme = Base(
        primary_hue=_EMBER,
        secondary_hue=_EMBER,
        neutral_hue=colors.stone,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=_SANS,
        font_mono=_MONO,
    )
    theme.set(
        body_background_fill="#faf9f7",
        body_background_fill_dark="#171513",
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        background_fill_primary="white",
        background_fill_primary_dark="#1f1c1a",
        background_fill_secondary="#f4f2ee",
        background_fill_secondary_dark="#262320",
        border_color_primary="#e5e1da",
        border_color_primary_dark="#38332f",
        block_border_width="0px",
        block_shadow="none",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        input_background_fill="white",
        input_background_fill_dark="#1f1c1a",
        input_border_color="#ddd8cf",
        input_border_color_dark="#45403a",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_400",
        input_shadow="none",
        input_shadow_focus="none",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="white",
        button_secondary_background_fill="white",
        button_secondary_background_fill_hover="#f4f2ee",
        button_secondary_background_fill_dark="#262320",
        button_secondary_background_fill_hover_dark="#322e2a",
        button_secondary_border_color="#ddd8cf",
        button_secondary_border_color_dark="#45403a",
        button_border_width="1px",
        slider_color="*primary_500",
        slider_color_dark="*primary_500",
    )
    return theme


def page_options() -> dict[str, Any]:
    """Arguments for `mount_gradio_app`: theme, texts, styles, scripts, icon, no footer."""
    return {
        "theme": hearth_theme(),
        "i18n": page_texts(),
        "css_paths": _STYLES,
        "head": _HEAD,
        "favicon_path": str(ASSETS / "favicon.svg"),
        "footer_links": [],
    }
