// Under which heading a conversation stands in the list.

const DAY_MS = 24 * 3600 * 1000;

/** [{key, entries}] in the list's order; empty groups are left out. `now`: a Date. */
export function grouped(entries, now) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const starts = [
    ["list.today", midnight],
    ["list.yesterday", midnight - DAY_MS],
    ["list.week", midnight - 7 * DAY_MS],
    ["list.older", -Infinity],
  ];
  const groups = new Map([["list.pinned", []], ...starts.map(([key]) => [key, []])]);
  for (const entry of newestFirst(entries)) {
    const key = entry.is_pinned ? "list.pinned" : starts.find(([, start]) => entry.updated_s * 1000 >= start)[0];
    groups.get(key).push(entry);
  }
  return [...groups].filter(([, members]) => members.length).map(([key, members]) => ({ key, entries: members }));
}

export function newestFirst(entries) {
  return [...entries].sort((one, other) => other.updated_s - one.updated_s);
}
