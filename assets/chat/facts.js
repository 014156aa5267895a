// One line of figures under an answer, and where its time went. Whatever was not measured is left out.

import { rate, rounded, seconds } from "./figures.js";
import { t } from "./i18n.js";

const MIN_WAIT_S = 0.05; // below that nobody waited

// "0.4 s to the first token · 42.1 tokens/s · 512 tokens · 1,498 cached"
export function factsLine(facts) {
  const parts = [];
  if (facts.ttft_s != null) parts.push(t("details.first_token", { seconds: seconds(facts.ttft_s) }));
  if (facts.tokens_per_s != null) parts.push(t("details.rate", { rate: rate(facts.tokens_per_s) }));
  if (facts.num_output_tokens != null) parts.push(t("details.tokens", { count: facts.num_output_tokens }));
  if (facts.num_cached_tokens) parts.push(t("details.cached", { count: facts.num_cached_tokens }));
  return parts.join(" · ");
}

// [{name, seconds}], in the order of time.
export function timeParts(facts) {
  const parts = [
    { name: "queued", seconds: facts.queued_s },
    { name: "reading", seconds: facts.prefill_s },
    { name: "writing", seconds: facts.decode_s },
  ];
  return parts.filter((part) => part.seconds != null);
}

// Why it took that long, in sentences.
export function reasons(facts) {
  return [waited(facts), read(facts), shared(facts), preempted(facts), recomputed(facts)].filter(Boolean);
}

function waited({ queued_s: queuedS, num_ahead: numAhead, num_running: numRunning }) {
  if (queuedS == null) return null;
  const values = { seconds: seconds(queuedS), running: numRunning ?? 0 };
  if (queuedS < MIN_WAIT_S) return t("details.not_waited");
  if (numAhead > 0) return t(numRunning ? "details.waited_full" : "details.waited_ahead", { ...values, count: numAhead });
  return numRunning ? t("details.waited_running", { ...values, count: numRunning }) : t("details.waited", values);
}

function read({ num_prompt_tokens: numPrompt, num_cached_tokens: numCached }) {
  if (numPrompt == null) return null;
  if (!numCached) return t("details.all_read", { count: numPrompt });
  return t("details.some_cached", { cached: numCached, prompt: numPrompt, count: Math.max(numPrompt - numCached, 0) });
}

function shared({ mean_step_requests: mean }) {
  if (mean == null) return null;
  return mean < 1.05 ? t("details.alone") : t("details.shared", { requests: rounded(mean - 1, 1) });
}

function preempted({ num_preemptions: numPreemptions }) {
  return numPreemptions ? t("details.preempted", { count: numPreemptions }) : null;
}

function recomputed({ num_recomputed_tokens: numRecomputed }) {
  return numRecomputed ? t("details.recomputed", { count: numRecomputed }) : null;
}
