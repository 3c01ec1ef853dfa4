// Keys: a palette over pages, tools, calls, sessions and settings; `/`, `j`, `k`, and the list of all keys.
import { ask, events } from "./api.js";
import { clock, html, stateWord, Text, useLayoutEffect, useMemo, useRef, useState } from "./ui.js";

const SHOWN = 12;
const KEYS = [["⌘K or Ctrl+K", "find a page, tool, call, session, server or setting"], ["/", "search this page"], ["j, k", "the next or the one before in a list"],
  ["a, d", "approve or deny the call that is chosen"], ["r", "go to the form that calls the tool; Enter calls it"], ["?", "these keys"], ["Esc", "close"]];

/** The calls that a page has seen in this tab, the newest first: the palette finds them. */
export const seenCalls = { newest: [] };

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]") != null;

/** Move in the list of the page as its arrow keys do. */
function move(key) {
  const list = document.querySelector("main .virtual");
  if (!list) return false;
  list.focus({ preventScroll: true });
  list.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  return true;
}

/** The keys of every page. They do nothing while something is typed, but for the palette's. */
export function Keyboard({ pages, visitor }) {
  const [open, setOpen] = useState("");
  // Before the page is painted: who presses a key at once would press it into nothing.
  useLayoutEffect(() => {
    const press = (event) => {
      if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey) && !event.altKey) {
        event.preventDefault();
        setOpen((now) => (now === "palette" ? "" : "palette"));
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
      if (event.key === "/") {
        const search = document.querySelector("main .search input");
        if (search) { event.preventDefault(); search.focus(); search.select(); }
      } else if (event.key === "r") {
        const field = document.querySelector("main form.fields :is(input, textarea, select, button.primary)");
        if (field) { event.preventDefault(); field.focus(); }
      } else if (event.key === "?") setOpen("keys");
      else if ((event.key === "j" && move("ArrowDown")) || (event.key === "k" && move("ArrowUp"))) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const close = () => setOpen("");
  return html`<button type="button" class="find" aria-keyshortcuts="Meta+K Control+K" onClick=${() => setOpen("palette")}><span>Find …</span><kbd>${/Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K"}</kbd></button>
    ${open === "palette" && html`<${Palette} pages=${pages} visitor=${visitor} close=${close}/>`}
    ${open === "keys" && html`<${Dialog} label="Keys" close=${close}><h2>Keys</h2><dl class="facts keys">${KEYS.map(([key, text]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
      <div class="actions"><button type="button" onClick=${close}>Close</button></div><//>`}`;
}

const isDrawn = (node) => node.isConnected && node.offsetHeight > 0;

/**
 * The keyboard keeps its place: a button that was disabled for a moment gets the focus back; where what had it is gone,
 * the list next to it gets it, else what was around it. Not the next button: who presses Enter twice would do two things.
 */
export function keepFocus(root) {
  let path = [];  // what has the focus, and what is around it
  let waits = false;
  const restore = () => {
    waits = false;
    if (!path.length || document.activeElement !== document.body || document.querySelector("dialog[open]")) return;
    if (isDrawn(path[0])) {
      if (!path[0].disabled) path[0].focus({ preventScroll: true });
      return;
    }
    const around = path.find(isDrawn);
    const list = around && [...around.querySelectorAll(".virtual")].find(isDrawn);
    const next = list ?? around;
    if (!next) return;
    if (next.tabIndex < 0) next.tabIndex = -1;
    next.focus({ preventScroll: true });
  };
  addEventListener("focusin", ({ target }) => {
    path = [];
    for (let node = target; node && node !== root; node = node.parentElement) path.push(node);
  });
  addEventListener("pointerdown", () => { path = []; }, true);  // who points elsewhere leaves the place
  // After the next frame: only then the focus is taken from what is disabled.
  new MutationObserver(() => {
    if (waits || !path.length) return;
    waits = true;
    requestAnimationFrame(() => setTimeout(restore));
  }).observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "data-open"] });
}

/** A window above the page, with the focus; Esc and a click beside it close it. */
export function Dialog({ label, close, children, class: name = "" }) {
  const box = useRef(null);
  // Before the next key: an effect that waits for the frame loses the first letters of who types at once.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.({ preventScroll: true });
  }, []);
  return html`<dialog ref=${box} class=${name} aria-label=${label} onClose=${close} onClick=${(event) => { if (event.target === box.current) close(); }}>${children}</dialog>`;
}

