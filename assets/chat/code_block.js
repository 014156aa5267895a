// A block of code: its language, a button that copies it (see copy.js), and the code, which scrolls in itself.

import { t } from "./i18n.js";

export function codeBlock(code, language) {
  const block = document.createElement("div");
  block.className = "code-block";
  block.dir = "ltr";
  const head = document.createElement("div");
  head.className = "code-head";
  const name = document.createElement("span");
  name.textContent = language || t("message.code");
  const copy = document.createElement("button");
  copy.type = "button";
  copy.dataset.copies = "code";
  copy.textContent = t("message.copy");
  copy.setAttribute("aria-label", t("message.copy_code"));
  head.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  const inner = document.createElement("code");
  inner.textContent = code;
  if (language) inner.dataset.language = language.toLowerCase();
  pre.append(inner);
  block.append(head, pre);
  return block;
}
