// The shell of the console: who looks, which page, light or dark, and whether the host answers.
import { ApiProblem, ask, connection, storedKey, takeDecisionKey, useKey } from "./api.js";
import { html, render, Text, useCallback, useLayoutEffect, useRef, useState } from "./ui.js";
import { keepFocus, Keyboard } from "./keyboard.js";
import { PAGES } from "./pages.js";

const THEME = "toolplug-console-theme";
const ONLY_BY_NAME = new Set(["operator", "delegate"]);  // the scopes that admin does not imply

const ICONS = {
  overview: "M3 11l7-7 7 7M5 9.5V17h10V9.5",
  tools: "M12.5 3.5a4 4 0 0 0-3.8 5.3L3.5 14l2.5 2.5 5.2-5.2a4 4 0 0 0 5.3-3.8l-2.4 1.2-2.3-2.3z",
  chat: "M4 4h12v9H9l-4 3.5V13H4zM7.5 7.5h5M7.5 10h3",
  calls: "M3 10h3l2.5-6 3.5 12 2.5-6H17",
  waterfall: "M3 4.5h7M6 8h8M9 11.5h5M12 15h5",
  approvals: "M10 3l6 2.5v4.2c0 3.6-2.5 6-6 7.3-3.5-1.3-6-3.7-6-7.3V5.5zM7.5 10l1.8 1.8 3.4-3.4",
  sessions: "M3 5h14v8H3zM7 17h6M10 13v4",
  servers: "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01",
  configuration: "M4 6h8M15 6h1M4 14h1M8 14h8M13.5 4.5v3M6.5 12.5v3M4 10h3M10 10h6M8.5 8.5v3",
  page: "M5 3h7l3 3v11H5zM8 9h4M8 12h4",
};

const THEMES = {
  light: "M10 6.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 0 0 0-7M10 2v1.5M10 16.5v1.5M2 10h1.5M16.5 10h1.5M4.3 4.3l1 1M14.7 14.7l1 1M4.3 15.7l1-1M14.7 5.3l1-1",
  system: "M3 4.5h14v9H3zM7 16.5h6",
  dark: "M16 11.8a6.5 6.5 0 1 1-7.8-7.8a5.2 5.2 0 0 0 7.8 7.8z",
};

const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${ICONS[name] ?? ICONS.page}/></svg>`;

function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8"/><path d="M12 6v6M20 6v6M9 12h14v3a7 7 0 0 1-14 0zM16 22v4"/></svg>`;
}

function SignIn({ problem, onKey }) {
  const input = useRef(null);
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => input.current.focus(), [problem]);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    await onKey(input.current.value.trim());
    setBusy(false);
  };
  return html`<main class="signin"><form onSubmit=${submit}>
    <${Mark}/><h1>toolplug console</h1>
    <p class="quiet">This host asks for a key. It stays in this tab and is forgotten when you close it.</p>
    <label>API key or token<input ref=${input} type="password" autocomplete="off" spellcheck="false" required aria-describedby=${problem ? "why" : undefined}/></label>
    ${problem && html`<p id="why" class="problem" role="alert">${problem}</p>`}
    <button class="primary" disabled=${busy}>${busy ? "Looking …" : "Open the console"}</button>
  </form></main>`;
}

const chosenTheme = () => localStorage.getItem(THEME) || "system";

/** Colour the page; the system's colours have no mark. */
function colour(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme);
  const choose = (each) => {
    localStorage.setItem(THEME, each);
    colour(each);
    setTheme(each);
  };
  return html`<div class="theme" role="radiogroup" aria-label="Colours">
    ${Object.entries(THEMES).map(([each, drawn]) => html`<label key=${each} title=${each}><input type="radio" name="theme" class="unseen" checked=${theme === each}
      onChange=${() => choose(each)}/><span><svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${drawn}/></svg><span class="unseen">${each}</span></span></label>`)}</div>`;
}

function useConnection() {
  const [, changed] = useState(0);
  useLayoutEffect(() => {
    const look = () => changed((n) => n + 1);
    connection.listeners.add(look);
    look();
    return () => connection.listeners.delete(look);
  }, []);
  return connection;
}

