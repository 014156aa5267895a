// Short notices in a corner. They go by themselves, but not while somebody points at them or reads them by keyboard.

import { element } from "./element.js";
import { t } from "./i18n.js";

const MAX_TOASTS = 4;
const LASTS_MS = 6000;

export class Toasts {
  constructor() {
    this.root = element("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(this.root);
  }

  /** `action`: {label, act}. `lines` are shown below the text. Returns a function that takes it away. */
  show(text, { action = null, lines = [], lastsMs = LASTS_MS } = {}) {
    if (!action) this.removeRepeated(text);
    while (this.root.children.length >= MAX_TOASTS) this.root.firstChild.remove();
    const toast = element("div", { class: "toast" });
    const remove = () => toast.remove();
    const act = () => {
      remove();
      action.act();
    };
    toast.append(
      element("div", { class: "toast-text" }, text, listOf(lines)),
      action ? element("button", { type: "button", class: "toast-action", onclick: act }, action.label) : "",
      element("button", { type: "button", class: "toast-close", "aria-label": t("toast.dismiss"), onclick: remove }, "×"),
    );
    this.root.append(toast);
    countDown(toast, lastsMs, remove);
    return remove;
  }

  // Gradio's Dropdown tells its choice twice. A notice with an action is another one each time.
  removeRepeated(text) {
    const isSame = (toast) => toast.textContent === `${text}×`;
    [...this.root.children].find(isSame)?.remove();
  }
}

function listOf(lines) {
  if (lines.length === 0) return "";
  return element("ul", {}, ...lines.map((line) => element("li", {}, line)));
}

function countDown(toast, lastsMs, remove) {
  let timer = setTimeout(remove, lastsMs);
  const hold = () => clearTimeout(timer);
  const release = () => {
    clearTimeout(timer);
    timer = setTimeout(remove, lastsMs);
  };
  toast.addEventListener("pointerenter", hold);
  toast.addEventListener("pointerleave", release);
  toast.addEventListener("focusin", hold);
  toast.addEventListener("focusout", release);
}
