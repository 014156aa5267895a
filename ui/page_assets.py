"""The page's modules and texts, from the folders of assets/, beside those of Gradio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from ui.theme import ASSETS


class PageAssets(StaticFiles):
    """Asked for again at each load, answered by 304 while unchanged: an update arrives at once."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


def mount_page_assets(app: FastAPI, directory: Path = ASSETS) -> None:
    """Serve each folder at /assets/FOLDER; the files right in /assets are Gradio's own."""
    for folder in sorted(directory.iterdir()):
        if folder.is_dir():
            app.mount(f"/assets/{folder.name}", PageAssets(directory=folder))
