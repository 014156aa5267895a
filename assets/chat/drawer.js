// The side: a drawer on a phone, a column that can be put away on a wide screen.

import { t } from "./i18n.js";
import { Storage } from "./storage.js";

const KEY = "hearth.side";
const CHOICES = "#new-chat, .chat-link, .search-hit";

export class Drawer {
  constructor({ side, toggle, storage = new Storage("localStorage") }) {
    Object.assign(this, { side, toggleButton: toggle, storage });
    this.phone = matchMedia("(max-width: 760px)");
    side.setAttribute("role", "complementary");
    side.setAttribute("aria-label", t("side.label"));
    toggle.setAttribute("aria-label", t("side.toggle"));
    toggle.setAttribute("aria-controls", side.id);
    toggle.addEventListener("click", () => this.toggle());
    document.addEventListener("click", (event) => this.onClick(event));
    side.addEventListener("keydown", (event) => this.onKey(event));
    this.phone.addEventListener("change", () => this.show(false));
    side.classList.toggle("away", storage.read(KEY) === "away");
    this.tell();
  }

  get isShown() {
    return this.phone.matches ? this.side.classList.contains("open") : !this.side.classList.contains("away");
  }

  toggle() {
    if (this.phone.matches) this.show(!this.isShown);
    else this.putAway(this.isShown);
  }

  /** So that what is in it can be seen. */
  reveal() {
    if (this.phone.matches) this.show(true);
    else this.putAway(false);
  }

  show(isOpen) {
    this.side.classList.toggle("open", isOpen);
    this.tell();
  }

  putAway(isAway) {
    this.side.classList.toggle("away", isAway);
    this.storage.write(KEY, isAway ? "away" : null);
    this.tell();
  }

  tell() {
    this.toggleButton.setAttribute("aria-expanded", String(this.isShown));
  }

  onClick({ target }) {
    if (!this.side.classList.contains("open") || !target.isConnected) return;
    const isInside = target.closest("#side, #side-toggle, .hearth-menu, dialog, .toasts");
    if (!isInside || target.closest(CHOICES)) this.show(false);
  }

  onKey(event) {
    if (event.key !== "Escape" || !this.phone.matches) return;
    event.stopPropagation();
    this.show(false);
    this.toggleButton.focus();
  }
}
