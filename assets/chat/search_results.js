// What a search over titles and texts found, with the words marked.

import { hashOf } from "./address.js";
import { api } from "./api.js";
import { element } from "./element.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";

const WAIT_MS = 150;
const REFRESH_WAIT_MS = 500;

export class SearchResults {
  /** `open(conversationId, messageId)`; `redraw()` when something else is to be shown. */
  constructor({ open, redraw }) {
    Object.assign(this, { open, redraw });
    this.words = "";
    this.summary = "";
    this.turn = 0; // an answer that comes late belongs to an earlier turn
    this.node = element("ul", { class: "search-hits" });
  }

  get isActive() {
    return this.words !== "";
  }

  look(words) {
    this.words = words.trim();
    this.turn += 1;
    clearTimeout(this.timer);
    if (this.isActive) this.timer = setTimeout(() => this.fetch(this.turn), WAIT_MS);
    else this.show("", []);
  }

  // The conversations have changed meanwhile.
  refresh() {
    if (!this.isActive) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(this.turn), REFRESH_WAIT_MS);
  }

  async fetch(turn) {
    const { words } = this;
    try {
      const { hits } = await api.get(`search?q=${encodeURIComponent(words)}`);
      if (turn !== this.turn) return;
      const summary = hits.length ? t("search.found", { count: hits.length }) : t("search.none", { words });
      this.show(summary, hits);
    } catch (error) {
      if (turn === this.turn) this.show(problemText(error), []);
    }
  }

  show(summary, hits) {
    this.summary = summary;
    this.node.replaceChildren(...hits.map((hit) => this.hitNode(hit)));
    this.redraw();
  }

  hitNode(hit) {
    const link = element(
      "a",
      { href: hashOf(hit.conversation_id), class: "search-hit" },
      element("span", { class: "chat-title", dir: "auto" }, hit.message_id === null ? marked(hit) : hit.title),
      hit.message_id === null ? "" : element("span", { class: "search-excerpt", dir: "auto" }, marked(hit)),
    );
    link.addEventListener("click", (event) => {
      event.preventDefault();
      this.open(hit.conversation_id, hit.message_id);
    });
    return element("li", { "data-id": hit.conversation_id }, link);
  }
}

function marked({ excerpt, hit_start: start, hit_end: end }) {
  const parts = document.createDocumentFragment();
  parts.append(excerpt.slice(0, start), element("mark", {}, excerpt.slice(start, end)), excerpt.slice(end));
  return parts;
}
