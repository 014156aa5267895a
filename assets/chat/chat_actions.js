// What can be done to a conversation from the list.

import { api } from "./api.js";
import { saveFile } from "./download.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";

const UNDO_MS = 10_000;
const MAX_SHOWN_TITLE = 40;

export class ChatActions {
  /** `go(conversationId)` shows another one. */
  constructor(state, { toasts, go }) {
    Object.assign(this, { state, toasts, go });
  }

  rename(entry, title) {
    return this.change(entry, { title });
  }

  pin(entry, isPinned) {
    return this.change(entry, { is_pinned: isPinned });
  }

  async archive(entry, isArchived) {
    if (!(await this.change(entry, { is_archived: isArchived })) || !isArchived) return;
    const undo = { label: t("list.undo"), act: () => this.change(entry, { is_archived: false }) };
    this.toasts.show(t("list.was_archived", { title: short(entry.title) }), { action: undo, lastsMs: UNDO_MS });
  }

  async delete(entry) {
    const { conversation_id: id } = entry;
    const wasOpen = id === this.state.conversationId;
    if (wasOpen) this.go(null);
    if (!(await this.attempt(() => api.del(`conversations/${id}`)))) {
      if (wasOpen) this.go(id);
      return;
    }
    const undo = { label: t("list.undo"), act: () => this.restore(id, wasOpen) };
    this.toasts.show(t("list.deleted", { title: short(entry.title) }), { action: undo, lastsMs: UNDO_MS });
  }

  async restore(id, isOpened) {
    const isBack = await this.attempt(() => api.post(`conversations/${id}/restore`));
    if (isBack && isOpened) this.go(id);
  }

  export(entry, format) {
    return this.attempt(() => saveFile(`conversations/${entry.conversation_id}/export?format=${format}`));
  }

  exportAll(format) {
    return this.attempt(() => saveFile(`export?format=${format}`));
  }

  change(entry, changes) {
    return this.attempt(() => api.patch(`conversations/${entry.conversation_id}`, changes));
  }

  // The list itself changes by the event that follows, here as in every other tab.
  async attempt(call) {
    try {
      await call();
      return true;
    } catch (error) {
      this.toasts.show(problemText(error));
      return false;
    }
  }
}

function short(title) {
  const characters = [...title];
  return characters.length > MAX_SHOWN_TITLE ? `${characters.slice(0, MAX_SHOWN_TITLE).join("")}…` : title;
}
