// One line of the list: the title as a link, a dot while an answer is written, and the button of its menu.

import { hashOf } from "./address.js";
import { element } from "./element.js";
import { t } from "./i18n.js";
import { openMenu } from "./menu.js";

const MAX_TITLE = 200;

export class ChatRow {
  /** `open(id)`; `actions`: ChatActions. */
  constructor(entry, { open, actions }) {
    this.actions = actions;
    this.id = entry.conversation_id;
    this.title = element("span", { class: "chat-title", dir: "auto" });
    this.dot = element("span", { class: "chat-dot", role: "img", "aria-label": t("list.answering") });
    this.link = element("a", { href: hashOf(this.id), class: "chat-link", draggable: "false" }, this.title, this.dot);
    this.link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return this.openElsewhere(event);
      event.preventDefault();
      return open(this.id);
    });
    this.menuButton = element("button", { type: "button", class: "chat-menu", "aria-haspopup": "menu" }, "⋯");
    this.menuButton.addEventListener("click", () => openMenu(this.menuButton, this.menuItems()));
    this.node = element("li", { class: "chat-row" }, this.link, this.menuButton);
    this.node.addEventListener("keydown", (event) => this.onKey(event));
    this.update(entry, false);
  }

  update(entry, isOpen) {
    this.entry = entry;
    if (this.title.textContent !== entry.title) this.title.textContent = entry.title;
    this.link.title = entry.title;
    this.dot.hidden = !entry.is_answering;
    this.node.classList.toggle("open", isOpen);
    if (isOpen) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    this.menuButton.setAttribute("aria-label", t("list.menu", { title: entry.title }));
  }

  // The page has a <base>, so the link itself would lose the query.
  openElsewhere(event) {
    event.preventDefault();
    window.open(location.pathname + location.search + hashOf(this.id), "_blank", "noopener");
  }

  menuItems() {
    const { entry, actions } = this;
    const { is_pinned: isPinned, is_archived: isArchived } = entry;
    return [
      { label: t("list.rename"), act: () => this.rename() },
      !isArchived && { label: t(isPinned ? "list.unpin" : "list.pin"), act: () => actions.pin(entry, !isPinned) },
      { label: t(isArchived ? "list.unarchive" : "list.archive"), act: () => actions.archive(entry, !isArchived) },
      "-",
      { label: t("list.export_md"), act: () => actions.export(entry, "md") },
      { label: t("list.export_json"), act: () => actions.export(entry, "json") },
      "-",
      { label: t("list.delete"), act: () => actions.delete(entry), isDanger: true },
    ].filter(Boolean);
  }

  /** In place: Enter or leaving the box keeps the new title, Escape the old one. */
  rename() {
    const box = element("input", {
      type: "text",
      class: "chat-rename",
      value: this.entry.title,
      maxlength: MAX_TITLE,
      "aria-label": t("list.rename_label"),
    });
    let isEnded = false;
    const end = (isKept) => {
      if (isEnded) return; // taking the box away blurs it
      isEnded = true;
      const hadFocus = document.activeElement === box;
      const title = box.value.trim();
      this.node.classList.remove("renaming");
      box.remove();
      if (hadFocus) this.link.focus();
      if (isKept && title && title !== this.entry.title) this.actions.rename(this.entry, title);
    };
    box.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault(); // or the Enter would open the link that gets the focus
      end(event.key === "Enter");
    });
    box.addEventListener("blur", () => end(true));
    this.node.classList.add("renaming");
    this.node.prepend(box);
    box.focus();
    box.select();
  }

  onKey(event) {
    if (event.target !== this.link || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "F2") this.rename();
    else if (event.key === "Delete") this.actions.delete(this.entry);
    else return;
    event.preventDefault();
  }
}
