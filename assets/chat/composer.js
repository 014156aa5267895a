// Where a person writes. Gradio draws the box and the buttons; a text that was refused stays in the box.

import { element } from "./element.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";

export class Composer {
  /** `row`: #composer with #question, #send and #stop in it; `notice`: where a refusal is explained. */
  constructor({ row, notice, state, drafts, address }) {
    Object.assign(this, { row, notice, state, drafts, address });
    this.box = row.querySelector("textarea");
    this.sendButton = row.querySelector("#send");
    this.askingIn = undefined; // the conversation a text is on its way to
    this.shownId = undefined; // the conversation whose draft is in the box
    this.box.setAttribute("aria-describedby", "notice-text");
    this.box.addEventListener("input", () => this.onInput());
    guardComposition(row);
    for (const name of ["live", "preparation", "engine", "connection"]) state.addEventListener(name, () => this.refresh());
    state.addEventListener("conversation", () => this.onConversation());
    state.addEventListener("problem", (event) => this.isAsking && this.explain(problemText(event.detail)));
    this.onConversation();
    this.refresh();
  }

  get text() {
    return this.box.value;
  }

  get isAsking() {
    return this.askingIn !== undefined;
  }

  // A restarting engine keeps what it is asked until it is back.
  get isReady() {
    return ["ready", "restarting"].includes(this.state.engine?.state);
  }

  focus() {
    this.box.focus();
  }

  /** Gradio's Enter and its Send button come here. */
  async send() {
    const text = this.text;
    if (text.trim() === "") return;
    const reason = this.reasonNotToSend();
    this.explain(reason, { isPassing: true });
    if (reason) return;
    await this.askWith(text, () => this.state.ask(text));
  }

  // The text leaves the box at once and comes back where asking fails; until then the draft keeps it.
  async askWith(text, ask) {
    const askedIn = this.state.conversationId;
    this.askingIn = askedIn;
    this.setText("");
    let asked = null;
    try {
      asked = await ask();
    } finally {
      this.askingIn = undefined;
      if (asked) this.onAsked(askedIn, asked);
      else this.putBack(askedIn, text);
      this.refresh();
    }
  }

  // What was typed meanwhile is the next draft, also where a new conversation got its id.
  onAsked(askedIn, { conversation_id: id }) {
    const shown = this.state.conversationId;
    this.drafts.keepText(askedIn, "");
    if (shown === askedIn || shown === id) this.drafts.keepText(shown, this.text);
  }

  putBack(askedIn, text) {
    if (this.state.conversationId !== askedIn) return;
    this.setText(this.text ? `${text}\n${this.text}` : text);
    this.drafts.keepText(askedIn, this.text);
    this.focus();
  }

  reasonNotToSend() {
    const { state } = this;
    if (!this.isReady) return t("composer.not_ready");
    if (this.isAsking) return t("composer.sending");
    if (state.isAnswering) return t("composer.answering");
    return "";
  }

  // `isPassing`: it goes by itself when nothing stands in the way of sending any more.
  explain(reason, { isPassing = false } = {}) {
    this.isPassing = isPassing;
    const dismiss = element("button", { type: "button", "aria-label": t("composer.dismiss") }, "×");
    dismiss.addEventListener("click", () => this.explain(""));
    const text = element("span", { id: "notice-text" }, reason);
    this.notice.replaceChildren(...(reason ? [text, dismiss] : []));
    this.notice.hidden = !reason;
  }

  // --- what changes ---

  onInput() {
    const { conversationId } = this.state;
    if (conversationId !== this.askingIn) this.drafts.keepText(conversationId, this.text);
    this.row.dispatchEvent(new CustomEvent("draft"));
  }

  onConversation() {
    const { conversationId } = this.state;
    if (conversationId === this.shownId) return;
    const isBorn = this.shownId === null && conversationId !== null && conversationId !== this.address.wantedId;
    this.shownId = conversationId;
    if (isBorn) return; // what is in the box was typed since
    this.explain("");
    this.setText(conversationId === this.askingIn ? "" : this.drafts.of(conversationId).text);
  }

  refresh() {
    if (this.isPassing && !this.reasonNotToSend()) this.explain("");
    this.row.toggleAttribute("data-answering", this.state.isAnswering);
    this.sendButton.disabled = !this.isReady;
    this.sendButton.title = this.isReady ? "" : t("composer.not_ready");
  }

  setText(text) {
    if (this.box.value === text) return;
    this.box.value = text;
    this.box.dispatchEvent(new Event("input", { bubbles: true })); // Gradio reads it and fits the height
  }
}

// An Enter that ends a composition chooses a character. Gradio sends on `keypress`, which Safari fires after it.
function guardComposition(row) {
  let isComposing = false;
  row.addEventListener("keydown", (event) => (isComposing = event.isComposing || event.keyCode === 229), true);
  row.addEventListener(
    "keypress",
    (event) => {
      if (event.isComposing || isComposing) event.stopPropagation();
    },
    true,
  );
}
