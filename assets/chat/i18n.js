// Texts for people. The catalogues in assets/i18n/ are shared with the labels that Gradio draws.
// `t("list.pinned")`; `t("search.found", { count: 3 })` takes the key with `.one` or `.other`.

const LANGUAGES = ["en", "zh"];

let language = "en";
let catalogue = {};

export function chosenLanguage(tags) {
  for (const tag of tags) {
    const found = LANGUAGES.find((name) => tag.toLowerCase().split("-")[0] === name);
    if (found) return found;
    break; // Gradio looks at the first one only; both must speak the same language
  }
  return "en";
}

/** Load the texts in the browser's language; also sets the page's `lang`. */
export async function loadTexts(tags = [navigator.language || "en"]) {
  language = chosenLanguage(tags);
  const url = new URL(`../i18n/${language}.json`, import.meta.url);
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok) throw new Error(`The page's texts did not load (${response.status}).`);
  catalogue = await response.json();
  document.documentElement.lang = languageTag();
}

export function languageTag() {
  return language === "zh" ? "zh-CN" : language;
}

/** The text of a key; `{name}` in it is replaced, numbers are written as people of the language do. */
export function t(key, values = {}) {
  const text = catalogue[keyFor(key, values)];
  if (text === undefined) throw new Error(`There is no text ${key}`);
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? written(values[name]) : whole));
}

/** Whether there is such a text: for codes that come from the server. */
export function hasText(key) {
  return key in catalogue;
}

function keyFor(key, values) {
  if (typeof values.count !== "number" || key in catalogue) return key;
  return `${key}.${new Intl.PluralRules(languageTag()).select(values.count) === "one" ? "one" : "other"}`;
}

function written(value) {
  return typeof value === "number" ? value.toLocaleString(languageTag()) : String(value);
}
