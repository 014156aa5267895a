// The conversation in its container: history drawn once, the live answer in its own element, the reader's place kept.

import { copyCode, MessageActions } from "./message_actions.js";
import { Drawing } from "./drawing.js";
import { element } from "./element.js";
import { iconButton } from "./icons.js";
import { t } from "./i18n.js";
import { LiveWriter } from "./live.js";
import { MessageView } from "./message.js";
import { splitReasoning } from "./reasoning.js";
import { Scroll } from "./scroll.js";
import { stateWords } from "./message_foot.js";
import { Toasts } from "./toasts.js";

const FIRST_DRAW_MS = 40;
const SPOKEN_CHARS = 2000;
const LOADING_AFTER_MS = 400;

// Draws what `state` (a ChatState) shows into the element; the element fills its nearest positioned ancestor.
export function mountConversation(container, state, { toasts = new Toasts() } = {}) {
  return new ConversationView(container, state, toasts);
}

class ConversationView {
  constructor(container, state, toasts) {
    this.container = container;
    this.state = state;
    this.shownId = undefined;
    this.views = new Map(); // message_id -> MessageView
    this.drawing = new Drawing();
    this.actions = new MessageActions(state, { toasts, viewOf: (id) => this.views.get(id), onAsk: () => this.scroll.toEnd() });
    addStyles(container);
    this.build();
    this.scroll = new Scroll(this.scroller, this.content);
    this.scroll.onChange = () => this.toEndButton.classList.toggle("is-shown", this.isAwayFromEnd);
    this.scroll.onTop = () => this.loadEarlier();
    this.live = new LiveWriter((until) => this.drawLive(until));
    state.addEventListener("conversation", () => this.draw());
    for (const name of ["pending", "preparation"]) state.addEventListener(name, () => this.drawPending());
    for (const name of ["live", "preparation", "engine", "connection"]) state.addEventListener(name, () => this.live.request());
    this.draw();
  }

  build() {
    this.earlier = element("button", { type: "button", class: "earlier", onclick: () => this.state.loadEarlier() });
    this.list = element("div", { class: "messages", role: "log", "aria-live": "off", "aria-label": t("message.conversation") });
    this.empty = element("div", { class: "empty" });
    this.content = element("div", { class: "content" }, this.earlier, this.empty, this.list);
    this.scroller = element("div", { class: "scroller", tabindex: "0" }, this.content);
    this.toEndButton = iconButton("end", t("message.to_end"), () => this.scroll.toEnd());
    this.toEndButton.classList.add("to-end");
    this.speaker = element("div", { class: "spoken", role: "status", "aria-live": "polite" });
    this.container.classList.add("conversation-view");
    this.container.replaceChildren(this.scroller, this.toEndButton, this.speaker);
    this.container.addEventListener("click", (event) => copyCode(event));
  }

  get isAwayFromEnd() {
    return !this.scroll.isFollowing && this.scroll.distance > 40;
  }

  // --- history ---

  draw() {
    if (this.state.conversationId !== this.shownId) this.begin();
    const { messages, conversation } = this.state;
    this.container.classList.toggle("is-busy", this.state.isAnswering);
    this.scroll.keeping(this.anchor(messages), () => {
      this.updateMessages(messages);
      this.earlier.hidden = !conversation?.num_earlier;
      if (conversation?.num_earlier) this.earlier.textContent = t("message.earlier", { count: conversation.num_earlier });
    });
    this.drawEmpty();
    this.drawing.run(FIRST_DRAW_MS);
    this.actions.restoreFocus();
    this.scroll.settle();
  }

  begin() {
    const { conversationId } = this.state;
    // A new conversation gets its id while its question is on the way.
    const isSame = this.shownId === null && this.state.pending !== null;
    this.shownId = conversationId;
    if (isSame) return;
    this.drawing.clear();
    this.views.clear();
    this.list.replaceChildren();
    this.speaker.textContent = "";
    this.scroll.isFollowing = true;
  }

  // The first message in sight that stays.
  anchor(messages) {
    const staying = messages.map((message) => this.views.get(message.message_id)?.element).filter(Boolean);
    const top = this.scroller.getBoundingClientRect().top;
    return staying.find((found) => found.getBoundingClientRect().bottom > top) ?? this.list;
  }