const place = () => {
  const [page = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { page, rest: rest.map(decodeURIComponent) };
};

function usePlace() {
  const [at, setAt] = useState(place);
  useLayoutEffect(() => {
    const look = () => { takeDecisionKey(); setAt(place()); };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return at;
}

function App() {
  const [visitor, setVisitor] = useState(null);
  const [problem, setProblem] = useState("");
  const host = useConnection();
  const at = usePlace();
  const main = useRef(null);

  const enter = useCallback(async () => {
    try {
      const found = await ask("GET", "/console/visitor");
      setVisitor({ ...found, can: (scope) => found.scopes.includes(scope) || (found.scopes.includes("admin") && !ONLY_BY_NAME.has(scope)) });
      setProblem("");
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      if (error.status === 0 || error.status === 503) return;
      setVisitor(null);
      const refused = error.status === 401;
      connection.set("refused");
      setProblem(!refused ? error.message : storedKey() ? "The host does not accept this key; it may be wrong, revoked or expired." : "");
      useKey("");
    }
  }, []);
  useLayoutEffect(() => { enter(); }, [host.epoch]);
  useLayoutEffect(() => {
    if (host.state === "refused" && visitor) {
      setVisitor(null);
      setProblem("Your key has expired or was revoked. Enter one that is valid.");
      useKey("");
    }
  }, [host.state, visitor]);

  const signIn = async (key) => { useKey(key); await enter(); };
  const pages = visitor ? PAGES(visitor) : [];
  const page = pages.find((each) => each.id === at.page) ?? pages[0];
  useLayoutEffect(() => {
    document.title = page ? `${page.title} · toolplug` : "toolplug console";
  }, [page?.id]);
  const firstPage = useRef(true);
  useLayoutEffect(() => {
    if (!page) return;
    if (!firstPage.current) main.current?.focus({ preventScroll: true });
    firstPage.current = false;
    scrollTo(0, 0);
  }, [page?.id]);
  // On a phone the pages are one row, which is wider than the screen.
  useLayoutEffect(() => {
    const at = document.querySelector("nav a[aria-current]");
    const row = at?.parentElement;
    if (row && row.scrollWidth > row.clientWidth) row.scrollLeft = at.offsetLeft - (row.clientWidth - at.offsetWidth) / 2;
  }, [page?.id, Boolean(visitor)]);

  if (!visitor) {
    return host.state === "refused"
      ? html`<${SignIn} problem=${problem} onKey=${signIn}/>`
      : html`<main class="signin"><div class="waiting" role="status"><${Mark}/><p>${host.state === "away" ? "The host does not answer. Trying again …" : "Opening the console …"}</p></div></main>`;
  }
  const state = { online: "online", away: "no connection", connecting: "connecting", refused: "key refused" }[host.state];
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the page</a>
    <aside>
      <a class="brand" href="#/overview"><${Mark}/><span>toolplug</span><small>${visitor.version}</small></a>
      <${Keyboard} pages=${pages} visitor=${visitor}/>
      <nav aria-label="Pages">${pages.map((each) => html`<a key=${each.id} href=${`#/${each.id}`} aria-current=${each === page ? "page" : undefined}>
        <${Icon} name=${each.id}/><span>${each.title}</span>${each.count && html`<${each.count} visitor=${visitor}/>`}</a>`)}</nav>
      <div class="who">
        <p class="connection" data-state=${host.state} role="status">${state}</p>
        <p><strong><${Text} value=${visitor.subject} longest=${40}/></strong> <span class="quiet">tenant <${Text} value=${visitor.tenant} longest=${40}/></span></p>
        ${storedKey() && html`<button type="button" class="plain" onClick=${() => { useKey(""); location.reload(); }}>Forget the key</button>`}
        <${ThemeSwitch}/>
      </div>
    </aside>
    <main id="main" tabindex="-1" ref=${main}>
      ${host.state === "away" && html`<div class="banner" role="alert">The host does not answer. What you see may be out of date; the console tries again by itself.</div>`}
      <${page.view} key=${page.id} visitor=${visitor} rest=${at.rest} page=${page}/>
    </main>
  </div>`;
}

takeDecisionKey();
colour(chosenTheme());  // before the host answers, not after a first page in other colours
const root = document.getElementById("console");
root.replaceChildren();  // preact leaves what was painted before it
render(html`<${App}/>`, root);
keepFocus(root);
