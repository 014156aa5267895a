// What the server is doing for an answer, in a few words: "2 ahead of you · about 12 s".

import { rate, seconds } from "./figures.js";
import { t } from "./i18n.js";

const ENGINE_STATES = ["loading", "restarting", "stopped", "failed"];

export function waitingText(live, { engine, connection }) {
  if (connection !== "open") return t("message.connection_lost");
  if (ENGINE_STATES.includes(engine?.state)) return t(`message.engine_${engine.state}`);
  return (PHASES[live.phase] ?? preparing)(live);
}

const PHASES = { preparing, summarising, queued, reading, writing, stopping };

function preparing() {
  return t("message.preparing");
}

function summarising() {
  return t("message.summarising");
}

function queued({ queuePosition, expectedWaitS }) {
  const parts = [queuePosition > 0 ? t("message.ahead", { count: queuePosition }) : t("message.next")];
  if (expectedWaitS != null) parts.push(t("message.about", { seconds: seconds(Math.max(Math.round(expectedWaitS), 1)) }));
  return parts.join(" · ");
}

function reading({ numComputedTokens, numPromptTokens }) {
  if (numComputedTokens == null || numPromptTokens == null) return t("message.reading");
  return `${t("message.reading")} · ${t("message.of_tokens", { done: numComputedTokens, count: numPromptTokens })}`;
}

function writing({ numOutputTokens, tokensPerS }) {
  const parts = [t("message.writing")];
  if (numOutputTokens != null) parts.push(t("details.tokens", { count: numOutputTokens }));
  if (tokensPerS != null) parts.push(t("details.rate", { rate: rate(tokensPerS) }));
  return parts.join(" · ");
}

function stopping() {
  return t("message.stopping");
}
