"""Texts and steps that several tests of the conversation view share."""

from __future__ import annotations

from tests.e2e.view.harness import Frame, ScriptedServer, View, answer, question

HOSTILE_LINES = (
    "<I am visible>",
    "std::vector<int> v; if (a<b && c>d)",
    "<script>window.__ran=1</script>",
    "<img src=x onerror=window.__ran=2>",
    "<style>*{display:none}</style>",
    "[x](javascript:window.__ran=3)",
    "[y](data:text/html,<script>window.__ran=4</script>)",
    "<svg/onload=window.__ran=5>",
    '<a href="javascript:window.__ran=6">link</a>',
    "[z](vbscript:window.__ran=7)",
    "<iframe src=/x></iframe>",
)
FAMILY = "👩‍👩‍👧‍👦"


def answered(view: View, server: ScriptedServer, text: str) -> str:
    """Show an answer of this text; returns what a reader sees of it, when all is drawn."""
    server.show(question("q", "ask"), answer("a", text))
    view.wait_for("view.drawing.jobs.length === 0 && view.views.get('a')?.body.rendered.isComplete")
    return view.text("a").inner_text()


def writing(server: ScriptedServer) -> None:
    server.show(question("q", "ask"))
    server.begin()


def long_chat(num_messages: int) -> list[Frame]:
    return [
        (question if number % 2 == 0 else answer)(
            f"m{number}", f"Message {number}\n\n" + "word " * 80
        )
        for number in range(num_messages)
    ]
