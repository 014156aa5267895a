// Markdown to nodes. What a model or a person wrote is never HTML here: tags are shown as they were typed,
// links lead to web pages and mail only, pictures become links, and nothing is fetched.

import MarkdownIt from "../vendor/markdown-it.js";
import DOMPurify from "../vendor/purify.js";
import { codeBlock } from "./code_block.js";
import { addMathRules, drawMath } from "./math.js";
import { t } from "./i18n.js";

const ALLOWED_LINK = /^(?:https?:\/\/|mailto:)/i;
const LINK_ATTRIBUTES = 'rel="noopener noreferrer nofollow" target="_blank"';
const MAX_NESTING = 40;
const TAGS =
  "p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a table thead tbody tr th td span div".split(" ");
const ATTRIBUTES = ["href", "rel", "target", "class", "start", "style"];

const markdown = makeMarkdown();
const blocksOnly = makeBlocksOnly();

// Nodes for a whole text or for some of its blocks. `references`: what `referencesOf` found in the whole text.
export function markdownNodes(text, references = {}) {
  const html = markdown.render(text, { references });
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: ALLOWED_LINK,
    ADD_URI_SAFE_ATTR: ["rel", "target", "start"], // no addresses
    RETURN_DOM_FRAGMENT: true,
  });
  dress(fragment);
  return fragment;
}

// Where the blocks of the outermost level begin, as offsets into the text (which has \n line ends only).
export function blockStarts(text) {
  const lines = blocksOnly.parse(text, {}).filter((token) => token.level === 0 && token.map && token.nesting >= 0);
  const starts = [];
  let line = 0;
  let offset = 0;
  for (const { map } of lines) {
    for (; line < map[0]; line += 1) offset = text.indexOf("\n", offset) + 1;
    starts.push(offset);
  }
  return starts;
}

// Link definitions (`[name]: address`): they count for the blocks before them too.
export function referencesOf(text) {
  if (!/^ {0,3}\[[^\]\n]+\]:/m.test(text)) return {};
  const environment = {};
  blocksOnly.parse(text, environment);
  return environment.references ?? {};
}

function makeMarkdown() {
  const made = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false, maxNesting: MAX_NESTING });
  made.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  made.validateLink = (address) => ALLOWED_LINK.test(address.trim());
  addMathRules(made);
  const { rules } = made.renderer;
  rules.fence = (tokens, index) => preformatted(tokens[index].content, tokens[index].info);
  rules.code_block = (tokens, index) => preformatted(tokens[index].content, "");
  rules.link_open = (tokens, index) => `<a href="${escaped(tokens[index].attrGet("href"))}" ${LINK_ATTRIBUTES}>`;
  rules.image = (tokens, index) => imageLink(tokens, index);
  return made;
}

function makeBlocksOnly() {
  const made = new MarkdownIt({ html: false, maxNesting: MAX_NESTING });
  made.validateLink = (address) => ALLOWED_LINK.test(address.trim());
  addMathRules(made);
  made.core.ruler.enableOnly(["normalize", "block"]);
  return made;
}

function preformatted(code, info) {
  const name = info.trim().split(/\s+/)[0].replace(/[^\w+#.-]/g, "").slice(0, 30);
  return `<pre><code class="language-${name}">${escaped(code)}</code></pre>`;
}

function imageLink(tokens, index) {
  const address = tokens[index].attrGet("src");
  const name = escaped(tokens[index].content.trim() || address);
  const depth = tokens.slice(0, index).reduce((open, { type }) => open + (type === "link_open") - (type === "link_close"), 0);
  return depth > 0 ? name : `<a class="image-link" href="${escaped(address)}" ${LINK_ATTRIBUTES}>${name}</a>`;
}

function escaped(text) {
  return markdown.utils.escapeHtml(text);
}

function dress(fragment) {
  for (const code of fragment.querySelectorAll("pre > code")) {
    const name = code.className.replace(/^language-/, "");
    code.parentElement.replaceWith(codeBlock(code.textContent.replace(/\n$/, ""), name));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = document.createElement("div");
    scroller.className = "table-scroll";
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "group");
    scroller.setAttribute("aria-label", t("message.table"));
    table.replaceWith(scroller);
    scroller.append(table);
  }
  // Each block by its own text; what has a direction itself does not count for what it is in.
  for (const block of fragment.children) block.dir ||= "auto";
  for (const place of fragment.querySelectorAll(".math")) drawMath(place);
}
