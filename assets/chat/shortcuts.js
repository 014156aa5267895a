// Keys for what is done often, and their list. Alt+Shift is left alone by browsers for these letters.

import { isDialogOpen, showDialog } from "./dialogs.js";
import { element } from "./element.js";
import { t } from "./i18n.js";

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgentData?.platform ?? navigator.platform);
const FIELDS = "input, textarea, select, [contenteditable]";
const KEYS = [
  ["N", "new_chat"],
  ["S", "search"],
  ["M", "write"],
  ["C", "copy"],
  ["R", "regenerate"],
  ["ArrowUp", "previous"],
  ["ArrowDown", "next"],
  ["L", "side"],
  ["D", "dark"],
];
const ARROWS = { ArrowUp: "↑", ArrowDown: "↓" };

export class Shortcuts {
  /** `actions`: a function for each name in KEYS, and `stop`, which says whether there was something to stop. */
  constructor(actions) {
    this.actions = actions;
    addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.defaultPrevented || event.isComposing || isDialogOpen()) return;
    const act = this.actFor(event);
    if (act && act() !== false) event.preventDefault();
  }

  actFor(event) {
    const { altKey, ctrlKey, metaKey, shiftKey, key } = event;
    if (altKey && shiftKey && !ctrlKey && !metaKey) return this.actions[nameFor(event)];
    if (key === "Escape" && !altKey && !ctrlKey && !metaKey) return this.actions.stop;
    if (key === "/" && ctrlKey && !altKey && !metaKey) return () => this.showList();
    if (key === "?" && !altKey && !ctrlKey && !metaKey && !event.target.closest?.(FIELDS)) return () => this.showList();
    return undefined;
  }

  showList() {
    const rows = [
      [["Enter"], "send"],
      [["Shift", "Enter"], "line"],
      ...KEYS.map(([key, name]) => [["Alt", "Shift", ARROWS[key] ?? key], name]),
      [["Esc"], "stop"],
      [["Ctrl", "/"], "help"],
    ];
    const list = element("dl", { class: "shortcut-list" });
    for (const [keys, name] of rows) {
      list.append(element("dt", {}, t(`shortcuts.${name}`)), element("dd", {}, ...caps(keys)));
    }
    showDialog({ title: t("shortcuts.title"), content: [list], cancelLabel: t("dialog.close") });
  }
}

/** As the keys are named on this machine's keyboard. */
export function keyNames(keys, isMac = IS_MAC) {
  const names = { Alt: "⌥", Shift: "⇧", Ctrl: "⌃", Enter: "⏎" };
  return isMac ? keys.map((key) => names[key] ?? key) : keys;
}

function caps(keys) {
  return keyNames(keys).map((key) => element("kbd", {}, key));
}

// Option makes other characters on a Mac, and other scripts have no Latin letters: then the key's place counts.
function nameFor({ key, code }) {
  const isLatin = /^[A-Za-z]$/.test(key) || key.startsWith("Arrow");
  const pressed = isLatin ? key : code.replace(/^Key/, "");
  return KEYS.find(([wanted]) => wanted.toLowerCase() === pressed.toLowerCase())?.[1];
}
