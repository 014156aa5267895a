// Texts of messages by id and revision: the server sends each of them once on a connection, null afterwards.

const MAX_CHARS = 20_000_000;

export class KnownTexts {
  constructor() {
    this.texts = new Map(); // message_id -> {revision, text}, the longest unused first
    this.numChars = 0;
  }

  keep({ message_id: id, revision, text }) {
    this.forget(id);
    this.texts.set(id, { revision, text });
    this.numChars += text.length;
    for (const oldest of this.texts.keys()) {
      if (this.numChars <= MAX_CHARS || oldest === id) break;
      this.forget(oldest);
    }
  }

  forget(id) {
    const known = this.texts.get(id);
    if (!known) return;
    this.numChars -= known.text.length;
    this.texts.delete(id);
  }

  // The message with its text; null where it is not known.
  complete(message) {
    if (message.text !== null) {
      this.keep(message);
      return message;
    }
    const known = this.texts.get(message.message_id);
    return known?.revision === message.revision ? { ...message, text: known.text } : null;
  }
}
