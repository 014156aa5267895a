// One line above the conversation while something is the matter with the server or the model.

import { t } from "./i18n.js";

const LOST_AFTER_MS = 1500; // a connection that is back at once is nobody's business
const BACK_SHOWN_MS = 4000;

export class Banner {
  constructor(root, state) {
    Object.assign(this, { root, state });
    this.isLost = false;
    this.wasDown = false;
    state.addEventListener("engine", () => this.draw());
    state.addEventListener("connection", () => this.onConnection());
    this.onConnection();
  }

  onConnection() {
    clearTimeout(this.timer);
    if (this.state.connection === "open") this.isLost = false;
    else this.timer = setTimeout(() => this.onLost(), LOST_AFTER_MS);
    this.draw();
  }

  onLost() {
    this.isLost = true;
    this.draw();
  }

  draw() {
    clearTimeout(this.backTimer);
    const { kind, title, text } = this.matter();
    this.root.hidden = kind === null;
    this.root.dataset.kind = kind ?? "";
    const [strong, rest] = this.root.querySelectorAll("strong, span");
    if (strong.textContent !== title) strong.textContent = title;
    if (rest.textContent !== text) rest.textContent = text;
    if (kind === "back") this.backTimer = setTimeout(() => this.draw(), BACK_SHOWN_MS);
  }

  matter() {
    const { engine } = this.state;
    if (this.isLost) return { kind: "lost", title: t("banner.lost"), text: "" };
    if (!engine) return { kind: null, title: "", text: "" };
    if (engine.state === "ready") return this.onReady();
    this.wasDown = true;
    const isRestart = engine.state === "loading" && engine.num_restarts > 0;
    const key = isRestart ? "restarting" : engine.state;
    const isBad = key === "failed" || key === "stopped";
    return { kind: isBad ? "bad" : "wait", title: t(`banner.${key}`), text: engine.message ?? "" };
  }

  onReady() {
    const isBack = this.wasDown;
    this.wasDown = false;
    return isBack ? { kind: "back", title: t("banner.back"), text: "" } : { kind: null, title: "", text: "" };
  }
}
