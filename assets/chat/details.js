// "Where the time went": a bar of waiting, reading the prompt and writing, and the reasons in plain words.

import { reasons, timeParts } from "./facts.js";
import { seconds } from "./figures.js";
import { t } from "./i18n.js";

const MIN_SHARE_PCT = 1; // so that a short part can still be seen

export function detailsPanel(facts, id) {
  const panel = document.createElement("div");
  panel.className = "details-panel";
  panel.id = id;
  panel.setAttribute("role", "group");
  panel.setAttribute("aria-label", t("details.title"));
  panel.append(withText("div", "details-title", t("details.title")));
  const parts = timeParts(facts);
  if (parts.length) panel.append(bar(parts), legend(parts));
  const list = document.createElement("ul");
  list.append(...reasons(facts).map((reason) => withText("li", "", reason)));
  if (list.childElementCount) panel.append(list);
  if (!parts.length && !list.childElementCount) panel.append(withText("p", "", t("details.nothing")));
  return panel;
}

function bar(parts) {
  const total = parts.reduce((sum, part) => sum + part.seconds, 0) || 1;
  const element = document.createElement("div");
  element.className = "time-bar";
  element.setAttribute("aria-hidden", "true"); // the legend says the same
  for (const part of parts) {
    const piece = document.createElement("span");
    piece.className = `time-${part.name}`;
    piece.style.flexGrow = Math.max((part.seconds / total) * 100, part.seconds > 0 ? MIN_SHARE_PCT : 0);
    element.append(piece);
  }
  return element;
}

function legend(parts) {
  const element = document.createElement("dl");
  element.className = "time-legend";
  for (const part of parts) {
    const row = document.createElement("div");
    row.className = `time-${part.name}`;
    row.append(withText("dt", "", t(`details.${part.name}`)), withText("dd", "", seconds(part.seconds)));
    element.append(row);
  }
  return element;
}

function withText(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}
