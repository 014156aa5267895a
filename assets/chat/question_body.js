// The text of a question: as it was typed, with its line breaks; fenced code as code. A long one is folded.

import { codeBlock } from "./code_block.js";
import { highlightJobs, loadHighlighter } from "./highlight.js";
import { textLanguage } from "./text_language.js";
import { t } from "./i18n.js";

const FOLDED_CHARS = 2500;
const FOLDED_LINES = 30;
const FENCE = /^(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n([\s\S]*?)^\1[ \t]*$\n?/gm;

export function drawQuestion(element, text, drawing) {
  const parts = partsOf(text);
  const isLong = text.length > FOLDED_CHARS || text.split("\n", FOLDED_LINES + 1).length > FOLDED_LINES;
  const content = document.createElement("div");
  content.className = "question-text";
  content.lang = textLanguage(text) ?? "";
  if (!content.lang) content.removeAttribute("lang");
  content.append(...parts);
  element.replaceChildren(content);
  if (isLong) element.append(foldButton(content));
  const jobs = highlightJobs(parts);
  if (jobs.length) loadHighlighter().then(() => jobs.forEach((job) => drawing.add(job)));
}

function partsOf(text) {
  const source = text.replace(/\r\n?/g, "\n");
  const parts = [];
  let position = 0;
  for (const match of source.matchAll(FENCE)) {
    parts.push(...plain(source.slice(position, match.index)), codeBlock(match[3].replace(/\n$/, ""), match[2]));
    position = match.index + match[0].length;
  }
  parts.push(...plain(source.slice(position)));
  return parts;
}

function plain(text) {
  if (!text.trim()) return [];
  const part = document.createElement("p");
  part.dir = "auto";
  part.textContent = text.replace(/^\n+|\s+$/g, "");
  return [part];
}

function foldButton(content) {
  content.classList.add("is-folded");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "fold";
  const show = () => {
    const isFolded = content.classList.contains("is-folded");
    button.textContent = t(isFolded ? "message.show_all" : "message.show_less");
    button.setAttribute("aria-expanded", String(!isFolded));
  };
  button.addEventListener("click", () => {
    content.classList.toggle("is-folded");
    show();
  });
  show();
  return button;
}
