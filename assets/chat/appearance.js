// Dark, light, or as the system: the person's choice, kept in the browser.

import { Storage } from "./storage.js";

const KEY = "hearth.appearance";
export const APPEARANCES = ["system", "light", "dark"];

export class Appearance {
  constructor(storage = new Storage("localStorage")) {
    this.storage = storage;
    this.system = matchMedia("(prefers-color-scheme: dark)");
    const kept = storage.read(KEY);
    this.choice = APPEARANCES.includes(kept) ? kept : "system";
    // Without a choice the page is as Gradio made it, which also knows `?__theme=`.
    if (kept && this.choice !== "system") this.apply();
    // Gradio sets its own when it has started, and when the system changes.
    new MutationObserver(() => this.choice !== "system" && this.apply()).observe(document.body, {
      attributeFilter: ["class"],
    });
  }

  get isDark() {
    return document.body.classList.contains("dark");
  }

  choose(choice) {
    this.choice = choice;
    this.storage.write(KEY, choice);
    this.apply();
  }

  toggle() {
    this.choose(this.isDark ? "light" : "dark");
  }

  apply() {
    const isDark = this.choice === "system" ? this.system.matches : this.choice === "dark";
    if (isDark !== this.isDark) document.body.classList.toggle("dark", isDark);
  }
}
