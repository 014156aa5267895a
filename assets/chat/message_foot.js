// What is under a message: how an answer ended, its figures with their explanation, and what can be done with it.

import { detailsPanel } from "./details.js";
import { element } from "./element.js";
import { factsLine } from "./facts.js";
import { t } from "./i18n.js";
import { icon, iconButton } from "./icons.js";
import { variantArrows } from "./variants.js";

// `host` has the actions: copy, edit, regenerate, continue, delete (message) and select(messageId, action).
export function messageFoot(message, { host, isLast }) {
  const words = stateWords(message);
  const row = element("div", { class: "foot-row" }, variantArrows(message, { onSelect: host.select }));
  const foot = element("div", { class: "foot" }, words && element("p", { class: `state is-${message.state}` }, words), row);
  if (message.facts) addFigures(row, foot, message);
  row.append(actions(message, host, isLast));
  return foot;
}

export function stateWords({ role, state, facts, text }) {
  if (role !== "assistant") return null;
  if (state === "failed") return facts?.error ? t("message.failed", { reason: facts.error }) : t("message.failed_unknown");
  if (state === "stopped") return [t("message.stopped"), facts?.error].filter(Boolean).join(" · ");
  if (state === "interrupted") return t("message.interrupted");
  if (facts?.finish_reason === "length") return t("message.length");
  return state === "done" && !text.trim() ? t("message.empty") : null;
}

export function isCut({ role, state, facts }) {
  if (role !== "assistant") return false;
  return ["stopped", "failed", "interrupted"].includes(state) || facts?.finish_reason === "length";
}

function actions(message, host, isLast) {
  const isAnswer = message.role === "assistant";
  const group = element("span", { class: "actions", role: "group", "aria-label": t("message.actions") });
  const add = (name, label, needsIdle = true) => {
    const button = iconButton(name, label, () => host[name](message, button));
    button.classList.toggle("needs-idle", needsIdle);
    group.append(button);
  };
  add("copy", t("message.copy_message"), false);
  add("edit", t(isAnswer ? "message.edit_answer" : "message.edit_question"));
  if (isAnswer || isLast) add("regenerate", t("message.regenerate"));
  if (isCut(message)) add("continue", t("message.continue"));
  add("delete", t("message.delete"));
  return group;
}

function addFigures(row, foot, { message_id: id, facts }) {
  const line = factsLine(facts) || t("details.title");
  const panelId = `details-${id}`;
  const button = element("button", {
    type: "button", class: "figures", "aria-expanded": "false", "aria-controls": panelId, title: t("details.open"),
  }, line);
  button.addEventListener("click", () => {
    const panel = foot.querySelector(".details-panel");
    button.setAttribute("aria-expanded", String(!panel));
    if (panel) panel.remove();
    else foot.append(detailsPanel(facts, panelId));
  });
  row.append(button);
}

// Says for a moment that it worked.
export function showDone(button) {
  button.replaceChildren(icon("done"));
  setTimeout(() => button.replaceChildren(icon(button.dataset.action)), 1500);
}
