"""Settings of each conversation, and presets. On a scripted server."""

from __future__ import annotations

import pytest

from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_frames import DEFAULTS, Json

PROMPT = "#system-prompt textarea"


def asked(site: Site) -> Json:
    settings: Json = site.server.bodies("POST", "ask")[-1]["settings"]
    return settings


def shown(chat: ChatPage) -> Json:
    chat.open_settings()
    names = [name for name in DEFAULTS if name != "system_prompt"]
    numbers = {name: chat.number(name.replace("_", "-")) for name in names}
    return {"system_prompt": chat.page.input_value(PROMPT), **numbers}


def texts(settings: Json) -> Json:
    return {
        name: "" if value is None else f"{value:g}" if name != "system_prompt" else value
        for name, value in settings.items()
    }


def test_a_new_chat_is_asked_with_the_defaults(site: Site) -> None:
    chat = site.visit()
    chat.ask("Hello")
    assert asked(site) == DEFAULTS
    assert shown(chat) == texts(DEFAULTS)


def test_a_page_opened_while_the_model_loads_gets_its_defaults_when_it_is_ready(
    site: Site,
) -> None:
    site.server.set_engine("loading", "Loading the weights.")
    chat = site.visit(is_ready=False)
    chat.open_settings()
    chat.wait_until(lambda: chat.number("temperature") == "0.7")
    site.server.defaults |= {"temperature": 0.2, "top_k": 40}
    site.server.set_engine("ready")
    chat.wait_until(lambda: chat.number("temperature") == "0.2")
    chat.ask("Hello")
    assert asked(site) == DEFAULTS | {"temperature": 0.2, "top_k": 40}


def test_what_is_set_is_sent(site: Site) -> None:
    chat = site.visit()
    chat.fill_setting(PROMPT, "Be brief.")
    for control, value in (
        ("temperature", "0"),
        ("top-k", "40"),
        ("max-tokens", "9"),
        ("seed", "7"),
    ):
        chat.set_number(control, value)
    chat.ask("Hello")
    changed = {
        "system_prompt": "Be brief.",
        "temperature": 0,
        "top_k": 40,
        "max_tokens": 9,
        "seed": 7,
    }
    assert asked(site) == DEFAULTS | changed


def test_br_30_the_ends_of_a_slider_are_sent(site: Site) -> None:
    chat = site.visit()
    chat.open_settings()
    slider = chat.page.locator("#temperature input[type=range]")
    for key, value in (("End", 2), ("Home", 0)):
        slider.press(key)
        chat.ask("Hello")
        assert asked(site)["temperature"] == value


def test_settings_hold_before_the_panel_was_ever_opened(site: Site) -> None:
    settings = DEFAULTS | {"system_prompt": "Rhyme.", "temperature": 1.5, "seed": 11}
    site.server.add("Rhymes", "q", "a", settings=settings)
    chat = site.visit()
    chat.open("Rhymes")
    chat.wait_until(lambda: chat.questions == ["q"])
    chat.ask("More")
    assert asked(site) == settings
    assert shown(chat) == texts(settings)


def test_br_59_each_chat_has_its_own_settings(site: Site) -> None:
    for number, title in enumerate(("One", "Two")):
        settings = DEFAULTS | {"system_prompt": f"Code word {title}.", "temperature": number + 0.5}
        site.server.add(title, title, "a", settings=settings)
    chat = site.visit()
    chat.open_settings()
    for title in ("One", "Two", "One", "Two", "One"):
        chat.open(title)  # at once after the other: what is filled in must not cross
    chat.wait_until(lambda: chat.questions == ["One"])
    chat.wait_until(lambda: chat.page.input_value(PROMPT) == "Code word One.")
    chat.ask("again")
    assert asked(site)["system_prompt"] == "Code word One."
    chat.open("Two")
    chat.wait_until(lambda: chat.number("temperature") == "1.5")
    chat.page.click("#new-chat")
    chat.wait_until(lambda: chat.page.input_value(PROMPT) == "")
    chat.ask("fresh")
    assert asked(site) == DEFAULTS
    assert chat.errors == []


@pytest.mark.parametrize(("control", "default"), [("temperature", "0.7"), ("max-tokens", "512")])
def test_an_emptied_number_is_its_default(site: Site, control: str, default: str) -> None:
    chat = site.visit()
    chat.set_number(control, "1")
    chat.page.fill(f"#{control} input[type=number]", "")
    chat.page.press(f"#{control} input[type=number]", "Tab")
    chat.wait_until(lambda: chat.number(control) == default)
    chat.ask("Hello")
    assert asked(site) == DEFAULTS


