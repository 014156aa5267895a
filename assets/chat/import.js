// Import of a file that the person chooses, and what came of it.

import { element } from "./element.js";
import { sendFile } from "./download.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";

const MAX_SHOWN_PROBLEMS = 5;
const LASTS_MS = 15_000;

export class Import {
  constructor({ toasts }) {
    this.toasts = toasts;
    this.input = element("input", { type: "file", id: "import-file", accept: ".json,.md,.zip", hidden: true });
    this.input.addEventListener("change", () => this.onChosen());
    document.body.append(this.input);
  }

  choose() {
    this.input.click();
  }

  async onChosen() {
    const [file] = this.input.files;
    this.input.value = ""; // so that the same file can be chosen again
    if (!file) return;
    const done = this.toasts.show(t("import.running", { name: file.name }), { lastsMs: 600_000 });
    try {
      this.report(await sendFile("import", file));
    } catch (error) {
      this.toasts.show(problemText(error), { lastsMs: LASTS_MS });
    } finally {
      done();
    }
  }

  report({ num_imported: numImported, num_known: numKnown, problems }) {
    const parts = numImported || !(numKnown || problems.length) ? [t("import.done", { count: numImported })] : [];
    if (numKnown) parts.push(t("import.known", { count: numKnown }));
    if (problems.length) parts.push(t("import.problems", { count: problems.length }));
    const lines = problems.slice(0, MAX_SHOWN_PROBLEMS);
    if (problems.length > lines.length) lines.push("…");
    this.toasts.show(parts.join(". "), { lines, lastsMs: LASTS_MS });
  }
}
