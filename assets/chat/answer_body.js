// The text of an answer: what the model thought, folded away, and what it says.

import { splitReasoning } from "./reasoning.js";
import { RenderedText } from "./rendered_text.js";
import { textLanguage } from "./text_language.js";
import { t } from "./i18n.js";

const PREVIEW_CHARS = 160;

export class AnswerBody {
  constructor(element, drawing) {
    this.drawing = drawing;
    this.element = element;
    this.thinking = null; // {details, summary, preview, text}
    this.answer = document.createElement("div");
    this.answer.className = "markdown";
    this.rendered = new RenderedText(this.answer, drawing);
    element.append(this.answer);
  }

  // The text as it is, until there is time to draw it.
  showPlain(text) {
    this.answer.textContent = splitReasoning(text).answer;
  }

  // Returns whether all is drawn.
  draw(text, { isLive, until = Infinity }) {
    const parts = splitReasoning(text, { isLive });
    this.drawThinking(parts, isLive);
    const lang = textLanguage(parts.answer);
    if (lang) this.answer.lang = lang;
    return this.rendered.draw(parts.answer, { isFinal: !isLive, until });
  }

  drawThinking({ thinking, isThinking }, isLive) {
    if (!thinking && !(isThinking && isLive)) {
      this.thinking?.details.remove();
      this.thinking = null;
      return;
    }
    this.thinking ??= this.makeThinking();
    const isMoving = isThinking && isLive;
    const { details, title, preview } = this.thinking;
    details.classList.toggle("is-moving", isMoving);
    title.textContent = t(isMoving ? "message.thinking_now" : "message.thinking");
    preview.textContent = isMoving ? thinking.slice(-PREVIEW_CHARS).replaceAll("\n", " ") : "";
    this.thinking.text = thinking;
    this.thinking.isMoving = isMoving;
    if (details.open) this.drawThoughts();
  }

  // Only while it is open: most of it is never read.
  drawThoughts() {
    const { rendered, text, isMoving, drawnText } = this.thinking;
    if (drawnText === text && !isMoving) return;
    rendered.draw(text, { isFinal: !isMoving });
    this.thinking.drawnText = isMoving ? null : text;
  }

  makeThinking() {
    const details = document.createElement("details");
    details.className = "thinking";
    const summary = document.createElement("summary");
    const title = document.createElement("span");
    title.className = "thinking-title";
    const preview = document.createElement("span");
    preview.className = "thinking-preview";
    preview.setAttribute("aria-hidden", "true");
    const thoughts = document.createElement("div");
    thoughts.className = "thoughts markdown";
    summary.append(title, preview);
    details.append(summary, thoughts);
    details.addEventListener("toggle", () => details.open && this.drawThoughts());
    this.element.prepend(details);
    return { details, title, preview, rendered: new RenderedText(thoughts, this.drawing), text: "" };
  }
}
