// News from the server: one WebSocket for this tab, opened again whenever it is lost.
//
// Each frame is dispatched as a CustomEvent named by its `type`, the frame as `detail`; besides those,
// `connection` with {state: "connecting" | "open" | "lost"}.

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;
const PING_EVERY_MS = 10000;
const PONG_LIMIT_MS = 5000;
const OPEN_LIMIT_MS = 10000;

export class Events extends EventTarget {
  constructor(path = "/api/chat/events") {
    super();
    this.url = new URL(path, location.href);
    this.url.protocol = this.url.protocol === "https:" ? "wss:" : "ws:";
    this.state = "lost";
    this.conversationId = null;
    this.socket = null;
    this.waitMs = FIRST_WAIT_MS;
    this.timers = {};
    this.isClosed = false;
    addEventListener("online", () => this.hurry());
    addEventListener("pageshow", () => this.hurry());
    document.addEventListener("visibilitychange", () => !document.hidden && this.hurry());
  }

  // What this tab shows from now on.
  watch(conversationId) {
    this.conversationId = conversationId;
    this.isClosed = false;
    if (this.state === "open") this.sendWatch();
    else if (!this.socket) this.connect();
  }

  close() {
    this.isClosed = true;
    this.drop();
  }

  // A phone that woke up, a network that is back: do not sit out the wait, do not trust an old socket.
  hurry() {
    if (this.isClosed) return;
    if (!this.socket) this.connect();
    else if (this.state === "open") this.ping();
  }

  connect() {
    clearTimeout(this.timers.retry);
    this.setState("connecting");
    const socket = new WebSocket(this.url);
    this.socket = socket;
    const isCurrent = () => this.socket === socket;
    socket.onopen = () => isCurrent() && this.onOpen();
    socket.onmessage = (message) => isCurrent() && this.onFrame(message.data);
    socket.onclose = () => isCurrent() && this.onLost();
    this.timers.open = setTimeout(() => isCurrent() && this.onLost(), OPEN_LIMIT_MS);
  }

  onOpen() {
    clearTimeout(this.timers.open);
    this.setState("open");
    this.sendWatch();
    this.timers.beat = setInterval(() => this.ping(), PING_EVERY_MS);
  }

  onFrame(data) {
    clearTimeout(this.timers.pong);
    this.timers.pong = null;
    this.waitMs = FIRST_WAIT_MS;
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return; // not of our server
    }
    if (typeof frame?.type === "string") this.dispatch(frame.type, frame);
  }

  onLost() {
    this.drop();
    this.setState("lost");
    if (this.isClosed) return;
    this.timers.retry = setTimeout(() => this.connect(), this.waitMs * (0.75 + Math.random() / 2));
    this.waitMs = Math.min(this.waitMs * 2, LONGEST_WAIT_MS);
  }

  drop() {
    for (const timer of Object.values(this.timers)) clearTimeout(timer); // also ends intervals
    this.timers = {};
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  ping() {
    if (!this.send({ type: "ping" }) || this.timers.pong) return;
    this.timers.pong = setTimeout(() => this.onLost(), PONG_LIMIT_MS);
  }

  sendWatch() {
    this.send({ type: "watch", conversation_id: this.conversationId });
  }

  send(frame) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatch("connection", { state });
  }

  dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
