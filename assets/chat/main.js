// The page's script: brings the parts together and names what Gradio's events call (`window.hearth`).

import { Address } from "./address.js";
import { Appearance, APPEARANCES } from "./appearance.js";
import { Banner } from "./banner.js";
import { ChatActions } from "./chat_actions.js";
import { ChatList } from "./chat_list.js";
import { Composer } from "./composer.js";
import { mountConversation } from "./conversation.js";
import { copyText } from "./copy.js";
import { Drafts } from "./drafts.js";
import { Drawer } from "./drawer.js";
import { whenThere } from "./element.js";
import { askWhatToLeaveOut } from "./full_dialog.js";
import { languageTag, loadTexts, t } from "./i18n.js";
import { Import } from "./import.js";
import { openMenu } from "./menu.js";
import { Meter } from "./meter.js";
import { Presets } from "./presets.js";
import { problemText } from "./problem_text.js";
import { Settings } from "./settings.js";
import { Shortcuts } from "./shortcuts.js";
import { ChatState } from "./state.js";
import { Toasts } from "./toasts.js";

class Page {
  constructor(find) {
    this.state = new ChatState();
    this.appearance = new Appearance();
    this.toasts = new Toasts();
    this.address = new Address(this.state);
    this.drafts = new Drafts();
    this.drawer = new Drawer({ side: find("#side"), toggle: find("#side-toggle") });
    this.buildSide(find);
    this.buildMain(find);
    this.listen();
    this.shortcuts = new Shortcuts(this.actionsOfKeys(find));
    this.address.open(this.address.conversationId);
  }

  buildSide(find) {
    const { state, toasts, drafts, address } = this;
    const go = (id) => address.go(id);
    this.actions = new ChatActions(state, { toasts, go });
    this.list = new ChatList(find("#chat-list .chat-list"), state, {
      open: (id, messageId = null) => this.open(id, messageId),
      actions: this.actions,
      toasts,
    });
    const search = find("#search input");
    search.addEventListener("input", () => this.list.search.look(search.value));
    search.addEventListener("keydown", (event) => event.key === "Escape" && this.endSearch(event, search));
    this.import = new Import({ toasts });
    const area = find("#settings");
    const fill = () => find("#fill-settings").click();
    this.settings = new Settings({ area, fill, state, drafts, address });
    this.presets = new Presets({ settings: this.settings, state, toasts, fill: () => find("#fill-presets").click() });
    const more = find("#more");
    more.addEventListener("click", () => openMenu(more, this.moreItems()));
  }

  endSearch(event, search) {
    if (!search.value) return;
    event.stopPropagation();
    search.value = "";
    search.dispatchEvent(new Event("input", { bubbles: true }));
  }

  buildMain(find) {
    const { state, drafts, address } = this;
    this.banner = new Banner(find("#banner .banner"), state);
    this.view = mountConversation(find("#conversation-view"), state, { toasts: this.toasts });
    this.composer = new Composer({ row: find("#composer"), notice: find("#notice .notice"), state, drafts, address });
    this.meter = new Meter(find("#context .meter"), { state, composer: this.composer, settings: find("#settings") });
    find("#hint button").addEventListener("click", () => this.shortcuts.showList());
  }

  listen() {
    const { state, toasts } = this;
    for (const name of ["conversation", "entries"]) state.addEventListener(name, () => this.nameTab());
    let hadShown = false; // the open conversation was on the page, so it was deleted and not just unknown
    state.addEventListener("connection", () => state.connection === "open" && this.reload());
    let isModelReady = false;
    state.addEventListener("engine", () => {
      const wasReady = isModelReady;
      isModelReady = state.engine.state === "ready";
      if (isModelReady && !wasReady) this.loadSettings(); // only now the model's own defaults are known
    });
    state.addEventListener("gone", () => toasts.show(t(hadShown ? "list.gone" : "list.not_found")));
    state.addEventListener("conversation", () => state.conversationId && (hadShown = state.conversation !== null));
    state.addEventListener("problem", ({ detail }) => this.composer.isAsking || toasts.show(problemText(detail)));
    state.addEventListener("context_full", ({ detail }) => this.onContextFull(detail));
  }

  nameTab() {
    const { entries, conversation, conversationId } = this.state;
    const title = entries.get(conversationId)?.title ?? conversation?.title;
    document.title = title ? `${title} – Hearth` : "Hearth";
  }

