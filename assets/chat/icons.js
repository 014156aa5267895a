// Icons of the buttons: strokes in the colour of the text.

const PATHS = {
  copy: '<rect x="8" y="8" width="12" height="12" rx="2"/><path d="M16 8V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v8a2 2 0 0 0 2 2h2"/>',
  done: '<path d="m5 12.500 4.500 4.500L19 7.500"/>',
  edit: '<path d="M4 20h4L19.500 8.500a2.120 2.120 0 0 0-3-3L5 17v3"/><path d="m14.500 7.500 3 3"/>',
  regenerate: '<path d="M20 11A8 8 0 0 0 5.500 7.500L4 9"/><path d="M4 4v5h5"/><path d="M4 13a8 8 0 0 0 14.500 3.500L20 15"/><path d="M20 20v-5h-5"/>',
  continue: '<path d="M5 5v14l8-7-8-7Z"/><path d="M18 5v14"/>',
  delete: '<path d="M4 7h16"/><path d="M9 7V4h6v3"/><path d="m6 7 1 13h10l1-13"/><path d="M10 11v5M14 11v5"/>',
  earlier: '<path d="m15 6-6 6 6 6"/>',
  later: '<path d="m9 6 6 6-6 6"/>',
  end: '<path d="M12 5v14"/><path d="m6 13 6 6 6-6"/>',
};

export function icon(name) {
  const template = document.createElement("template");
  template.innerHTML =
    `<svg viewBox="0 0 24 24" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.8" ` +
    `stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">${PATHS[name]}</svg>`;
  return template.content.firstChild;
}

// A button with an icon; its name is its label and its tooltip.
export function iconButton(name, label, onClick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon-button";
  button.dataset.action = name;
  button.title = label;
  button.setAttribute("aria-label", label);
  button.append(icon(name));
  button.addEventListener("click", onClick);
  return button;
}
