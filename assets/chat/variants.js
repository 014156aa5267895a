// The arrows that walk the variants of a message: `‹ 2 / 3 ›`.

import { iconButton } from "./icons.js";
import { t } from "./i18n.js";

// Null where there is only one. `onSelect(messageId, action)`: go there; `action` is the arrow's name.
export function variantArrows(message, { onSelect }) {
  const { variant_ids: ids, message_id: own } = message;
  const index = ids.indexOf(own);
  if (ids.length < 2 || index < 0) return null;
  const group = document.createElement("span");
  group.className = "variants";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", t("message.variants"));
  const arrow = (name, step) => {
    const button = iconButton(name, t(`message.variant_${name}`), () => onSelect(ids[index + step], name));
    button.disabled = ids[index + step] === undefined;
    button.classList.add("needs-idle");
    return button;
  };
  const place = document.createElement("span");
  place.className = "variant-place";
  place.textContent = t("message.variant_place", { number: index + 1, total: ids.length });
  group.append(arrow("earlier", -1), place, arrow("later", 1));
  return group;
}
