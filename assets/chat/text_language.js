// The language of a text by its script, for screen readers and fonts; null where the script does not tell.

const SCRIPTS = [
  ["ja", /\p{Script=Hiragana}|\p{Script=Katakana}/gu],
  ["ko", /\p{Script=Hangul}/gu],
  ["zh", /\p{Script=Han}/gu],
  ["ar", /\p{Script=Arabic}/gu],
  ["he", /\p{Script=Hebrew}/gu],
];
const SAMPLE_CHARS = 400;
const MIN_SHARE = 0.2;

export function textLanguage(text) {
  const sample = text.slice(0, SAMPLE_CHARS);
  const numLetters = (sample.match(/\p{L}/gu) ?? []).length;
  const found = SCRIPTS.find(([, script]) => (sample.match(script) ?? []).length > numLetters * MIN_SHARE);
  return found?.[0] ?? null;
}
