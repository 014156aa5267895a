// What the server told this tab: the list, the engine, the shown conversation and the answer being written in it.
//
// Emits "conversation", "live", "preparation", "entries", "engine", "connection", "gone" when that has changed, and
// "problem" {message, code} for what a person has to be told.

import { api, ApiError } from "./api.js";
import { Events } from "./events.js";
import { joined } from "./history.js";
import { KnownTexts } from "./known_texts.js";

const WINDOW = 40; // messages the server sends of a path, and of what is before it
const MAX_RELOADED = 200; // what the server gives at once
const UNSTORED_PHASES = ["preparing", "summarising"];
const PREPARATION_LASTS_MS = 6000; // the server tells of it every two seconds

export class Mirror extends EventTarget {
  constructor(events = new Events()) {
    super();
    this.events = events;
    this.entries = new Map(); // conversation_id -> Entry
    this.engine = null; // {state, message, num_restarts, model}
    this.connection = events.state;
    this.serverId = null;
    this.conversationId = null; // null: a new one
    this.conversation = null; // null: a new one, or not here yet
    this.live = null; // see onAnswer
    this.preparation = null; // the phase of an answer that is not in the conversation yet
    this.texts = new KnownTexts();
    this.isLoadingEarlier = false;
    for (const [name, take] of Object.entries(this.takers())) {
      events.addEventListener(name, (event) => take(event.detail));
    }
  }

  takers() {
    return {
      connection: ({ state }) => this.set("connection", state),
      engine: ({ type, ...engine }) => this.set("engine", engine),
      hello: ({ server_id: serverId }) => (this.serverId = serverId),
      entries: ({ entries }) => this.set("entries", new Map(entries.map((entry) => [entry.conversation_id, entry]))),
      entry: ({ entry }) => this.onEntry(entry),
      entry_gone: ({ conversation_id: id }) => this.entries.delete(id) && this.emit("entries"),
      conversation: ({ conversation }) => this.onConversation(conversation),
      answer: (frame) => this.onAnswer(frame),
      gone: ({ conversation_id: id }) => this.onGone(id),
    };
  }

  // Show a conversation from now on; null shows the beginning of a new one.
  open(conversationId) {
    if (conversationId !== this.conversationId || conversationId === null) {
      this.conversationId = conversationId;
      this.conversation = null;
      this.live = null;
      this.setPreparation(null);
      this.emit("conversation");
      this.emit("live");
    }
    this.events.watch(conversationId);
  }

  get messages() {
    return this.conversation?.messages ?? [];
  }

  message(messageId) {
    return this.messages.find((message) => message.message_id === messageId) ?? null;
  }

  get isAnswering() {
    return this.live !== null || this.preparation !== null;
  }

  async loadEarlier() {
    const { conversationId, conversation } = this;
    if (!conversation?.num_earlier || this.isLoadingEarlier) return;
    this.isLoadingEarlier = true;
    try {
      const before = encodeURIComponent(conversation.messages[0].message_id);
      const found = await api.get(`conversations/${conversationId}?before=${before}&limit=${WINDOW}`);
      if (this.conversationId !== conversationId) return;
      const { messages: now, num_earlier: numEarlier } = this.conversation;
      if (now[0]?.message_id !== conversation.messages[0].message_id) return; // another branch meanwhile
      found.messages.forEach((message) => this.texts.keep(message));
      const isAllThere = found.messages.length === 0;
      this.conversation = {
        ...this.conversation,
        messages: [...found.messages, ...now],
        num_earlier: isAllThere ? 0 : Math.max(numEarlier - found.messages.length, 0),
      };
      this.emit("conversation");
    } catch (error) {
      this.report(error);
    } finally {
      this.isLoadingEarlier = false;
    }
  }

  // --- what comes from the server ---

  onEntry(entry) {
    if (entry.is_archived) this.entries.delete(entry.conversation_id);
    else this.entries.set(entry.conversation_id, entry);
    this.emit("entries");
  }

  onConversation(told) {
    if (told.conversation_id !== this.conversationId) return;
    const messages = told.messages.map((message) => this.texts.complete(message));
    const join = messages.includes(null)
      ? null
      : joined(this.messages, this.conversation?.num_earlier ?? 0, messages, told.num_earlier);
    if (join === null) {
      this.reload(Math.max(this.messages.length, told.messages.length));
      return;
    }
    this.take({ ...told, messages: join.messages, num_earlier: join.numEarlier });
  }

  take(conversation) {
    this.conversation = conversation;
    this.setPreparation(null);
    const writing = conversation.messages.findLast((message) => message.state === "writing");
    if (!writing) this.live = null;
    else if (this.live?.messageId !== writing.message_id) this.live = freshLive(writing);
    this.emit("conversation");
    this.emit("live");
  }

  // Earlier messages changed too, or a text is missing: ask for all that is shown.
  async reload(numShown) {
    const { conversationId } = this;
    const limit = Math.min(Math.max(numShown, WINDOW), MAX_RELOADED);
    try {
      const found = await api.get(`conversations/${conversationId}?limit=${limit}`);
      if (this.conversationId !== conversationId) return;
      found.messages.forEach((message) => this.texts.keep(message));
      this.take(found);
    } catch (error) {
      this.report(error);
    }
  }

  onAnswer(frame) {
    if (frame.conversation_id !== this.conversationId || !this.conversation) return;
    const message = this.message(frame.message_id);
    if (!message && UNSTORED_PHASES.includes(frame.phase)) this.setPreparation(frame.phase);
    if (message?.state !== "writing") return; // ended already
    const known = this.live;
    if (!frame.is_whole && !known?.isWhole) {
      this.events.sendWatch(); // the beginning is missing
      return;
    }
    this.live = {
      messageId: frame.message_id,
      isWhole: true,
      text: frame.is_whole ? frame.text ?? "" : known.text + (frame.text ?? ""),
      phase: frame.phase,
      queuePosition: frame.queue_position,
      expectedWaitS: frame.expected_wait_s,
      numComputedTokens: frame.num_computed_tokens,
      numPromptTokens: frame.num_prompt_tokens,
      numOutputTokens: frame.num_output_tokens,
      tokensPerS: frame.tokens_per_s,
    };
    this.emit("live");
  }

  setPreparation(phase) {
    clearTimeout(this.preparationTimer);
    if (phase) this.preparationTimer = setTimeout(() => this.setPreparation(null), PREPARATION_LASTS_MS);
    if (phase !== this.preparation) this.set("preparation", phase);
  }

  onGone(conversationId) {
    if (this.entries.delete(conversationId)) this.emit("entries");
    if (conversationId !== this.conversationId) return;
    this.open(null);
    this.emit("gone", { conversation_id: conversationId });
  }

  // --- telling others ---

  set(name, value) {
    this[name] = value;
    this.emit(name);
  }

  emit(name, detail = null) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  report(error) {
    if (!(error instanceof ApiError)) throw error;
    this.emit("problem", { message: error.message, code: error.code, details: error.details });
  }
}

// What the database has of an answer, until its first event.
function freshLive(message) {
  return {
    messageId: message.message_id,
    isWhole: false,
    text: message.text,
    phase: message.text ? "writing" : "preparing",
    queuePosition: null,
    expectedWaitS: null,
    numComputedTokens: null,
    numPromptTokens: null,
    numOutputTokens: null,
    tokensPerS: null,
  };
}
