// A Markdown text in an element, which may grow. Blocks that can no longer change are drawn once; only the last
// one is drawn again when more text comes.

import { blockStarts, markdownNodes, referencesOf } from "./markdown.js";
import { highlightJobs, loadHighlighter } from "./highlight.js";
import { morphChildren } from "./morph.js";

const CHUNK_CHARS = 1500; // blocks are drawn in groups of about this size, between two looks at the clock

export class RenderedText {
  constructor(element, drawing) {
    this.element = element;
    this.drawing = drawing;
    this.reset();
  }

  reset() {
    this.done = ""; // the text of the blocks that are final
    this.numDoneNodes = 0;
    this.references = {};
    this.isComplete = false;
  }

  // Draws until the time is up (performance.now()); returns whether all of the text is drawn.
  draw(text, { isFinal = true, until = Infinity } = {}) {
    const source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!source.startsWith(this.done) || this.isComplete) this.reset();
    if (isFinal) this.learnReferences(source);
    const rest = source.slice(this.done.length);
    const starts = blockStarts(rest);
    const end = isFinal ? rest.length : starts.at(-1) ?? 0;
    let position = 0;
    while (position < end) {
      const next = starts.find((start) => start >= position + CHUNK_CHARS && start <= end) ?? end;
      this.finish(rest.slice(position, next));
      position = next;
      if (performance.now() > until && position < end) return false;
    }
    if (!isFinal) this.drawTail(rest.slice(position));
    else morphChildren(this.element, [], { from: this.numDoneNodes });
    this.isComplete = isFinal;
    return true;
  }

  // A definition changes how the blocks before it look: those are drawn again then.
  learnReferences(source) {
    const references = referencesOf(source);
    const isNew = Object.keys(references).length !== Object.keys(this.references).length;
    if (isNew) this.reset();
    this.references = references;
  }

  finish(text) {
    const nodes = [...markdownNodes(text, { ...this.references }).childNodes];
    const from = this.numDoneNodes;
    morphChildren(this.element, nodes, { from, keepsRest: true });
    this.numDoneNodes += nodes.length;
    this.done += text;
    this.colour(this.childrenFrom(from, nodes.length));
  }

  childrenFrom(index, number) {
    const found = [];
    for (let node = this.element.childNodes[index]; found.length < number; node = node.nextSibling) found.push(node);
    return found;
  }

  drawTail(text) {
    morphChildren(this.element, [...markdownNodes(text, { ...this.references }).childNodes], { from: this.numDoneNodes });
  }

  colour(nodes) {
    const jobs = highlightJobs(nodes);
    if (jobs.length) loadHighlighter().then(() => jobs.forEach((job) => this.drawing.add(job)));
  }
}
