// The open conversation in the page's address: `#/c/ID`. Reload, Back and Forward come back to it.

const PATTERN = /^#\/c\/([A-Za-z0-9_-]{1,64})$/;

export class Address {
  constructor(state) {
    this.state = state;
    this.wantedId = null; // what the person chose last; another one that is shown was born of their question
    // Gradio and the browser's own Back change the address, too.
    addEventListener("popstate", () => this.follow());
    addEventListener("hashchange", () => this.follow());
    // A new conversation has got its id, or the open one is gone: that is no step to go Back to.
    state.addEventListener("conversation", () => {
      if (state.conversationId !== this.conversationId) history.replaceState(null, "", urlOf(state.conversationId));
    });
  }

  get conversationId() {
    return PATTERN.exec(location.hash)?.[1] ?? null;
  }

  /** Show a conversation (null: a new one) as a step that Back undoes. */
  go(conversationId) {
    if (conversationId !== this.conversationId) history.pushState(null, "", urlOf(conversationId));
    this.open(conversationId);
  }

  follow() {
    if (this.conversationId !== this.state.conversationId) this.open(this.conversationId);
  }

  open(conversationId) {
    this.wantedId = conversationId;
    this.state.open(conversationId);
  }
}

export function hashOf(conversationId) {
  return conversationId === null ? "#/" : `#/c/${conversationId}`;
}

// The page has a <base>: an address of only a hash would lose the query.
function urlOf(conversationId) {
  return location.pathname + location.search + hashOf(conversationId);
}
