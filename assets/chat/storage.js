// What the browser keeps for this page. It may be forbidden or full: then it is kept for the moment only.

export class Storage {
  constructor(kind) {
    this.kind = kind; // "localStorage" or "sessionStorage"
    this.kept = new Map();
  }

  read(key) {
    if (this.kept.has(key)) return this.kept.get(key);
    try {
      return JSON.parse(window[this.kind].getItem(key));
    } catch {
      return null;
    }
  }

  write(key, value) {
    try {
      if (value === null) window[this.kind].removeItem(key);
      else window[this.kind].setItem(key, JSON.stringify(value));
      this.kept.delete(key);
    } catch {
      this.kept.set(key, value);
    }
  }
}
