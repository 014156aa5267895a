// Makes the children of a node, from one of them on, equal to new ones and keeps what is equal already:
// a selection in text that has not changed stays, and the browser lays out only what is new.

// `keepsRest`: what is there behind the new ones stays.
export function morphChildren(parent, newNodes, { from = 0, keepsRest = false } = {}) {
  let current = parent.childNodes[from] ?? null;
  for (const node of newNodes) {
    if (current === null) {
      parent.append(node);
      continue;
    }
    const next = current.nextSibling;
    morph(current, node);
    current = next;
  }
  while (current !== null && !keepsRest) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

function morph(old, node) {
  if (old.isEqualNode(node)) return;
  if (old.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) morphText(old, node.data);
  else if (isSameKind(old, node)) {
    morphAttributes(old, node);
    morphChildren(old, [...node.childNodes]);
  } else old.replaceWith(node);
}

function isSameKind(old, node) {
  return old.nodeType === Node.ELEMENT_NODE && old.nodeName === node.nodeName && !old.classList.contains("math");
}

function morphText(old, data) {
  if (data.startsWith(old.data)) old.appendData(data.slice(old.length));
  else old.data = data;
}

function morphAttributes(old, node) {
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}
