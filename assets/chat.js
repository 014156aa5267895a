() => {
  // Markup that ui/chat/markup.py made literal is turned back when text is copied, and the line of
  // facts under a reply (it begins with U+2063) is left out.
  const ENTITIES = { "&#x00026;": "&", "&#x0003C;": "<", "&#x00021;": "!", "&#x0005B;": "[" };
  const original = (text) =>
    text
      .replace(/\n?\u2063.*/g, "")
      .replace(/&#x000(26|3C|21|5B);/g, (entity) => ENTITIES[entity])
      .replace(/([<&])\u2060/g, "$1");

  const clipboard = navigator.clipboard;
  if (clipboard) {
    const write = clipboard.writeText.bind(clipboard);
    clipboard.writeText = (text) => write(original(text));
  }
  document.addEventListener("copy", (event) => {
    // Without navigator.clipboard (plain http) Gradio copies from a hidden text area.
    const area = document.activeElement;
    const text = area?.tagName === "TEXTAREA" ? area.value : String(getSelection());
    if (area?.isContentEditable || area?.id || !text || original(text) === text) return;
    event.clipboardData.setData("text/plain", original(text));
    event.preventDefault();
  });

  // The conversation follows its end, unless the reader has scrolled up.
  const follow = (conversation) => {
    let isAtEnd = true;
    conversation.addEventListener("scroll", () => {
      const below = conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight;
      isAtEnd = below < 80;
    });
    const toEnd = () => {
      if (isAtEnd) conversation.scrollTop = conversation.scrollHeight;
    };
    new MutationObserver(() => requestAnimationFrame(toEnd)).observe(conversation, {
      childList: true, subtree: true, characterData: true,
    });
    for (const id of ["send", "regenerate"]) {
      document.getElementById(id)?.addEventListener("click", () => { isAtEnd = true; });
    }
    document.querySelector("#question textarea")?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) isAtEnd = true;
    });
    toEnd();
  };

  // On a phone the chats and settings are a drawer.
  const drawer = () => {
    const toggle = document.getElementById("side-toggle");
    const side = document.getElementById("side");
    toggle?.addEventListener("click", () => side.classList.toggle("open"));
    document.addEventListener("click", (event) => {
      const isInside = event.target.closest("#side, #side-toggle");
      const isChoice = event.target.closest("#new-chat, #delete-chat, #chat-list label");
      if (!isInside || isChoice) side.classList.remove("open");
    });
  };

  // A browser has six connections for a host: a tab that nobody sees gives its stream back.
  document.addEventListener("visibilitychange", () => {
    document.getElementById(document.hidden ? "pause" : "resume")?.click();
  });

  const whenThere = (id, act) => {
    const element = document.getElementById(id);
    if (element) act(element);
    else setTimeout(() => whenThere(id, act), 100);
  };
  whenThere("conversation", follow);
  whenThere("side", drawer);
}
