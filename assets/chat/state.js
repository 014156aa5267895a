// What a person does in this tab. Each action is one call; what comes of it arrives as events (see mirror.js).
//
// Actions never throw: where one fails, "problem" {message, code, details} is emitted and null is returned.
// Where the model's context is full, "context_full" {error, retry(onFull)} is emitted instead.

import { api } from "./api.js";
import { Mirror } from "./mirror.js";

const MAX_TRIES = 8;
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

export class ChatState extends Mirror {
  constructor(events) {
    super(events);
    this.settings = {}; // the page keeps it current
    this.pending = null; // {questionId, text, parentId}: a question on its way
  }

  // Ask; returns Asked or null. `parentId`: branch there (null: a first question); undefined: append.
  async ask(text, settings = this.settings, { parentId, onFull, questionId = newId() } = {}) {
    const conversationId = this.conversationId;
    const body = { conversation_id: conversationId, question_id: questionId, text, settings };
    if (parentId !== undefined) body.parent_id = parentId;
    if (onFull) body.on_full = onFull;
    this.set("pending", { questionId, text, parentId });
    const retry = (choice) => this.ask(text, settings, { parentId, onFull: choice, questionId });
    const asked = await this.attempt(() => repeated(() => api.post("ask", body)), retry);
    if (asked && conversationId === null && this.conversationId === null) this.open(asked.conversation_id);
    if (this.pending?.questionId === questionId) this.settle(asked);
    return asked;
  }

  // The question stays in sight until the conversation itself shows it.
  settle(asked) {
    const isShown = !asked || this.conversationId !== asked.conversation_id || this.message(asked.question_id);
    this.set("pending", isShown ? null : { ...this.pending, questionId: asked.question_id });
  }

  take(conversation) {
    super.take(conversation);
    if (this.pending && this.message(this.pending.questionId)) this.set("pending", null);
  }

  open(conversationId) {
    if (this.pending && this.conversationId !== null && conversationId !== this.conversationId) this.set("pending", null);
    super.open(conversationId);
  }

  regenerate(messageId, settings = this.settings, onFull = undefined) {
    const body = onFull ? { settings, on_full: onFull } : { settings };
    const retry = (choice) => this.regenerate(messageId, settings, choice);
    return this.attempt(() => api.post(`messages/${messageId}/regenerate`, body), retry);
  }

  continueAnswer(messageId, settings = this.settings) {
    return this.attempt(() => api.post(`messages/${messageId}/continue`, { settings }));
  }

  editAnswer(messageId, text) {
    return this.attempt(() => api.post(`messages/${messageId}/edit`, { text }));
  }

  select(messageId) {
    return this.attempt(() => repeated(() => api.post(`messages/${messageId}/select`)));
  }

  deleteMessage(messageId) {
    return this.attempt(() => repeated(() => api.del(`messages/${messageId}`)));
  }

  restoreMessage(messageId) {
    return this.attempt(() => repeated(() => api.post(`messages/${messageId}/restore`)));
  }

  // Shown at once; the end itself comes as an event.
  stop() {
    if (this.conversationId === null) return Promise.resolve(null);
    if (this.live) this.set("live", { ...this.live, phase: "stopping" });
    return this.attempt(() => repeated(() => api.post(`conversations/${this.conversationId}/stop`)));
  }

  async attempt(call, retry = null) {
    try {
      return await call();
    } catch (error) {
      if (retry && error.code === "context_full") this.emit("context_full", { error: error.details, retry });
      else this.report(error);
      this.setPreparation(null);
      return null;
    }
  }
}

// For calls that may be made twice: a dropped connection must not lose them.
async function repeated(call) {
  for (let attempt = 1, waitMs = FIRST_WAIT_MS; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (!error.isOffline || attempt === MAX_TRIES) throw error;
      await wakingWait(waitMs);
      waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    }
  }
}

function wakingWait(waitMs) {
  return new Promise((resolve) => {
    setTimeout(resolve, waitMs);
    addEventListener("online", resolve, { once: true });
  });
}

// Plain http has no crypto.randomUUID.
function newId() {
  const numbers = crypto.getRandomValues(new Uint8Array(22));
  return Array.from(numbers, (number) => ALPHABET[number % 64]).join("");
}
