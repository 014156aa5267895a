// Joins the messages a tab already has with a newer end of the same path.

// Returns {messages, numEarlier}, or null where what came before the new ones may have changed as well.
export function joined(old, oldNumEarlier, newer, newNumEarlier) {
  const first = newer[0];
  if (!first || newNumEarlier === 0) return { messages: newer, numEarlier: newNumEarlier };
  const kept = keptBefore(old, first);
  if (kept.length === 0) return { messages: newer, numEarlier: newNumEarlier };
  const numEarlier = newNumEarlier - kept.length;
  if (numEarlier !== oldNumEarlier) return null;
  return { messages: [...kept, ...newer], numEarlier };
}

function keptBefore(old, first) {
  const same = old.findIndex((message) => message.message_id === first.message_id);
  if (same >= 0) return old.slice(0, same);
  const parent = old.findIndex((message) => message.message_id === first.parent_id);
  return parent >= 0 ? old.slice(0, parent + 1) : [];
}
