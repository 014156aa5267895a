// The settings of the open conversation, in Gradio's controls: filled when it is opened, mirrored into `state.settings`.

import { api } from "./api.js";

const WHOLE = new Set(["top_k", "max_tokens", "seed"]);
const REFILL_WAIT_MS = 50; // Gradio puts its own value into an emptied box when it is left

export class Settings {
  /** `area`: #settings; `fill()` lets Gradio read `values()`. */
  constructor({ area, fill, state, drafts, address }) {
    Object.assign(this, { area, fill, state, drafts, address });
    this.defaults = null;
    this.shownId = undefined;
    this.isTouched = false; // the person changed something since it was filled
    this.isOdd = false; // a control shows something else than what counts
    area.addEventListener("input", (event) => this.onControl(event.target));
    area.addEventListener("focusout", () => this.isOdd && setTimeout(() => this.refill(), REFILL_WAIT_MS));
    state.addEventListener("conversation", () => this.onConversation());
  }

  async load() {
    const { settings } = await api.get("defaults");
    this.defaults = settings;
    this.onConversation();
  }

  /** For Gradio's controls of these names. */
  values(names) {
    return names.map((name) => this.state.settings[name] ?? null);
  }

  // Controls are named by their element's id: #top-p for top_p. Gradio's own event misses what is pasted or erased.
  onControl(target) {
    const name = Object.keys(this.defaults ?? {}).find((known) => target.closest(`#${known.replaceAll("_", "-")}`));
    if (!name) return;
    const value = target.tagName === "TEXTAREA" ? target.value : numberOf(target.value);
    this.change({ ...this.state.settings, [name]: value });
  }

  change(given) {
    const names = Object.keys(this.defaults);
    this.state.settings = Object.fromEntries(names.map((name) => [name, this.cleaned(name, given[name])]));
    this.isOdd ||= names.some((name) => (given[name] ?? null) !== this.state.settings[name]);
    this.isTouched = true;
    this.drafts.keepSettings(this.state.conversationId, this.state.settings);
    this.area.dispatchEvent(new CustomEvent("settings"));
  }

  /** The person chose a preset. */
  apply(settings) {
    this.change(settings);
    this.refill();
  }

  // An emptied control counts as its default; numbers of tokens and the seed are whole.
  cleaned(name, value) {
    if (name === "system_prompt") return value ?? "";
    if (typeof value !== "number" || !Number.isFinite(value)) return this.defaults[name];
    return WHOLE.has(name) ? Math.round(value) : value;
  }

  onConversation() {
    const { conversationId, conversation } = this.state;
    if (!this.defaults || (conversationId !== null && !conversation)) return;
    const isOther = conversationId !== this.shownId;
    // The conversation that the first question made: the controls are what it was asked with.
    const isBorn = isOther && this.shownId === null && conversationId !== this.address.wantedId;
    this.shownId = conversationId;
    if (isBorn) this.moveDraft(conversationId);
    else if (isOther) this.isTouched = false;
    if (!this.isTouched) this.show(conversationId, conversation);
  }

  moveDraft(conversationId) {
    this.drafts.keepSettings(null, null);
    if (this.isTouched) this.drafts.keepSettings(conversationId, this.state.settings);
  }

  show(conversationId, conversation) {
    const draft = this.drafts.of(conversationId).settings;
    this.state.settings = { ...this.defaults, ...(draft ?? conversation?.settings) };
    this.isTouched = draft !== null;
    this.refill();
  }

  refill() {
    this.isOdd = false;
    this.fill();
  }
}

function numberOf(text) {
  return text.trim() === "" ? null : Number(text);
}
