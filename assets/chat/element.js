// Builds elements. People's texts only ever become text nodes.

/** `element("button", { type: "button", onclick: act }, "Text", child)`; null and false attributes are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Resolves with the element when the page has it: Gradio draws in its own time. */
export function whenThere(selector) {
  const found = document.querySelector(selector);
  if (found) return Promise.resolve(found);
  return new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      const late = document.querySelector(selector);
      if (!late) return;
      observer.disconnect();
      resolve(late);
    });
    observer.observe(document.documentElement, { childList: true, subtree: true });
  });
}
