// Numbers as people read them: "0.42 s", "1 min 5 s", "12.3".

import { languageTag, t } from "./i18n.js";

export function seconds(value) {
  if (value < 60) return t("message.seconds", { seconds: rounded(value, value < 1 ? 2 : value < 10 ? 1 : 0) });
  const whole = Math.round(value);
  return t("message.minutes", { minutes: Math.floor(whole / 60), seconds: whole % 60 });
}

export function rate(tokensPerS) {
  return rounded(tokensPerS, tokensPerS < 100 ? 1 : 0);
}

export function rounded(value, numDigits) {
  return value.toLocaleString(languageTag(), { maximumFractionDigits: numDigits });
}
