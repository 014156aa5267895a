// Tells a model's thinking from its answer.

const OPEN = "<think>";
const CLOSE = "</think>";

// Returns {thinking, isThinking, answer}: `thinking` null without any, `isThinking` while it is not closed.
export function splitReasoning(text, { isLive = false } = {}) {
  const start = text.trimStart();
  if (isLive && start && OPEN.startsWith(start)) return { thinking: "", isThinking: true, answer: "" };
  const isOpened = start.startsWith(OPEN);
  if (!isOpened && !isClosedWithoutOpening(text)) return { thinking: null, isThinking: false, answer: text };
  const inner = isOpened ? start.slice(OPEN.length) : start;
  const end = inner.indexOf(CLOSE);
  if (end < 0) return { thinking: inner.trim(), isThinking: true, answer: "" };
  const rest = splitReasoning(inner.slice(end + CLOSE.length).trimStart(), { isLive });
  const thoughts = [inner.slice(0, end).trim(), rest.thinking].filter(Boolean);
  return { thinking: thoughts.join("\n\n"), isThinking: rest.isThinking, answer: rest.answer };
}

// Some templates open the thinking themselves: then only its end is in the text, on a line of its own. In code it is code.
function isClosedWithoutOpening(text) {
  const end = text.indexOf(CLOSE);
  if (end < 0) return false;
  const before = text.slice(0, end);
  const lineBefore = before.slice(before.lastIndexOf("\n") + 1).trim();
  const lineAfter = text.slice(end + CLOSE.length).split("\n", 1)[0].trim();
  const numFences = (before.match(/^\s*(?:```|~~~)/gm) ?? []).length;
  return (lineBefore === "" || lineAfter === "") && !lineBefore.includes("`") && numFences % 2 === 0;
}
