// Colours in code. The highlighter is loaded when the first code with a language is seen.

const MAX_CHARS = 60000;

let highlighter = null;
let loading = null;

// Jobs that colour the code blocks under the nodes, one each; see drawing.js.
export function highlightJobs(nodes) {
  const codes = nodes
    .filter((node) => node.nodeType === Node.ELEMENT_NODE)
    .flatMap((node) => [...node.querySelectorAll("pre > code[data-language]:not(.is-coloured)")]);
  return codes.map((code) => () => colour(code));
}

export function loadHighlighter() {
  loading ??= import("../vendor/highlight.js")
    .then((module) => (highlighter = module.default))
    .catch(() => (loading = null)); // plain code meanwhile; the next block tries again
  return loading;
}

function colour(code) {
  const { language } = code.dataset;
  if (!highlighter?.getLanguage(language) || code.textContent.length > MAX_CHARS || !code.isConnected) return true;
  const { value } = highlighter.highlight(code.textContent, { language, ignoreIllegals: true });
  code.innerHTML = value; // the highlighter escapes the code; its own spans are the only tags
  code.classList.add("is-coloured");
  return true;
}
