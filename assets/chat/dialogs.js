// Dialogs on the browser's own <dialog>: it keeps the focus inside, closes on Escape and gives the focus back.

import { element } from "./element.js";
import { t } from "./i18n.js";

let numDialogs = 0; // for ids only

/** `buttons`: [{value, label, isPrimary}]. Resolves with the pressed button's value, or null. */
export function showDialog({ title, content, buttons = [], cancelLabel = t("dialog.cancel") }) {
  const id = `dialog-title-${(numDialogs += 1)}`;
  const cancel = element("button", { type: "submit", value: "", formnovalidate: true }, cancelLabel);
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", { id }, title),
    element("div", { class: "dialog-content" }, ...content),
    element("div", { class: "dialog-buttons" }, cancel, ...buttons.map(buttonOf)),
  );
  const dialog = element("dialog", { class: "hearth-dialog", "aria-labelledby": id }, form);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close(""));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue || null);
    });
  });
}

/** Ask for a line of text; null where the person cancelled. */
export async function askForText({ title, value = "", save = t("dialog.save"), maxLength = 80 }) {
  const input = element("input", { type: "text", value, maxlength: maxLength, required: true, "aria-label": title });
  const enter = (event) => {
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    input.form.querySelector("[value=save]").click();
  };
  input.addEventListener("keydown", enter);
  const shown = showDialog({ title, content: [input], buttons: [{ value: "save", label: save, isPrimary: true }] });
  input.focus();
  input.select();
  const pressed = await shown;
  return pressed === "save" ? input.value.trim() || null : null;
}

export function isDialogOpen() {
  return document.querySelector("dialog[open]") !== null;
}

function buttonOf({ value, label, isPrimary = false }) {
  return element("button", { type: "submit", value, class: isPrimary ? "primary" : null }, label);
}
