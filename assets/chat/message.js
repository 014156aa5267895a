// One message: its text, what is said about it, and its foot. Draws again only what has changed.

import { AnswerBody } from "./answer_body.js";
import { editBox, focusEditBox } from "./edit_box.js";
import { element } from "./element.js";
import { t } from "./i18n.js";
import { messageFoot } from "./message_foot.js";
import { drawQuestion } from "./question_body.js";
import { waitingText } from "./waiting.js";

export class MessageView {
  constructor(message, host, drawing) {
    this.host = host;
    this.drawing = drawing;
    this.isAnswer = message.role === "assistant";
    this.message = null;
    this.footKey = null;
    this.box = null; // the edit box
    const name = this.isAnswer ? "answer" : "question";
    this.element = element("article", {
      class: `message is-${name}`, "data-message-id": message.message_id, "aria-label": t(`message.${name}`),
    });
    this.text = element("div", { class: "text" });
    this.foot = element("div", { class: "foot" });
    this.element.append(this.text, this.foot);
    if (this.isAnswer) this.body = new AnswerBody(this.text, drawing);
  }

  update(message, { isLast }) {
    const old = this.message;
    this.message = message;
    const isLive = message.state === "writing";
    this.element.classList.toggle("is-live", isLive);
    // The browser need not lay out history that is out of sight. What was written here is laid out already.
    if (!old && !isLive) this.element.classList.add("is-history");
    if (isLive) this.waiting ??= this.addWaiting();
    else this.removeWaiting();
    const isNew = !old || old.text !== message.text || old.state !== message.state;
    if (!isLive && isNew) this.drawText(!old);
    this.updateCut(old);
    const footKey = JSON.stringify([message.state, message.facts, message.variant_ids, !message.text, isLast]);
    if (footKey !== this.footKey && !isLive) this.drawFoot(isLast);
    this.footKey = isLive ? null : footKey;
    if (isLive) this.foot.replaceChildren();
  }

  drawText(isFirst) {
    const { message } = this;
    if (!this.isAnswer) {
      drawQuestion(this.text, message.text, this.drawing);
      return;
    }
    if (isFirst) this.body.showPlain(message.text);
    const job = (until) => this.message !== message && this.message.text !== message.text
      ? true
      : this.body.draw(message.text, { isLive: false, until });
    if (isFirst) this.drawing.add(job);
    else if (!job(performance.now() + 30)) this.drawing.add(job);
  }

  drawFoot(isLast) {
    const isFocused = this.foot.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    const foot = messageFoot(this.message, { host: this.host, isLast });
    this.foot.replaceWith(foot);
    this.foot = foot;
    if (isFocused) foot.querySelector(`[data-action="${isFocused}"]`)?.focus({ preventScroll: true });
  }

  // --- an answer that is being written ---

  // Returns whether all of it is drawn.
  drawLive(live, state, until) {
    this.drawWaiting(live, state);
    return this.body.draw(live.text, { isLive: true, until });
  }

  drawWaiting(live, state) {
    if (!this.waiting) return;
    const text = waitingText(live, state);
    if (this.waiting.lastChild.textContent !== text) this.waiting.lastChild.textContent = text;
    this.waiting.dataset.phase = live.phase ?? "";
  }

  addWaiting() {
    const waiting = element("div", { class: "waiting" }, element("span", { class: "pulse", "aria-hidden": "true" }), element("span"));
    this.foot.before(waiting);
    this.element.setAttribute("aria-busy", "true");
    return waiting;
  }

  removeWaiting() {
    this.waiting?.remove();
    this.waiting = null;
    this.element.removeAttribute("aria-busy");
  }

  // --- a question from which on the model gets less ---

  updateCut(old) {
    const { cut } = this.message;
    if (old && JSON.stringify(old.cut) === JSON.stringify(cut)) return;
    this.element.querySelector(":scope > .cut")?.remove();
    if (cut) this.element.prepend(cutDivider(cut));
  }

  // --- editing ---

  edit(onSave) {
    if (this.box) return;
    const close = () => {
      this.box?.remove();
      this.box = null;
      this.element.classList.remove("is-edited");
      this.foot.querySelector('[data-action="edit"]')?.focus({ preventScroll: true });
    };
    this.box = editBox({ text: this.message.text, isQuestion: !this.isAnswer, onSave, onClose: close });
    this.element.classList.add("is-edited");
    this.text.after(this.box);
    focusEditBox(this.box);
  }
}

function cutDivider({ num_left_out: count, summary }) {
  const divider = element("div", { class: "cut", role: "note" });
  const text = t(summary ? "message.cut_summary" : "message.cut", { count });
  if (!summary) {
    divider.append(element("span", {}, text));
    return divider;
  }
  divider.append(
    element("details", {}, element("summary", {}, text), element("p", { dir: "auto" }, summary)),
  );
  return divider;
}
