"""What is shown of a message in a real browser, and what is not run."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.e2e.view.harness import FACTS, ScriptedServer, answer, opened_view, question
from tests.e2e.view.steps import HOSTILE_LINES, answered, writing


def test_br_62_prices_stay_text_and_formulas_are_drawn(
    browser: Browser, server: ScriptedServer
) -> None:
    source = (
        "It cost $2,050,999 in May; now $88,120.\n\na_b_c and *x*\n\n\\(x_1+y_2\\)\n\n"
        "$$\\frac{a_b}{c}$$\n\n`$HOME` and `$$a$$` and `\\(b\\)`"
    )
    server.show(question("q", "ask"), answer("a", source))
    with opened_view(browser, server) as view:
        text = answered(view, server, source)
        view.page.wait_for_selector(".math.is-drawn .katex")
        formulas = view.page.locator(".math.is-drawn annotation").all_text_contents()
        code = view.text("a").locator("code").all_inner_texts()
        emphasis = view.text("a").locator("em").all_inner_texts()
        fonts = view.page.evaluate(
            "document.fonts.ready.then(() => [...document.fonts].filter("
            "(font) => font.status === 'loaded').map((font) => font.family))"
        )
    assert "It cost $2,050,999 in May; now $88,120." in text
    assert "a_b_c and x" in text
    assert formulas == ["x_1+y_2", "\\frac{a_b}{c}"]
    assert code == ["$HOME", "$$a$$", "\\(b\\)"]
    assert emphasis == ["x"]
    assert any("KaTeX" in name for name in fonts)


def test_br_62_formulas_over_lines_in_lists_and_broken_ones(
    browser: Browser, server: ScriptedServer
) -> None:
    source = (
        "$$\na\n+b\n$$\n\n- item \\[c^2\\]\n\n\\[\nd\n\\]\n\n$$ \\badcommand{ $$\n\n"
        "$$ never closed\n\nnext \\(open"
    )
    with opened_view(browser, server) as view:
        text = answered(view, server, source)
        view.page.wait_for_selector(".math.is-drawn")
        formulas = view.page.locator(".math annotation").all_text_contents()
        errors = view.page.locator(".katex-error").count()
    assert [formula.replace("\n", "") for formula in formulas] == ["a+b", "c^2", "d"]
    assert errors == 1
    assert "$$ never closed" in text
    assert "next (open" in text or "next \\(open" in text


@pytest.mark.parametrize("side", ["question", "answer", "live", "thinking", "summary", "error"])
def test_br_63_angle_brackets_are_shown_and_never_run(
    browser: Browser, server: ScriptedServer, side: str
) -> None:
    hostile = "\n\n".join(HOSTILE_LINES)
    with opened_view(browser, server) as view:
        shown = {
            "question": lambda: server.show(question("q", hostile)),
            "answer": lambda: server.show(question("q", "ask"), answer("a", hostile)),
            "live": lambda: (writing(server), server.write(hostile)),
            "thinking": lambda: server.show(
                question("q", "ask"), answer("a", f"<think>{hostile}</think>\n\nok")
            ),
            "summary": lambda: server.show(
                question(
                    "q", "x", cut={"first_message_id": "q", "num_left_out": 2, "summary": hostile}
                )
            ),
            "error": lambda: server.show(
                question("q", "ask"),
                answer("a", "t", state="failed", facts={**FACTS, "error": hostile}),
            ),
        }
        shown[side]()
        view.page.wait_for_selector("article")
        view.page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        view.wait_until(lambda: "<iframe src=/x></iframe>" in view.page.inner_text(".messages"))
        text = " ".join(view.page.inner_text(".messages").split())
        elements = view.page.locator(
            ".messages :is(script, style, img, iframe, a[href^='javascript'], a[href^='data'])"
        ).count()
        ran = view.page.evaluate("window.__ran")
    for line in HOSTILE_LINES:
        assert line in text
    assert elements == 0
    assert ran is None


def test_links_lead_out_safely_and_pictures_are_links(
    browser: Browser, server: ScriptedServer
) -> None:
    source = (
        "[page](https://a.example/x) <mailto:me@a.example> https://b.example/y\n\n"
        '![a "cat"](http://c.example/p.png) [![in](http://d.example/i.png)](https://e.example)\n\n'
        "[here](/logout) [file](file:///etc/passwd) [ftp](ftp://f.example)"
    )
    with opened_view(browser, server) as view:
        answered(view, server, source)
        links = view.text("a").locator("a")
        hrefs = [link.get_attribute("href") for link in links.all()]
        targets = {link.get_attribute("target") for link in links.all()}
        rels = {link.get_attribute("rel") for link in links.all()}
        text = view.text("a").inner_text()
    assert hrefs == [
        "https://a.example/x",
        "mailto:me@a.example",
        "https://b.example/y",
        "http://c.example/p.png",
        "https://e.example",
    ]
    assert targets == {"_blank"}
    assert rels == {"noopener noreferrer nofollow"}
    assert "[here](/logout)" in text


def test_a_list_keeps_its_first_number(browser: Browser, server: ScriptedServer) -> None:
    with opened_view(browser, server) as view:
        answered(view, server, "7. seven\n8. eight")
        start = view.text("a").locator("ol").get_attribute("start")
    assert start == "7"


def test_questions_are_plain_text_with_their_line_breaks(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "# not a title\n*plain*   $5\n\n```py\nx = '<b>'\n```\nafter"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector("article pre")
        paragraphs = view.text("q").locator("p").all_inner_texts()
        code = view.text("q").locator("pre").inner_text()
    assert paragraphs == ["# not a title\n*plain*   $5", "after"]
    assert code == "x = '<b>'"


def test_a_long_question_is_folded(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "\n".join(f"line {n}" for n in range(200))))
    with opened_view(browser, server) as view:
        fold = view.page.locator(".fold")
        fold.wait_for()
        folded = view.message("q").bounding_box()
        fold.click()
        unfolded = view.message("q").bounding_box()
        expanded = fold.get_attribute("aria-expanded")
    assert folded is not None
    assert unfolded is not None
    assert folded["height"] < 450 < 3000 < unfolded["height"]
    assert expanded == "true"


def test_code_is_coloured_and_keeps_its_text(browser: Browser, server: ScriptedServer) -> None:
    code = 'def f(x):\n    return x < 3 and "a&b"  # <i>\n'
    with opened_view(browser, server) as view:
        answered(view, server, f"```python\n{code}```\n\n```\nplain\n```")
        view.page.wait_for_selector(".is-coloured .hljs-keyword")
        shown = view.text("a").locator("pre code").all_text_contents()
        names = view.text("a").locator(".code-head span").all_inner_texts()
    assert shown == [code.rstrip("\n"), "plain"]
    assert names == ["python", "Code"]


def test_wide_content_scrolls_in_itself_on_a_phone(
    browser: Browser, server: ScriptedServer
) -> None:
    table = "|" + "column |" * 12 + "\n|" + "---|" * 12 + "\n|" + "value |" * 12
    source = f"{table}\n\n```\n{'x' * 400}\n```\n\n{'y' * 400}\n\n$${'z+' * 200}1$$"
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    server.show(question("q", "w" * 400), answer("a", source))
    with opened_view(browser, server, **phone) as view:
        view.page.wait_for_selector(".math.is-drawn")
        widths = view.page.evaluate(
            "[document.documentElement.scrollWidth,"
            " document.querySelector('.scroller').scrollWidth,"
            " ...['.table-scroll', 'pre', '.math.display'].map((name) => {"
            " const e = document.querySelector('.is-answer ' + name);"
            " return e.scrollWidth > e.clientWidth; })]"
        )
        target = view.message("a").locator('[data-action="copy"]').bounding_box()
    assert widths == [390, 390, True, True, True]
    assert target is not None
    assert min(target["width"], target["height"]) >= 40


@pytest.mark.parametrize(("text", "lang"), [("مرحبا بالعالم", "ar"), ("שלום עולם", "he")])
def test_right_to_left_texts_begin_at_the_right(
    browser: Browser, server: ScriptedServer, text: str, lang: str
) -> None:
    server.show(
        question("q", text), answer("a", f"{text}\n\n- {text}\n\nEnglish here.\n\n```\nx\n```")
    )
    with opened_view(browser, server) as view:
        view.page.wait_for_selector(".is-answer pre")
        directions = view.page.evaluate(
            "[...document.querySelectorAll('.markdown > *, .question-text > p')].map("
            "(e) => getComputedStyle(e).direction)"
        )
        assert view.text("a").locator(".markdown").get_attribute("lang") == lang
    assert directions == ["rtl", "rtl", "rtl", "ltr", "ltr"]


@pytest.mark.parametrize(
    ("source", "thoughts", "said"),
    [
        ("<think>\nWell.\n</think>\n\nYes.", "Well.", "Yes."),
        ("Well.\n</think>\n\nYes.", "Well.", "Yes."),
        ("<think>one</think>\n<think>two</think>Yes.", "one\n\ntwo", "Yes."),
        ("<think>\n\n</think>\n\nYes.", None, "Yes."),
        ("Close it with `</think>`.", None, "Close it with </think>."),
        ("```\n</think>\n```\nYes.", None, None),
    ],
)
def test_thinking_is_folded_away(
    browser: Browser, server: ScriptedServer, source: str, thoughts: str | None, said: str | None
) -> None:
    with opened_view(browser, server) as view:
        answered(view, server, source)
        details = view.text("a").locator("details.thinking")
        assert details.count() == (thoughts is not None)
        if thoughts is not None:
            assert details.get_attribute("open") is None
            details.locator("summary").click()
            view.wait_until(lambda: details.locator(".thoughts").inner_text() == thoughts)
        if said is not None:
            assert view.text("a").locator("> .markdown").inner_text() == said


def test_thinking_is_shown_while_it_streams(browser: Browser, server: ScriptedServer) -> None:
    with opened_view(browser, server) as view:
        writing(server)
        server.write("<thi")
        view.page.wait_for_timeout(300)
        assert "<thi" not in view.page.inner_text(".messages")
        server.write("nk>First I count")
        details = view.page.locator("details.thinking.is-moving")
        details.wait_for()
        view.wait_until(lambda: "First I count" in details.locator("summary").inner_text())
        details.locator("summary").click()
        server.write(" to **ten**.")
        view.wait_until(
            lambda: "First I count to ten." in details.locator(".thoughts").inner_text()
        )
        server.write("</think>\n\nTen.")
        view.page.wait_for_selector("details.thinking:not(.is-moving)[open]")
        view.wait_until(lambda: view.text("a-live").locator("> .markdown").inner_text() == "Ten.")
        server.end()
        view.page.wait_for_selector(".is-answer:not(.is-live)")
        assert view.page.locator("details.thinking[open]").count() == 1
