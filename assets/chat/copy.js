// Copies text, also where the page came over plain http and the browser hides its clipboard.

export async function copyText(text) {
  if (navigator.clipboard && isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not allowed here: the old way may be
    }
  }
  return copyBySelection(text);
}

function copyBySelection(text) {
  const focused = document.activeElement;
  const selection = document.getSelection();
  const ranges = Array.from({ length: selection.rangeCount }, (_, index) => selection.getRangeAt(index));
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.style.cssText = "position:fixed;top:0;left:0;width:1px;height:1px;opacity:0;font-size:16px";
  document.body.append(area);
  area.select();
  area.setSelectionRange(0, text.length);
  let isCopied = false;
  try {
    isCopied = document.execCommand("copy");
  } finally {
    area.remove();
    selection.removeAllRanges();
    ranges.forEach((range) => selection.addRange(range));
    focused?.focus?.({ preventScroll: true });
  }
  return isCopied;
}
