// Formulas between $$ $$, \[ \] and \( \). A single $ is money. KaTeX is loaded when the first formula is seen.

const MAX_CHARS = 4000;
const MAX_KEPT = 500;
const BUDGET_MS = 10;
const OPTIONS = { throwOnError: false, trust: false, strict: "ignore", maxSize: 30, maxExpand: 500 };
const PAIRS = { "$$": "$$", "\\[": "\\]", "\\(": "\\)" };

let katex = null;
let loading = null;
const drawn = new Map(); // formula -> nodes, the oldest first
const waiting = new Set();

// Adds the rules to a MarkdownIt. A formula holds no empty line, so an unclosed one ends with its paragraph.
export function addMathRules(markdown) {
  markdown.block.ruler.before("fence", "math_block", blockRule, { alt: ["paragraph", "reference", "blockquote", "list"] });
  markdown.inline.ruler.before("escape", "math_inline", inlineRule);
  const html = (tag) => (tokens, index) => {
    const { content, meta } = tokens[index];
    return `<${tag} class="math ${meta}">${markdown.utils.escapeHtml(content)}</${tag}>`;
  };
  markdown.renderer.rules.math_block = html("div");
  markdown.renderer.rules.math_inline = html("span");
}

// The element holds a formula's source; it is replaced by the formula, at once or when KaTeX is there.
export function drawMath(element) {
  if (katex) typeset(element);
  else {
    waiting.add(element);
    load();
  }
}

function load() {
  loading ??= (async () => {
    const styles = document.createElement("link");
    styles.rel = "stylesheet";
    styles.href = new URL("../vendor/katex/katex.min.css", import.meta.url);
    document.head.append(styles);
    await import("../vendor/katex/katex.min.js");
    katex = globalThis.katex;
    drawWaiting();
  })().catch(() => (loading = null)); // the source stays in sight; the next formula tries again
}

// In pieces: a long chat may have hundreds of formulas.
function drawWaiting() {
  const until = performance.now() + BUDGET_MS;
  for (const element of waiting) {
    waiting.delete(element);
    if (element.isConnected) typeset(element);
    if (performance.now() > until) {
      requestAnimationFrame(drawWaiting);
      return;
    }
  }
}

function typeset(element) {
  const source = element.textContent;
  const displayMode = element.classList.contains("display");
  const key = `${displayMode}${source}`;
  if (!drawn.has(key)) {
    const place = document.createElement("div");
    katex.render(source, place, { ...OPTIONS, displayMode });
    drawn.set(key, place);
    if (drawn.size > MAX_KEPT) drawn.delete(drawn.keys().next().value);
  }
  element.replaceChildren(...drawn.get(key).cloneNode(true).childNodes);
  element.classList.add("is-drawn");
}

function blockRule(state, startLine, endLine, silent) {
  if (state.sCount[startLine] - state.blkIndent >= 4) return false; // indented code
  const start = state.bMarks[startLine] + state.tShift[startLine];
  const close = PAIRS[state.src.slice(start, start + 2)];
  if (!close || close === "\\)") return false;
  for (let line = startLine; line < endLine; line += 1) {
    const from = line === startLine ? start + 2 : state.bMarks[line];
    if (line > startLine && (state.isEmpty(line) || state.sCount[line] < state.blkIndent)) return false;
    const end = state.src.slice(from, state.eMarks[line]).trimEnd();
    if (!end.endsWith(close)) {
      if (end.includes(close)) return false; // text behind it: an inline formula
      continue;
    }
    const content = `${state.getLines(startLine, line, state.blkIndent, true)}`;
    const whole = line === startLine ? state.src.slice(start, from + end.length) : content.trimStart() + end.trimStart();
    return push(state, startLine, line, whole.slice(2, -2), silent);
  }
  return false;
}

function push(state, startLine, line, content, silent) {
  if (!content.trim() || content.length > MAX_CHARS || content.includes("$$")) return false;
  if (silent) return true;
  const token = state.push("math_block", "math", 0);
  token.block = true;
  token.content = content.trim();
  token.map = [startLine, line + 1];
  token.meta = "display";
  state.line = line + 1;
  return true;
}

function inlineRule(state, silent) {
  const open = state.src.slice(state.pos, state.pos + 2);
  const close = PAIRS[open];
  if (!close) return false;
  const end = state.src.indexOf(close, state.pos + 2);
  if (end < 0 || end + 2 > state.posMax) return false;
  const content = state.src.slice(state.pos + 2, end);
  if (!content.trim() || content.length > MAX_CHARS) return false;
  if (!silent) {
    const token = state.push("math_inline", "math", 0);
    token.content = content.trim();
    token.meta = open === "\\(" ? "inline" : "display";
  }
  state.pos = end + 2;
  return true;
}
