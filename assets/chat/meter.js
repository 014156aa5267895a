// How much of the model's context the conversation takes, with what is being written.

import { api } from "./api.js";
import { element } from "./element.js";
import { t } from "./i18n.js";

const COUNT_WAIT_MS = 600;
const MIN_COUNTED_CHARS = 200; // a shorter draft changes nothing that can be seen
const WARN_SHARE = 0.8;
const FULL_SHARE = 0.95;

export class Meter {
  /** `root`: the <details> of meter.html. */
  constructor(root, { state, composer, settings }) {
    Object.assign(this, { root, state, composer });
    this.bar = root.querySelector("progress");
    this.line = root.querySelector("[data-role=line]");
    this.rows = root.querySelector("dl");
    this.counted = null; // {conversationId, text, used, max}: what sending the draft would cost
    for (const name of ["conversation", "engine"]) state.addEventListener(name, () => this.onChange());
    composer.row.addEventListener("draft", () => this.onDraft());
    settings.addEventListener("settings", () => this.onDraft());
    document.addEventListener("pointerdown", (event) => !root.contains(event.target) && (root.open = false));
    root.addEventListener("keydown", (event) => event.key === "Escape" && this.close(event));
    this.draw();
  }

  close(event) {
    if (!this.root.open) return;
    event.stopPropagation();
    this.root.open = false;
    this.root.querySelector("summary").focus();
  }

  onChange() {
    if (this.counted?.conversationId !== this.state.conversationId) this.counted = null;
    this.onDraft();
  }

  onDraft() {
    clearTimeout(this.timer);
    if (this.isToBeCounted()) this.timer = setTimeout(() => this.count(), COUNT_WAIT_MS);
    else this.counted = null;
    this.draw();
  }

  // Also what was edited, deleted or imported: only an answer brings its own numbers.
  isToBeCounted() {
    const { conversation, engine, isAnswering } = this.state;
    const isUnknown = conversation?.context === null && conversation.messages.length > 0;
    if (isUnknown && !isAnswering && engine?.state === "ready") return true;
    return this.composer.text.length >= MIN_COUNTED_CHARS;
  }

  async count() {
    const { state, composer } = this;
    const { conversationId, settings } = state;
    const { text } = composer;
    try {
      const { used, max } = await api.post("count", { conversation_id: conversationId, text, settings });
      if (conversationId !== state.conversationId || text !== composer.text) return;
      this.counted = { conversationId, text, used, max };
      this.draw();
    } catch {
      // The next change counts again; a draft that is too long is refused with numbers when it is sent.
    }
  }

  /** {used, draft, max} in tokens; null while unknown. */
  figures() {
    const { conversation, conversationId, engine } = this.state;
    const max = this.counted?.max ?? conversation?.context?.max ?? engine?.model?.max_model_len ?? null;
    const known = conversation?.context?.used ?? (conversationId === null ? 0 : null);
    if (max === null || (known === null && !this.counted)) return null;
    const used = this.counted?.used ?? known;
    return { used, draft: Math.max(used - (known ?? used), 0), max };
  }

  draw() {
    const figures = this.figures();
    this.root.hidden = figures === null;
    if (!figures) return;
    const { used, max } = figures;
    const share = used / max;
    const level = share > 1 ? "over" : share >= FULL_SHARE ? "full" : share >= WARN_SHARE ? "filling" : "line";
    this.root.dataset.level = level;
    this.bar.max = max;
    this.bar.value = Math.min(used, max);
    const text = t(used === 0 ? "meter.room" : `meter.${level}`, { used, max });
    if (this.line.textContent !== text) this.line.textContent = text;
    this.drawRows(figures);
  }

  drawRows({ used, draft, max }) {
    const reply = this.state.settings.max_tokens ?? 0;
    const rows = [
      ["meter.used", used - draft],
      ["meter.draft", draft],
      ["meter.reply", reply],
      ["meter.free", Math.max(max - used - reply, 0)],
    ];
    this.rows.replaceChildren(
      ...rows.flatMap(([key, count]) => [element("dt", {}, t(key)), element("dd", {}, t("meter.tokens", { count }))]),
    );
  }
}