  // At first, and whenever the connection is back: another server may have other defaults.
  async reload() {
    await this.loadSettings();
    await this.presets.load();
    if (this.list.isArchiveShown) await this.list.fetchArchived();
  }

  loadSettings() {
    return this.settings.load().catch((error) => this.toasts.show(problemText(error)));
  }

  async open(conversationId, messageId) {
    this.address.go(conversationId);
    if (messageId === null || !(await this.isHere(conversationId))) return;
    if (await this.view.reveal(messageId)) return;
    const show = async () => (await this.state.select(messageId)) && this.revealSoon(messageId);
    this.toasts.show(t("search.other_version"), { action: { label: t("search.show"), act: show } });
  }

  // Its messages have come; false where another one is shown by then.
  async isHere(conversationId) {
    const { state } = this;
    while (state.conversationId === conversationId && !state.conversation) await nextEvent(state, "conversation");
    return state.conversationId === conversationId;
  }

  async revealSoon(messageId) {
    if (!this.state.message(messageId)) await nextEvent(this.state, "conversation");
    await this.view.reveal(messageId);
  }

  newChat() {
    this.address.go(null);
    this.composer.focus();
  }

  async onContextFull({ error, retry }) {
    const { composer } = this;
    const text = composer.isAsking ? this.state.pending?.text : null; // else an edited or a repeated question
    const choice = await askWhatToLeaveOut(error);
    if (choice === null) return;
    if (text && composer.text === text) await composer.askWith(text, () => retry(choice));
    else await retry(choice);
  }

  moreItems() {
    const { list, actions, appearance } = this;
    const choices = APPEARANCES.map((name) => ({
      label: t(`appearance.${name}`),
      isChecked: appearance.choice === name,
      act: () => appearance.choose(name),
    }));
    return [
      {
        label: t(list.isArchiveShown ? "list.back" : "side.archived"),
        act: () => list.showArchived(!list.isArchiveShown),
      },
      "-",
      { label: t("side.import"), act: () => this.import.choose() },
      { label: t("side.export_all_md"), act: () => actions.exportAll("md") },
      { label: t("side.export_all_json"), act: () => actions.exportAll("json") },
      "-",
      ...choices,
      "-",
      { label: t("side.shortcuts"), act: () => this.shortcuts.showList() },
    ];
  }

  actionsOfKeys(find) {
    const { list, drawer, state } = this;
    const goTo = (step) => {
      const id = list.neighbour(step);
      if (id !== null) this.open(id, null);
    };
    return {
      new_chat: () => this.newChat(),
      search: () => {
        drawer.reveal();
        find("#search :is(input, textarea)").focus();
      },
      write: () => this.composer.focus(),
      copy: () => this.copyLast(),
      regenerate: () => this.regenerateLast(),
      previous: () => goTo(-1),
      next: () => goTo(1),
      side: () => drawer.toggle(),
      dark: () => this.appearance.toggle(),
      stop: () => (state.isAnswering ? void state.stop() : false),
    };
  }

  async copyLast() {
    const last = this.state.messages.findLast((message) => message.role === "assistant");
    if (!last) this.toasts.show(t("shortcuts.nothing_to_copy"));
    else if (await copyText(last.text)) this.toasts.show(t("shortcuts.copied"));
  }

  regenerateLast() {
    const last = this.state.messages.at(-1);
    if (last && !this.state.isAnswering) this.state.regenerate(last.message_id);
  }
}

function nextEvent(target, name) {
  return new Promise((resolve) => target.addEventListener(name, resolve, { once: true }));
}

// Templates carry keys, not texts.
function translate() {
  document.documentElement.lang = languageTag();
  for (const node of document.querySelectorAll("[data-text]")) node.textContent = t(node.dataset.text);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", t(node.dataset.label));
}

const PARTS = "#side #search #chat-list #settings #fill-settings #fill-presets #more #conversation-view #composer #context #hint";

async function start() {
  await Promise.all([loadTexts(), ...PARTS.split(" ").map(whenThere)]);
  translate();
  const page = new Page((selector) => document.querySelector(selector));
  window.hearth = {
    send: () => page.composer.send(),
    stop: () => page.state.stop(),
    newChat: () => page.newChat(),
    settingValues: (names) => page.settings.values(names),
    presetChoices: () => page.presets.choices(),
    applyPreset: (name) => page.presets.apply(name),
    savePreset: () => page.presets.save(),
    deletePreset: () => page.presets.delete(),
  };
}

start();
