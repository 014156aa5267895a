"""Markup of people and models is shown as they wrote it."""

from __future__ import annotations

import time

import pytest

from ui.chat.markup import literal_markdown, split_reasoning


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<I am visible>", "&#x0003C;I am visible>"),
        ("<script>alert(1)</script>", "&#x0003C;script>alert(1)&#x0003C;/script>"),
        ("<!-- hidden -->", "&#x0003C;!-- hidden -->"),
        ("a < b <= c <3", "a < b <= c <3"),
        ("&lt;b&gt; & &#60;", "&#x00026;lt;b&#x00026;gt; & &#x00026;#60;"),
        ("[x](javascript:alert(1))", "&#x0005B;x](javascript:alert(1))"),
        ("[x]( data:text/html,1)", "&#x0005B;x]( data:text/html,1)"),
        ("[x](https://example.org)", "[x](https://example.org)"),
        ("![x](http://evil/x.png)", "&#x00021;[x](http://evil/x.png)"),
        ("two `ticks <b>` and <b>", "two `ticks <b>` and &#x0003C;b>"),
        ("`` a ` <b> `` <b>", "`` a ` <b> `` &#x0003C;b>"),
        ("open ` tick <b>", "open ` tick &#x0003C;b>"),
        ("\\`<b>`", "\\`&#x0003C;b>`"),
        ("    indented <b> &amp;", "    indented <\u2060b> &\u2060amp;"),
    ],
)
def test_br_63_markup_is_literal_outside_code(text: str, shown: str) -> None:
    assert literal_markdown(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<b>&amp;</b>\n```\n",
        "~~~\n<script>\n```\n</script>\n~~~",
        "```python\nunclosed <b>",
        "`std::vector<int> v; if (a<b && c>d)`",
        "It cost $2,050,999 in May; now $88,120.",
        "a_b_c and *x*",
        "\\(x_1+y_2\\) and $$\\frac{a_b}{c}$$ and `$HOME`",
    ],
)
def test_br_62_code_formulas_and_prices_are_left_alone(text: str) -> None:
    assert literal_markdown(text) == text


def test_a_formula_keeps_its_less_than_but_cannot_begin_a_tag() -> None:
    assert literal_markdown("\\(a<b\\) $$<img src=x>$$") == "\\(a< b\\) $$< img src=x>$$"


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        ("```cpp", "```c"),
        ("```Python title=x", "```python"),
        ("```__proto__", "```"),
        ("```mermaid", "```"),
        ("~~~~ c++", "~~~~c"),
    ],
)
def test_a_language_that_the_page_cannot_highlight_is_left_out(head: str, kept: str) -> None:
    assert literal_markdown(f"{head}\nx<y\n") == f"{kept}\nx<y\n"


@pytest.mark.parametrize("text", ["[" * 200_000, "\\[" * 100_000, "$$`" * 70_000, "<a" * 100_000])
def test_br_41_hostile_text_takes_linear_time(text: str) -> None:
    started_s = time.monotonic()
    literal_markdown(text)
    assert time.monotonic() - started_s < 5


def test_reasoning_is_split_off_also_when_it_is_unfinished() -> None:
    assert split_reasoning("<think>\nhm\n</think>\n\n4") == ("hm", "4")
    assert split_reasoning("<think>hm") == ("hm", "")
    assert split_reasoning("no <think>x</think>") == ("", "no <think>x</think>")
