// What the buttons of a message do.

import { copyText } from "./copy.js";
import { t } from "./i18n.js";
import { showDone } from "./message_foot.js";
import { splitReasoning } from "./reasoning.js";

const UNDO_MS = 10_000;
const COPIED_MS = 1500;

export class MessageActions {
  // `viewOf(messageId)`: a MessageView; `onAsk()`: the end is what the person wants to see now.
  constructor(state, { toasts, viewOf, onAsk }) {
    Object.assign(this, { state, toasts, viewOf, onAsk, focusAfter: null });
    this.select = this.select.bind(this);
  }

  // The source, without what was only thought.
  async copy(message, button) {
    const { answer } = splitReasoning(message.text);
    const text = message.role === "assistant" && answer ? answer : message.text;
    if (await copyText(text)) showDone(button);
    else this.toasts.show(t("message.not_copied"));
  }

  edit(message) {
    if (this.state.isAnswering) return;
    const save = async (text) => {
      if (message.role === "assistant") return (await this.state.editAnswer(message.message_id, text)) !== null;
      return (await this.state.ask(text, this.state.settings, { parentId: message.parent_id })) !== null;
    };
    this.viewOf(message.message_id)?.edit(save);
  }

  async regenerate(message) {
    if (this.state.isAnswering) return;
    if (await this.state.regenerate(message.message_id)) this.onAsk();
  }

  async continue(message) {
    if (this.state.isAnswering) return;
    if (await this.state.continueAnswer(message.message_id)) this.onAsk();
  }

  async delete({ message_id: id }) {
    if (this.state.isAnswering) return;
    if ((await this.state.deleteMessage(id)) === null) return;
    const undo = { label: t("message.undo"), act: () => this.state.restoreMessage(id) };
    this.toasts.show(t("message.deleted"), { action: undo, lastsMs: UNDO_MS });
  }

  select(messageId, arrow) {
    if (this.state.isAnswering) return;
    this.focusAfter = { messageId, arrow };
    return this.state.select(messageId);
  }

  // Whoever walks the variants by keyboard stays on the arrow.
  restoreFocus() {
    if (!this.focusAfter) return;
    const foot = this.viewOf(this.focusAfter.messageId)?.foot;
    if (!foot) return;
    const { arrow } = this.focusAfter;
    this.focusAfter = null;
    if (document.activeElement !== document.body) return;
    const target = foot.querySelector(`[data-action="${arrow}"]:not(:disabled)`) ?? foot.querySelector(".variants button:not(:disabled)");
    target?.focus({ preventScroll: true });
  }
}

// The copy button of a block of code.
export async function copyCode(event) {
  const button = event.target.closest?.('button[data-copies="code"]');
  if (!button) return;
  const code = button.closest(".code-block").querySelector("code").textContent;
  button.textContent = t((await copyText(code)) ? "message.copied" : "message.not_copied");
  setTimeout(() => (button.textContent = t("message.copy")), COPIED_MS);
}
