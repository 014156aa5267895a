// Named sets of settings: chosen, saved and deleted beside the controls.

import { api } from "./api.js";
import { askForText } from "./dialogs.js";
import { t } from "./i18n.js";
import { problemText } from "./problem_text.js";

const UNDO_MS = 10_000;

export class Presets {
  /** `fill()` lets Gradio read `choices()`. */
  constructor({ settings, state, toasts, fill }) {
    Object.assign(this, { settings, state, toasts, fill });
    this.presets = [];
    this.chosen = null;
  }

  async load() {
    await this.attempt(async () => this.take(await api.get("presets")));
  }

  /** For Gradio's Dropdown. */
  choices() {
    const choices = this.presets.map(({ name }) => [name, name]);
    return [{ __type__: "update", choices, value: this.chosen }];
  }

  apply(name) {
    const preset = this.find(name);
    this.chosen = preset?.name ?? null;
    if (!preset) return;
    this.settings.apply(preset.settings);
    this.toasts.show(t("presets.applied", { name }));
  }

  async save() {
    const name = await askForText({ title: t("presets.name"), value: this.chosen ?? "", maxLength: 60 });
    if (name) await this.put(name, this.state.settings, t("presets.saved", { name }));
  }

  async delete() {
    const preset = this.find(this.chosen);
    if (!preset) {
      this.toasts.show(t("presets.none_chosen"));
      return;
    }
    const { name } = preset;
    await this.attempt(async () => {
      this.take(await api.del(`presets/${encodeURIComponent(name)}`), null);
      const undo = { label: t("list.undo"), act: () => this.put(name, preset.settings) };
      this.toasts.show(t("presets.deleted", { name }), { action: undo, lastsMs: UNDO_MS });
    });
  }

  put(name, settings, text = null) {
    return this.attempt(async () => {
      this.take(await api.put(`presets/${encodeURIComponent(name)}`, { settings }), name);
      if (text) this.toasts.show(text);
    });
  }

  find(name) {
    return this.presets.find((preset) => preset.name === name) ?? null;
  }

  take({ presets }, chosen = this.chosen) {
    this.presets = presets;
    this.chosen = this.find(chosen)?.name ?? null;
    this.fill();
  }

  async attempt(call) {
    try {
      await call();
    } catch (error) {
      this.toasts.show(problemText(error));
    }
  }
}