const callItem = (call) => ({ kind: "call", name: call.tool, more: `${stateWord(call.status)} ${clock(call.ts)} ${call.call_id} ${call.request_id ?? ""}`, to: `#/calls/${call.id}` });

/** The calls that the host remembers, the newest first. */
async function rememberedCalls() {
  const control = new AbortController();
  try {
    for await (const { event, data } of events("GET", "/console/calls", { signal: control.signal })) if (event === "calls") return [...data.calls].reverse();
  } finally {
    control.abort();
  }
  return [];
}

/** What can be found, asked once when the palette opens; what this visitor may not see is not in it. */
function useFindable(pages, visitor) {
  const [found, setFound] = useState([]);
  useLayoutEffect(() => {
    let here = true;
    const add = (path, items) => ask("GET", path).then((data) => { if (here) setFound((before) => [...before, ...items(data)]); }, () => {});
    add("/api/catalog", (data) => data.tools.map((each) => ({ kind: "tool", name: each.name, more: each.description, to: `#/tools/${encodeURIComponent(each.name)}` })));
    add("/api/sessions", (data) => data.sessions.map((each) => ({ kind: "session", name: each.code, more: each.pluginType ?? "", to: `#/sessions/${each.code}` })));
    add("/api/mcp-servers", (data) => data.servers.map((each) => ({ kind: "server", name: each.id, more: each.state, to: `#/servers/${encodeURIComponent(each.id)}` })));
    // Of calls, those that the host remembers, where no page has followed them yet.
    if (!seenCalls.newest.length) {
      rememberedCalls().then((calls) => { if (here) setFound((before) => [...before, ...calls.map(callItem)]); }, () => {});
    }
    if (visitor.can("admin")) add("/v1/configuration", (data) => data.values.map((each) => ({ kind: "setting", name: each.path, more: String(each.value ?? ""), to: `#/configuration/${encodeURIComponent(each.path)}` })));
    return () => { here = false; };
  }, []);
  return useMemo(() => [
    ...pages.map((each) => ({ kind: "page", name: each.title, more: "", to: `#/${each.id}` })), ...found,
    ...seenCalls.newest.map(callItem),
  ], [found, pages]);
}

const KINDS = ["page", "tool", "session", "server", "setting", "call"];
const MOST_CALLS = 6;  // where there is more to choose from than calls of one tool

/** Those that have every word, names that begin with the text first, and of these what there is before what was done. */
function matching(items, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = (item) => (item.name.toLowerCase().startsWith(words[0] ?? "") ? 0 : item.name.toLowerCase().includes(words[0] ?? "") ? 1 : 2);
  const found = items.filter((item) => { const all = `${item.kind} ${item.name} ${item.more}`.toLowerCase(); return words.every((word) => all.includes(word)); })
    .map((item) => [rank(item) * KINDS.length + KINDS.indexOf(item.kind), item]).sort((a, b) => a[0] - b[0]).map(([, item]) => item);
  const others = found.filter((item) => item.kind !== "call").length;
  let calls = Math.max(MOST_CALLS, SHOWN - others);
  return found.filter((item) => item.kind !== "call" || calls-- > 0).slice(0, SHOWN);
}

function Palette({ pages, visitor, close }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const items = useFindable(pages, visitor);
  const found = useMemo(() => matching(items, text), [items, text]);
  const go = (item) => { if (!item) return; close(); location.hash = item.to; };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); setAt((n) => Math.max(0, Math.min(found.length - 1, n + step))); }
    else if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); go(found[at]); }
  };
  return html`<${Dialog} label="Find" class="palette" close=${close}>
    <input type="text" role="combobox" aria-label="Find a page, tool, call, session, server or setting" aria-expanded="true" aria-controls="found" aria-autocomplete="list" aria-activedescendant=${found[at] ? `found-${at}` : undefined}
      placeholder="Find a page, tool, call, session, server or setting" spellcheck="false" autocomplete="off" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${press}/>
    <ul id="found" role="listbox" aria-label="Found">${found.map((item, n) => html`<li key=${`${item.kind} ${item.to}`} id=${`found-${n}`} role="option" aria-selected=${n === at} onMouseMove=${() => setAt(n)} onClick=${() => go(item)}>
      <small>${item.kind}</small><strong><${Text} value=${item.name} longest=${120}/></strong><span class="cut"><${Text} value=${item.more} longest=${160}/></span></li>`)}</ul>
    ${!found.length && html`<p class="quiet nothing" role="status">Nothing is called that.</p>`}
  <//>`;
}
