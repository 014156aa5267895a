// The conversation does not fit into the model's context any more: the person decides what is left out.

import { showDialog } from "./dialogs.js";
import { element } from "./element.js";
import { t } from "./i18n.js";

/** `error`: the server's, see `context_full` in docs/protocol.md. Resolves with "drop", "summarise" or null. */
export function askWhatToLeaveOut({ used, max, choices, num_left_out: count }) {
  const paragraph = (text) => element("p", {}, text);
  const content = [paragraph(t("full.numbers", { used, max }))];
  if (choices.length) content.push(paragraph(t("full.kept")), paragraph(t("full.shown")));
  else content.push(paragraph(t("full.no_way")));
  const buttons = choices.map((value, index) => ({
    value,
    label: t(`full.${value}`, { count }),
    isPrimary: index === 0,
  }));
  const cancelLabel = choices.length ? t("dialog.cancel") : t("dialog.close");
  return showDialog({ title: t("full.title"), content, buttons, cancelLabel });
}