  updateMessages(messages) {
    const ids = new Set(messages.map((message) => message.message_id));
    for (const [id, view] of this.views) {
      if (ids.has(id)) continue;
      view.element.remove();
      this.views.delete(id);
    }
    const newViews = [];
    let before = this.list.firstElementChild;
    for (const [index, message] of messages.entries()) {
      const known = this.views.get(message.message_id);
      const view = known ?? new MessageView(message, this.actions, this.drawing);
      if (!known) newViews.push([view, message, index]);
      else this.updateKnown(view, message, index === messages.length - 1);
      this.views.set(message.message_id, view);
      if (view.element === before) before = before.nextElementSibling;
      else this.list.insertBefore(view.element, before);
    }
    // The newest first: that is where the reader is.
    for (const [view, message, index] of newViews.reverse()) view.update(message, { isLast: index === messages.length - 1 });
  }

  updateKnown(view, message, isLast) {
    const wasLive = view.message.state === "writing";
    view.update(message, { isLast });
    if (wasLive && message.state !== "writing") this.speak(message);
  }

  // Read aloud once, when it is finished.
  speak(message) {
    const { answer } = splitReasoning(message.text);
    this.speaker.textContent = [stateWords(message), answer.slice(0, SPOKEN_CHARS)].filter(Boolean).join(". ");
  }

  // By scrolling up to the beginning.
  loadEarlier() {
    if (!this.scroll.isFollowing && this.state.connection === "open") this.state.loadEarlier();
  }

  // --- the answer that is being written ---

  drawLive(until) {
    const { live } = this.state;
    const view = live && this.views.get(live.messageId);
    this.container.classList.toggle("is-busy", this.state.isAnswering);
    if (!view || view.message.state !== "writing") return true;
    return view.drawLive(live, this.state, until);
  }

  // --- a question on its way ---

  drawPending() {
    this.list.querySelector(":scope > .is-pending")?.remove();
    const { pending, messages } = this.state;
    const isAppended = pending && (pending.parentId === undefined || pending.parentId === (messages.at(-1)?.message_id ?? null));
    if (isAppended && !this.state.message(pending.questionId)) {
      const message = { message_id: pending.questionId, role: "user", text: pending.text, state: "done", variant_ids: [] };
      const view = new MessageView(message, this.actions, this.drawing);
      view.message = { ...message, cut: null };
      view.drawText(true);
      view.element.classList.add("is-pending");
      view.foot.append(element("p", { class: "state" }, this.pendingWords()));
      this.list.append(view.element);
      this.scroll.toEnd();
    }
    this.drawEmpty();
  }

  // A summary takes as long as an answer.
  pendingWords() {
    return t(this.state.preparation === "summarising" ? "message.summarising" : "message.sending");
  }

  // --- nothing there ---

  drawEmpty() {
    clearTimeout(this.loadingTimer);
    const { conversationId, conversation, messages, pending } = this.state;
    const isLoading = conversationId !== null && conversation === null;
    this.empty.hidden = isLoading || messages.length > 0 || pending !== null;
    this.empty.replaceChildren();
    if (isLoading && !pending) {
      this.loadingTimer = setTimeout(() => {
        this.empty.hidden = false;
        this.empty.replaceChildren(element("p", {}, t("message.loading")));
      }, LOADING_AFTER_MS);
    } else if (!this.empty.hidden) {
      this.empty.append(element("h2", {}, t("message.welcome")), element("p", {}, t("message.welcome_hint")));
    }
  }

  // Bring a message into sight, e.g. one that was searched for; returns whether the path has it.
  async reveal(messageId) {
    while (!this.state.message(messageId) && this.state.conversation?.num_earlier) {
      const numBefore = this.state.messages.length;
      await this.state.loadEarlier();
      if (this.state.messages.length === numBefore) break;
    }
    const view = this.views.get(messageId);
    if (!view) return false;
    this.scroll.follow(false);
    view.element.scrollIntoView({ block: "center" });
    view.element.classList.add("is-found");
    setTimeout(() => view.element.classList.remove("is-found"), 2500);
    return true;
  }
}

// Out of sight until they are there: without them everything would flash up in pieces.
function addStyles(container) {
  const href = new URL("conversation.css", import.meta.url).href;
  if (document.querySelector(`link[href="${href}"]`)) return;
  const show = () => (container.style.visibility = "");
  container.style.visibility = "hidden";
  document.head.append(element("link", { rel: "stylesheet", href, onload: show, onerror: show }));
}
