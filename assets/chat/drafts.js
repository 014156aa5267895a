// What is written but not sent, for each conversation: it outlives a reload and a lost server.

import { Storage } from "./storage.js";

const PREFIX = "hearth.draft.";

export class Drafts {
  constructor(storage = new Storage("sessionStorage")) {
    this.storage = storage;
  }

  /** {text, settings}; settings null: those of the conversation. */
  of(conversationId) {
    const { text = "", settings = null } = this.storage.read(key(conversationId)) ?? {};
    return { text, settings };
  }

  keepText(conversationId, text) {
    this.keep(conversationId, { ...this.of(conversationId), text });
  }

  keepSettings(conversationId, settings) {
    this.keep(conversationId, { ...this.of(conversationId), settings });
  }

  keep(conversationId, draft) {
    const isEmpty = draft.text === "" && draft.settings === null;
    this.storage.write(key(conversationId), isEmpty ? null : draft);
  }
}

function key(conversationId) {
  return PREFIX + (conversationId ?? "new");
}
