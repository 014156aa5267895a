// The list of conversations in the side: all of them in groups, the archived ones, or what a search found.

import { api } from "./api.js";
import { ChatRow } from "./chat_row.js";
import { element } from "./element.js";
import { grouped, newestFirst } from "./groups.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";
import { SearchResults } from "./search_results.js";

const REDRAW_EVERY_MS = 60_000; // "today" ends at midnight
const REFETCH_WAIT_MS = 200;

export class ChatList {
  /** `open(conversationId, messageId)`; `actions`: ChatActions. */
  constructor(root, state, { open, actions, toasts }) {
    Object.assign(this, { root, state, open, actions, toasts });
    this.rows = new Map(); // conversation_id -> ChatRow
    this.archived = null; // its entries while they are shown
    this.search = new SearchResults({ open, redraw: () => this.redraw() });
    this.head = element("div", { class: "list-head" });
    this.body = element("div", { class: "list-body" });
    this.root.append(this.head, this.body);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    state.addEventListener("entries", () => this.onEntries());
    state.events.addEventListener("entry_gone", () => this.onEntries()); // an archived one, too
    state.addEventListener("conversation", () => this.redraw());
    setInterval(() => this.redraw(), REDRAW_EVERY_MS);
    this.redraw();
  }

  onEntries() {
    this.redraw();
    if (this.archived) this.refetchArchived();
    this.search.refresh();
  }

  get isArchiveShown() {
    return this.archived !== null;
  }

  async showArchived(isShown) {
    this.archived = isShown ? [] : null;
    this.redraw();
    if (isShown) await this.fetchArchived();
  }

  refetchArchived() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetchArchived(), REFETCH_WAIT_MS);
  }

  async fetchArchived() {
    try {
      const { entries } = await api.get("conversations?archived=1");
      if (this.archived) this.archived = entries.filter((entry) => entry.is_archived);
      this.redraw();
    } catch (error) {
      this.toasts.show(problemText(error));
    }
  }

  /** The one before (-1) or after (1) the open conversation, as the list shows them. */
  neighbour(step) {
    const ids = this.links().map((link) => link.parentElement.dataset.id);
    const at = ids.indexOf(this.state.conversationId);
    if (at < 0) return ids[0] ?? null;
    return ids[at + step] ?? null;
  }

  links() {
    return [...this.body.querySelectorAll("a")];
  }

  // --- drawing: once for all that changes in one go ---

  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    queueMicrotask(() => {
      this.isDue = false;
      this.draw();
    });
  }

  draw() {
    if (this.search.isActive) {
      this.head.replaceChildren(element("p", { role: "status", class: "list-note" }, this.search.summary));
      keepChildren(this.body, [this.search.node]);
      return;
    }
    this.head.replaceChildren(...this.headNodes());
    keepChildren(this.body, this.sections());
  }

  headNodes() {
    if (!this.isArchiveShown) return [];
    const back = element("button", { type: "button", class: "list-back" }, `← ${t("list.back")}`);
    back.addEventListener("click", () => this.showArchived(false));
    return [back];
  }

  sections() {
    const groups = this.isArchiveShown
      ? [{ key: "list.archived", entries: newestFirst(this.archived) }].filter(({ entries }) => entries.length)
      : grouped(this.state.entries.values(), new Date());
    this.forgetRows(groups);
    if (groups.length) return groups.map((group) => this.section(group));
    return [element("p", { class: "list-note" }, t(this.isArchiveShown ? "list.empty_archive" : "list.empty"))];
  }

  section({ key, entries }) {
    const known = [...this.body.children].find((child) => child.dataset.key === key);
    const section = known ?? this.newSection(key);
    keepChildren(section.lastChild, entries.map((entry) => this.row(entry).node));
    return section;
  }

  newSection(key) {
    const list = element("ul", { "aria-label": t(key) });
    return element("section", { "data-key": key }, element("h3", {}, t(key)), list);
  }

  row(entry) {
    const { conversation_id: id } = entry;
    const isOpen = id === this.state.conversationId;
    if (this.rows.has(id)) {
      this.rows.get(id).update(entry, isOpen);
    } else {
      this.rows.set(id, new ChatRow(entry, { open: this.open, actions: this.actions }));
      this.rows.get(id).node.dataset.id = id;
      this.rows.get(id).update(entry, isOpen);
    }
    return this.rows.get(id);
  }

  forgetRows(groups) {
    const shown = new Set(groups.flatMap(({ entries }) => entries.map((entry) => entry.conversation_id)));
    for (const id of this.rows.keys()) if (!shown.has(id)) this.rows.delete(id);
  }

  onKey(event) {
    const links = this.links();
    const at = links.indexOf(document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    links[Math.min(Math.max(to, 0), links.length - 1)].focus();
  }
}

/** Give a node these children; those that stay in place are not touched, and the focus stays. */
function keepChildren(parent, nodes) {
  const focused = document.activeElement;
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
  while (parent.children.length > nodes.length) parent.lastChild.remove();
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}
