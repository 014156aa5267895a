// Edits a message in its place. A question is sent again as a branch, an answer is kept as a variant.

import { t } from "./i18n.js";

let lastNumber = 0;

// `onSave(text)` resolves to whether it worked: the box stays open, with its text, where it did not.
export function editBox({ text, isQuestion, onSave, onClose }) {
  const box = document.createElement("form");
  box.className = "edit-box";
  const area = document.createElement("textarea");
  area.value = text;
  area.dir = "auto";
  area.setAttribute("aria-label", t(isQuestion ? "message.edit_question" : "message.edit_answer"));
  const hint = document.createElement("p");
  hint.id = `edit-hint-${(lastNumber += 1)}`;
  hint.textContent = t(isQuestion ? "message.edit_question_hint" : "message.edit_answer_hint");
  area.setAttribute("aria-describedby", hint.id);
  const save = button("submit", t(isQuestion ? "message.send_edit" : "message.save_edit"), "primary");
  const cancel = button("button", t("message.cancel"), "");
  const buttons = document.createElement("div");
  buttons.className = "edit-buttons";
  buttons.append(hint, cancel, save);
  box.append(area, buttons);

  area.addEventListener("input", () => grow(area));
  area.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229) return; // the Enter that ends a composition
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      onClose();
    }
    const isSaving = event.key === "Enter" && (event.ctrlKey || event.metaKey || (isQuestion && !event.shiftKey));
    if (!isSaving) return;
    event.preventDefault();
    box.requestSubmit();
  });
  cancel.addEventListener("click", onClose);
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!area.value.trim() || save.disabled) return;
    save.disabled = true;
    const isSaved = await onSave(area.value);
    save.disabled = false;
    if (isSaved) onClose();
  });
  return box;
}

// Once it is in the page.
export function focusEditBox(box) {
  const area = box.querySelector("textarea");
  grow(area);
  area.focus({ preventScroll: true });
  area.setSelectionRange(area.value.length, area.value.length);
  box.scrollIntoView({ block: "nearest" });
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

function button(type, text, className) {
  const made = document.createElement("button");
  made.type = type;
  made.textContent = text;
  made.className = className;
  return made;
}
