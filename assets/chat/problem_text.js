// What a person reads when something was refused: the server's own sentence, or ours in their language.

import { hasText, languageTag, t } from "./i18n.js";

/** `problem`: {message, code}, an ApiError or the detail of a "problem" event. */
export function problemText({ message, code }) {
  if (code === "offline") return t("error.offline");
  const key = `error.${code}`;
  return languageTag() !== "en" && hasText(key) ? t(key, { message }) : message;
}
