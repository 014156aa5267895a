"""Which pages may call: those of this very server."""

from __future__ import annotations

import pytest

from ui.chat.routes.caller import is_same_origin


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:7860", "127.0.0.1:7860"),
        ("http://Workstation.LAN:7860", "workstation.lan:7860"),
        ("https://chat.example.com", "chat.example.com"),
        ("https://chat.example.com", "chat.example.com:443"),
        ("http://chat.example.com:80", "chat.example.com"),
        ("http://[::1]:7860", "[::1]:7860"),
    ],
)
def test_the_page_of_this_server_may_call(origin: str, host: str) -> None:
    assert is_same_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:7861", "127.0.0.1:7860"),
        ("http://localhost:7860", "127.0.0.1:7860"),
        ("http://evil.example", "chat.example.com"),
        ("http://chat.example.com.evil.example", "chat.example.com"),
        ("http://chat.example.com@evil.example", "chat.example.com"),
        ("https://chat.example.com", "chat.example.com:80"),
        ("null", "chat.example.com"),
        ("", ""),
        ("null", ""),
        ("http://", ""),
        ("file://", "chat.example.com"),
        ("chat.example.com", "chat.example.com"),
        ("http://chat.example.com:x", "chat.example.com"),
        ("http://[::1", "[::1]"),
        ("chrome-extension://abc", "abc"),
    ],
)
def test_other_pages_may_not(origin: str, host: str) -> None:
    assert not is_same_origin(origin, host)
