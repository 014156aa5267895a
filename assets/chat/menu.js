// A menu below a button. `items`: [{label, act, isDanger, isChecked}] or "-" for a line.

import { element } from "./element.js";

const GAP_PX = 4;

export function openMenu(button, items) {
  closeMenu();
  const menu = element("div", { class: "hearth-menu", role: "menu" });
  menu.append(...items.map((item) => (item === "-" ? element("hr") : itemOf(item, () => close(true)))));
  const close = (isFocusBack) => {
    if (!menu.isConnected) return;
    menu.remove();
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", onPointer, true);
    removeEventListener("resize", onAway);
    removeEventListener("scroll", onAway, true);
    if (isFocusBack) button.focus();
  };
  const onPointer = (event) => !menu.contains(event.target) && close(false);
  const onAway = () => close(false);
  menu.close = close;
  menu.addEventListener("keydown", (event) => onKey(event, menu, close));
  document.addEventListener("pointerdown", onPointer, true);
  addEventListener("resize", onAway);
  addEventListener("scroll", onAway, true);
  document.body.append(menu);
  button.setAttribute("aria-expanded", "true");
  place(menu, button.getBoundingClientRect());
  menu.querySelector("button").focus({ preventScroll: true });
  return menu;
}

export function closeMenu() {
  document.querySelector(".hearth-menu")?.close(false);
}

function itemOf({ label, act, isDanger = false, isChecked }, close) {
  const isChoice = isChecked !== undefined;
  const choose = () => {
    close();
    act();
  };
  return element(
    "button",
    {
      type: "button",
      role: isChoice ? "menuitemradio" : "menuitem",
      "aria-checked": isChoice ? String(isChecked) : null,
      class: isDanger ? "danger" : null,
      tabindex: -1,
      onclick: choose,
    },
    label,
  );
}

function onKey(event, menu, close) {
  const items = [...menu.querySelectorAll("button")];
  const at = items.indexOf(document.activeElement);
  const to = {
    ArrowDown: (at + 1) % items.length,
    ArrowUp: (at - 1 + items.length) % items.length,
    Home: 0,
    End: items.length - 1,
  }[event.key];
  if (to !== undefined) items[to].focus();
  else if (event.key === "Escape" || event.key === "Tab") close(true);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function place(menu, anchor) {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const isBelow = anchor.bottom + GAP_PX + height <= innerHeight;
  const top = isBelow ? anchor.bottom + GAP_PX : Math.max(anchor.top - GAP_PX - height, GAP_PX);
  const left = Math.min(Math.max(anchor.right - width, GAP_PX), innerWidth - width - GAP_PX);
  menu.style.top = `${top}px`;
  menu.style.left = `${left}px`;
}
