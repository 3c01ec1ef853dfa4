// Components that every page uses. All text of hosts and tools goes through text nodes, never through markup.
import htm from "./vendor/htm.mjs";
import { h, render } from "./vendor/preact.mjs";
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";

export const html = htm.bind(h);
// No effect waits for a frame to be painted: what a person does at once would find no listener there.
export { render, useCallback, useLayoutEffect, useMemo, useRef, useState };

const LONGEST = 20_000;
// Characters that are invisible or change the direction of what follows: shown as their code.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]/g;

/** The text as it is shown: hidden characters as their code, and no more than `longest` characters. */
export function shown(text, longest = LONGEST) {
  const given = typeof text === "string" ? text : String(text ?? "");
  const cut = given.length > longest ? given.slice(0, longest) : given;
  return cut.replace(HIDDEN, (each) => `\u27e8U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

/** A text of a tool or a host, cut where it is long. */
export function Text({ value, longest = 2_000 }) {
  const given = typeof value === "string" ? value : String(value ?? "");
  const more = given.length - longest;
  return html`<span dir="auto">${shown(given, longest)}${more > 0 && html`<em class="more"> … ${count(more, "more character")}</em>`}</span>`;
}

/** A JSON value or a text, in a scrollable block. */
export function Code({ value, label, longest = LONGEST }) {
  const text = useMemo(() => (typeof value === "string" ? value : pretty(value)), [value]);
  const more = text.length - longest;
  return html`<div class="copied"><pre class="code" tabindex="0" role="region" aria-label=${label}><code dir="auto">${shown(text, longest)}</code>${
    more > 0 && html`<em class="more">\n… ${count(more, "more character")}</em>`}</pre><${Copy} text=${text} label=${label}/></div>`;
}

/** A button that copies a text; none where the browser has no clipboard for the page, as over http from elsewhere. */
export function Copy({ text, label, children }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => { setDone(true); setTimeout(() => setDone(false), 1_500); }, () => {});
  return html`<button type="button" class=${children ? "" : "copy"} aria-label=${children ? undefined : `Copy: ${label}`} onClick=${copy}>${done ? "Copied" : children ?? "Copy"}</button>`;
}

/** The JSON value in a text; the text itself if it is not JSON. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

// Made once: a browser makes one for each toLocaleString, and a list of calls has a hundred in a frame.
const NUMBER = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

export function count(number, noun) {
  return `${NUMBER.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** A time to read at a glance, which does not tick in decimals. */
export function roughly(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 5_400 ? `${Math.round(seconds / 60)} min` : seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

export function clock(moment) {
  const at = typeof moment === "number" ? new Date(moment * 1000) : new Date(moment);
  return Number.isNaN(at.getTime()) ? "–" : CLOCK.format(at);
}

export function Since({ moment }) {
  const at = moment == null ? NaN : new Date(moment).getTime();
  const [, tick] = useState(0);
  useLayoutEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 5_000);
    return () => clearInterval(timer);
  }, []);
  if (Number.isNaN(at)) return html`<span class="quiet">–</span>`;
  const seconds = (at - Date.now()) / 1000;
  const text = Math.abs(seconds) < 5 ? "now" : seconds < 0 ? `${roughly(-seconds)} ago` : `in ${roughly(seconds)}`;
  return html`<time datetime=${new Date(at).toISOString()} title=${new Date(at).toLocaleString("en-GB")}>${text}</time>`;
}

const TONES = {
  good: ["active", "up", "success", "attached", "allow", "pass", "allowed", "approved", "approval_approved", "ok", "live", "used"],
  wait: ["discovering", "ask", "running", "pending", "stale", "waiting", "shadowed", "connecting", "none", "limited", "wait",
    "installed-not-enabled", "disabled", "never", "quarantined", "detached", "unregistered", "grant_revoked"],
};

const WORDS = { panic: "crashed", tool_error: "failed" };

/** A state as a coloured label; the text says it too. */
export function Badge({ value, tone, children }) {
  const found = tone ?? (Object.keys(TONES).find((name) => TONES[name].includes(value)) || "bad");
  const calm = !tone && ["installed-not-enabled", "disabled", "never"].includes(value) ? " calm" : "";
  return html`<span class=${`badge ${found}${calm}`}>${children ?? shown((WORDS[value] ?? String(value)).replaceAll("_", " ").replaceAll("-", " "), 60)}</span>`;
}

export function Card({ title, label, note, actions, children, class: name = "", id }) {
  return html`<section class=${`card ${name}`} aria-label=${label ?? title}>
    ${title && html`<header><h2 id=${id}>${title}</h2>${note != null && html`<span class="note">${note}</span>`}${
      actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${children}
  </section>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

const IMAGE = /^image\/(png|jpeg|gif|webp|svg\+xml|avif|bmp)$/;

/** A part of a result that is more than text: an image, or else its JSON. */
export function Part({ part }) {
  return part.type === "image" && IMAGE.test(part.mimeType) && /^[A-Za-z0-9+/=\s]*$/.test(part.data ?? "!")
    ? html`<img src=${`data:${part.mimeType};base64,${part.data}`} alt="Image of the result"/>`
    : html`<${Code} value=${part} label="Part of the result" longest=${2_000}/>`;
}

export function Problem({ error, retry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert"><p><strong>${error.title ?? "This did not work"}</strong> <${Text} value=${error.message} longest=${600}/>${
    error.requestId && html` <span class="quiet mono">request ${error.requestId}</span>`}</p>${
    retry && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

export function Loading({ rows = 4 }) {
  return html`<div class="loading" role="status"><span class="unseen">Loading</span>${Array.from({ length: rows }, (_, n) => html`<i key=${n}></i>`)}</div>`;
}

/** A search field with its label. */
export function Search({ value, onInput, label }) {
  return html`<label class="search"><span class="unseen">${label}</span>
    <svg viewBox="0 0 20 20" aria-hidden="true"><circle cx="9" cy="9" r="5.5"/><path d="m13.2 13.2 4 4"/></svg>
    <input type="search" placeholder=${label} value=${value} spellcheck="false" onInput=${(event) => onInput(event.target.value)}/></label>`;
}

/**
 * A list of any length, of which only what is visible is in the page. Rows have one height; arrows move through them.
 * An item with `heads` is the heading of what follows.
 */
export function VirtualList({ items, height, row, label, selected, onSelect, keyOf, class: name = "" }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, size: 600 });
  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, size: box.current.clientHeight || 600 });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / height) - 6, items.length - 1));
  const last = Math.min(items.length, Math.ceil((view.top + view.size) / height) + 6);
  const current = items.findIndex((item) => !item.heads && keyOf(item) === selected);
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !items.length) return;
    event.preventDefault();
    let next = Math.max(0, Math.min(items.length - 1, Number.isFinite(step) ? current + step : step < 0 ? 0 : items.length - 1));
    if (items[next].heads) next += step < 0 && next > 0 ? -1 : 1;
    if (items[next]) onSelect(items[next]);
  };
  // What is chosen is in sight, also where a link or another list has chosen it.
  useLayoutEffect(() => {
    if (current < 0) return;
    const top = current * height;
    const { scrollTop, clientHeight } = box.current;
    if (top < scrollTop) box.current.scrollTop = current === 1 && items[0].heads ? 0 : top;
    else if (top + height > scrollTop + clientHeight) box.current.scrollTop = top + height - clientHeight;
  }, [selected, current < 0]);
  const id = useMemo(() => `list-${Math.random().toString(36).slice(2)}`, []);
  const inView = current >= first && current < last;
  return html`<div class=${`virtual ${name}`} ref=${box} tabindex="0" style=${{ maxHeight: `${items.length * height}px` }} role="listbox" aria-label=${label} onKeyDown=${move}
      aria-activedescendant=${inView ? `${id}-${current}` : undefined}
      onScroll=${() => setView({ top: box.current.scrollTop, size: box.current.clientHeight })}>
    <div role="presentation" style=${{ height: `${items.length * height}px` }}>
      ${items.slice(first, last).map((item, n) => item.heads ? html`<div key=${`head ${item.heads}`} role="presentation" class="virtual-head" style=${{ top: `${(first + n) * height}px`, height: `${height}px` }}><b><${Text} value=${item.heads} longest=${80}/></b><small>${item.note}</small></div>` : html`<div key=${keyOf(item)} id=${`${id}-${first + n}`} role="option"
        aria-selected=${keyOf(item) === selected} aria-setsize=${items.length} aria-posinset=${first + n + 1}
        class="virtual-row" style=${{ top: `${(first + n) * height}px`, height: `${height}px` }}
        onClick=${() => onSelect(item)}>${row(item)}</div>`)}
    </div></div>`;
}
