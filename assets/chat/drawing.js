// Work on the page in small pieces, a few milliseconds per frame, so that no piece of it blocks the reader.
// Frames do not come while the page is hidden, so nothing is drawn then.

const BUDGET_MS = 10;

export class Drawing {
  constructor() {
    this.jobs = []; // job(until) -> whether it is done
    this.frame = null;
  }

  add(job) {
    this.jobs.push(job);
    this.frame ??= requestAnimationFrame(() => this.onFrame());
  }

  // Forget what is left, e.g. of a conversation that is no longer shown.
  clear() {
    this.jobs = [];
  }

  run(budgetMs) {
    const until = performance.now() + budgetMs;
    while (this.jobs.length && performance.now() < until) {
      const job = this.jobs.shift(); // one that throws is not tried again
      if (!job(until)) this.jobs.unshift(job);
    }
  }

  onFrame() {
    this.frame = null;
    try {
      this.run(BUDGET_MS);
    } finally {
      if (this.jobs.length) this.frame ??= requestAnimationFrame(() => this.onFrame());
    }
  }
}