def test_the_seed_is_whole_or_empty(site: Site) -> None:
    chat = site.visit()
    chat.open_settings()
    chat.page.fill("#seed input", "3.6")
    chat.page.press("#seed input", "Tab")
    chat.wait_until(lambda: chat.page.input_value("#seed input") == "4")
    chat.ask("Hello")
    assert asked(site)["seed"] == 4
    chat.page.fill("#seed input", "")
    chat.page.press("#seed input", "Tab")
    chat.ask("Hello")
    assert asked(site)["seed"] is None


def test_a_pasted_system_prompt_counts_at_once(site: Site) -> None:
    chat = site.visit()
    chat.open_settings()
    chat.page.focus(PROMPT)
    chat.page.keyboard.insert_text("Pasted.")
    chat.ask("Hello")
    assert asked(site)["system_prompt"] == "Pasted."
    chat.page.focus(PROMPT)
    chat.page.keyboard.press("Control+a")
    chat.page.keyboard.press("Backspace")
    chat.ask("Hello")
    assert asked(site)["system_prompt"] == ""


def test_br_66_a_reload_keeps_what_is_set_and_not_sent(site: Site) -> None:
    site.server.add("One", "q", "a")
    chat = site.visit()
    chat.open("One")
    chat.fill_setting(PROMPT, "Not sent yet.")
    chat.page.reload()
    chat.wait_until(lambda: chat.questions == ["q"])
    chat.open_settings()
    chat.wait_until(lambda: chat.page.input_value(PROMPT) == "Not sent yet.")
    chat.ask("Now")
    assert asked(site)["system_prompt"] == "Not sent yet."


def test_settings_set_for_a_new_chat_go_with_it(site: Site) -> None:
    chat = site.visit()
    chat.fill_setting(PROMPT, "Stay.")
    chat.ask("Hello")
    chat.ask("Again")
    assert asked(site)["system_prompt"] == "Stay."
    chat.page.click("#new-chat")
    chat.wait_until(lambda: chat.page.input_value(PROMPT) == "")


def test_presets_are_saved_chosen_and_deleted(site: Site) -> None:
    chat = site.visit()
    chat.fill_setting(PROMPT, "Answer as a pirate.")
    chat.page.click("#save-preset")
    chat.page.keyboard.type("Pirate <b>")
    chat.page.keyboard.press("Enter")
    chat.wait_until(lambda: chat.page.input_value("#preset input") == "Pirate <b>")
    assert site.server.presets["Pirate <b>"]["system_prompt"] == "Answer as a pirate."
    chat.page.reload()
    chat.new_chat()
    chat.open_settings()
    chat.fill_setting(PROMPT, "")
    chat.page.click("#preset input")
    chat.page.click("#preset [role=option]")
    chat.wait_until(lambda: chat.page.input_value(PROMPT) == "Answer as a pirate.")
    chat.page.wait_for_timeout(300)
    assert chat.toasts == ["Settings taken from “Pirate <b>”"]
    chat.ask("Hello")
    assert asked(site)["system_prompt"] == "Answer as a pirate."
    chat.page.click("#delete-preset")
    chat.wait_until(lambda: site.server.presets == {})
    chat.page.click(".toast-action")
    chat.wait_until(lambda: list(site.server.presets) == ["Pirate <b>"])
    assert chat.errors == []


def test_settings_are_closed_from_their_end_too(site: Site) -> None:
    chat = site.visit()
    chat.open_settings()
    chat.page.locator("#seed input").scroll_into_view_if_needed()
    panel, head = (
        chat.page.locator(selector).bounding_box()
        for selector in ("#settings", "#settings > button")
    )
    assert panel is not None
    assert head is not None
    assert panel["y"] <= head["y"] < panel["y"] + 12
    chat.page.click("#settings > button")
    chat.wait_until(lambda: not chat.page.is_visible("#max-tokens"))


def test_a_dialog_that_is_cancelled_saves_nothing(site: Site) -> None:
    chat = site.visit()
    chat.open_settings()
    for end in ("Escape", None):
        chat.page.click("#save-preset")
        chat.page.keyboard.type("Name")
        if end:
            chat.page.keyboard.press(end)
        else:
            chat.page.click("dialog button:has-text('Cancel')")
        chat.page.wait_for_selector("dialog", state="detached")
    assert site.server.presets == {}
