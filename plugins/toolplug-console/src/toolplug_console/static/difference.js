// The difference of two texts by lines, as a block with added and removed lines.
import { count, html, shown, useMemo } from "./ui.js";

const MOST_LINES = 600;
const AROUND = 3;

/** The lines of both texts as `[sign, line]`, where the sign is "+", "-" or " "; null for texts that are too long. */
export function differences(before, after) {
  const old = before ? before.split("\n") : [];
  const now = after ? after.split("\n") : [];
  let first = 0;
  while (first < old.length && first < now.length && old[first] === now[first]) first += 1;
  let same = 0;
  while (same < old.length - first && same < now.length - first && old[old.length - 1 - same] === now[now.length - 1 - same]) same += 1;
  const a = old.slice(first, old.length - same);
  const b = now.slice(first, now.length - same);
  if (a.length > MOST_LINES || b.length > MOST_LINES) return null;
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  const found = old.slice(0, first).map((line) => [" ", line]);
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) { found.push([" ", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || length[i + 1][j] >= length[i][j + 1])) { found.push(["-", a[i]]); i += 1; }
    else { found.push(["+", b[j]]); j += 1; }
  }
  return [...found, ...old.slice(old.length - same).map((line) => [" ", line])];
}

const WORDS = { "+": "added: ", "-": "removed: " };

/** Two texts, where they differ: changed lines with a few lines around them. */
export function Difference({ before, after, label }) {
  const lines = useMemo(() => differences(before, after), [before, after]);
  if (!lines) return html`<p class="quiet">The texts are too long to compare here: ${count(before.length, "character")} before, ${count(after.length, "character")} now.</p>`;
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([sign]) => sign !== " "));
  return html`<pre class="code difference" tabindex="0" role="region" aria-label=${label}><code dir="auto">${lines.map(([sign, line], at) => near[at]
    ? html`<span key=${at} class=${{ "+": "added", "-": "removed", " ": "same" }[sign]}>${WORDS[sign] && html`<span class="unseen">${WORDS[sign]}</span>`}${sign} ${shown(line, 2_000)}${"\n"}</span>`
    : near[at - 1] && html`<span key=${at} class="same quiet">…${"\n"}</span>`)}</code></pre>`;
}
