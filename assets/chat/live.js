// Draws the answer that is being written: up to nine times a second, less often where a drawing takes long,
// and not at all while nobody sees the page.

const LEAST_MS = 110;
const REST_FACTOR = 6; // rest so many times as long as a drawing took
const BUDGET_MS = 25;

export class LiveWriter {
  // `draw(until)` returns whether it came to the end.
  constructor(draw) {
    this.draw = draw;
    this.timer = null;
    this.nextMs = 0;
    this.lastTookMs = 0;
    this.isDirty = false;
    document.addEventListener("visibilitychange", () => !document.hidden && this.isDirty && this.plan(0));
  }

  request() {
    this.isDirty = true;
    if (!document.hidden) this.plan(Math.max(this.nextMs - performance.now(), 0));
  }

  plan(waitMs) {
    this.timer ??= setTimeout(() => requestAnimationFrame(() => this.onFrame()), waitMs);
  }

  onFrame() {
    this.timer = null;
    if (!this.isDirty) return;
    this.isDirty = false;
    const startMs = performance.now();
    const isDone = this.draw(startMs + BUDGET_MS);
    const tookMs = performance.now() - startMs;
    const usualMs = Math.min(tookMs, this.lastTookMs); // one slow frame among quick ones was somebody else's
    this.lastTookMs = tookMs;
    this.nextMs = isDone ? startMs + Math.max(LEAST_MS, usualMs * REST_FACTOR) : startMs + tookMs;
    if (!isDone) this.request();
  }
}
