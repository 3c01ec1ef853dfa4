// Approvals: calls that wait for a person, with their arguments; and a notification of the browser for new ones.
import { ask, decisionHeaders, useAnswer } from "../api.js";
import { fitsSentence, Sentence } from "../sentence.js";
import { AllowLike, Grants } from "./grants.js";
import { Badge, Card, Code, count, Empty, html, Loading, Problem, shown, Since, Text, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";

const PATH = "/v1/approvals";
const EVERY_MS = 3_000;
const SETTLED_MS = 400;  // a key that was meant for the call before does not decide about this one

const waitingOf = (data) => (data?.approvals ?? []).filter((each) => each.state === "waiting" && new Date(each.expires_at) > new Date());

/** How many calls wait, for the navigation; it also notifies of new ones. */
export function WaitingCount() {
  const { data } = useAnswer(PATH, { every: EVERY_MS });
  const waiting = waitingOf(data);
  const known = useRef(null);
  useLayoutEffect(() => {
    if (!data) return;
    const fresh = known.current ? waiting.filter((each) => !known.current.has(each.id)) : [];
    known.current = new Set(waiting.map((each) => each.id));
    if (fresh.length && "Notification" in window && Notification.permission === "granted") {
      const note = new Notification("A call waits for you", { body: `${fresh[0].subject} wants to call ${fresh[0].tool}.`.slice(0, 200), tag: fresh[0].id });
      note.onclick = () => { window.focus(); location.hash = `#/approvals/${fresh[0].id}`; };
    }
  }, [data]);
  return waiting.length > 0 && html`<b class="pill"><span class="unseen">waiting: </span>${waiting.length > 99 ? "99+" : waiting.length}</b>`;
}

export function Approvals({ rest }) {
  const { data, error, reload } = useAnswer(PATH, { every: EVERY_MS });
  const definitions = useAnswer("/v1/tools", { query: { format: "mcp" } });
  const providers = useAnswer("/v1/providers");
  const waiting = waitingOf(data);
  const decided = (data?.approvals ?? []).filter((each) => !waiting.includes(each));
  const tools = useMemo(() => new Map((definitions.data?.tools ?? []).map((each) => [each._meta?.["toolplug/name"] ?? each.name, each])), [definitions.data]);
  const homes = useMemo(() => new Map((providers.data?.providers ?? []).flatMap((each) => each.tools.map((tool) => [tool, each.key]))), [providers.data]);
  const journal = (providers.data?.providers ?? []).some((each) => each.type === "journal" && each.state === "active");
  const chosen = waiting.find((each) => each.id === rest[0]) ?? (rest[0] ? undefined : waiting[0]);
  const asked = rest[0] && data?.approvals.find((each) => each.id === rest[0]);
  const alike = (ticket) => waiting.filter((each) => each.tool === ticket.tool && each.subject === ticket.subject && each.agent === ticket.agent);
  const [turn, setTurn] = useState(0);
  const decide = async (tickets, decision, grant) => {
    try {
      for (const each of tickets) await ask("POST", `${PATH}/${encodeURIComponent(each.id)}`, { body: { decision, ...(grant && { grant }) }, headers: decisionHeaders() });
    } finally {
      reload();
      if (grant) setTurn((n) => n + 1);
    }
  };
  const [refused, setRefused] = useState({});
  useKeys(waiting, chosen, (decision) => decide([chosen], decision).catch((error) => setRefused({ id: chosen.id, error })));
  return html`<header class="page"><div><h1>Approvals</h1><p class="quiet">Calls of your tenant whose policy is ask. A decision holds for this call, or by a rule for those like it.</p></div><${Notify}/></header>
    <${Problem} error=${error} retry=${reload}/>
    ${!data && !error && html`<${Card}><${Loading}/><//>`}
    ${data && rest[0] && !chosen && html`<div class="banner" role="status"><p>${asked ? html`The call of <strong class="mono"><${Text} value=${asked.tool} longest=${120}/></strong> that this link names is ${asked.state === "waiting" ? "expired" : asked.state}.` : "The call that this link names is not known; it may have expired."}</p><a class="plain" href="#/approvals">All approvals</a></div>`}
    ${data && !waiting.length && html`<${Card}><${Empty} title="Nothing waits for you">A call that needs a person appears here by itself.<//><//>`}
    ${waiting.length > 0 && html`<p class="quiet keys-hint"><kbd>A</kbd> approves and <kbd>D</kbd> denies the marked call; <kbd>J</kbd> and <kbd>K</kbd> mark another.</p>`}
    <p class="unseen" role="status">${waiting.length > 0 ? `${count(waiting.length, "call")} ${waiting.length === 1 ? "waits" : "wait"} for you` : ""}</p>
    <div class="stack">${waiting.map((each, index) => html`<${Waiting} key=${each.id} ticket=${each} place=${index + 1} chosen=${each === chosen} tool=${tools.get(each.tool)} home=${homes.get(each.tool)} journal=${journal} alike=${alike(each)} refused=${refused.id === each.id && refused.error} decide=${decide}/>`)}</div>
    <${Grants} key=${turn}/>
    ${decided.length > 0 && html`<${Card} title="Decided" note=${count(decided.length, "call")}><ul class="rows">${decided.slice(0, 100).map((each) => html`<li key=${each.id}>
      <div><strong class="mono"><${Text} value=${each.tool} longest=${120}/></strong><small class="quiet">by <${Text} value=${each.subject} longest=${60}/>${each.decided_by && html`, decided by <${Text} value=${each.decided_by} longest=${60}/>`}</small></div>
      <span class="number">${each.decided_at ? html`decided <${Since} moment=${each.decided_at}/>` : html`expired <${Since} moment=${each.expires_at}/>`}</span><${Badge} value=${each.state} tone=${each.state === "denied" ? "bad" : each.state === "approved" || each.state === "used" ? "good" : "wait"}/></li>`)}</ul><//>`}`;
}

/** A and D decide about the marked call, J and K mark the next or the one before. */
function useKeys(waiting, chosen, decide) {
  const since = useRef({});
  if (since.current.id !== chosen?.id) since.current = { id: chosen?.id, at: performance.now() };
  const latest = useRef(null);
  latest.current = (key) => {
    const step = { j: 1, k: -1 }[key];
    if (step) {
      const next = waiting[Math.max(0, Math.min(waiting.length - 1, waiting.indexOf(chosen) + step))];
      if (next) location.hash = `#/approvals/${next.id}`;
    } else if (chosen && performance.now() - since.current.at > SETTLED_MS) {
      if (location.hash !== "#/approvals") location.hash = "#/approvals";
      decide(key === "a" ? "approve" : "deny");
    }
  };
  // Before the page is painted: who presses a key at once would press it into nothing.
  useLayoutEffect(() => {
    const press = (event) => {
      if (!["a", "d", "j", "k"].includes(event.key) || event.repeat || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.target.closest("input, textarea, select, dialog") || document.querySelector("dialog[open]")) return;
      latest.current(event.key);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function Waiting({ ticket, chosen, place, tool, home, journal, alike, refused, decide }) {
  const [state, setState] = useState({});
  const box = useRef(null);
  useLayoutEffect(() => { if (chosen) box.current.scrollIntoView({ block: "nearest" }); }, [chosen]);
  const act = (tickets, decision) => async () => {
    setState({ busy: decision });
    try {
      await decide(tickets, decision);
      setState({ decided: decision });
    } catch (error) {
      setState({ error });
    }
  };
  const busy = Boolean(state.busy || state.decided);
  const said = fitsSentence(ticket.arguments);
  const many = alike.length > 1 && alike[0] === ticket;
  return html`<div ref=${box}><${Card} class=${`approval${chosen ? " chosen" : ""}`} label=${`Waiting call ${place}: ${shown(ticket.tool, 60)}`}>
    <div class="line wraps"><span class="who-asks"><strong><${Text} value=${ticket.subject} longest=${80}/></strong> wants to call${ticket.agent && html` as agent <strong><${Text} value=${ticket.agent} longest=${80}/></strong>`}${ticket.session && html` in session <span class="mono">${shown(ticket.session, 40)}</span>`}</span>
      <small>${ticket.asked_at && html`asked <${Since} moment=${ticket.asked_at}/> · `}expires <${Since} moment=${ticket.expires_at}/></small></div>
    ${said ? html`<${Sentence} tool=${ticket.tool} given=${ticket.arguments} schema=${tool?.inputSchema}/>` : html`<p class="sentence"><strong class="mono"><${Text} value=${ticket.tool} longest=${120}/></strong></p>`}
    ${(tool?.description || home) && html`<p class="quiet cut-2">${home && html`<span class="mono">${shown(home, 64)}</span>${tool?.description && " · "}`}<${Text} value=${tool?.description ?? ""} longest=${240}/></p>`}
    <div class="more-of"><details open=${!said}><summary class="quiet">Arguments as JSON</summary><${Code} value=${ticket.arguments} label="Arguments"/></details>
    <${AllowLike} ticket=${ticket} tool=${tool} journal=${journal} busy=${busy} done=${(grant) => decide([ticket], "approve", grant)}/></div>
    <${Problem} error=${state.error ?? refused}/>
    <div class="actions"><button type="button" class="primary" disabled=${busy} onClick=${act([ticket], "approve")}>${state.busy === "approve" ? "Approving …" : "Approve"}</button>
      <button type="button" class="danger" disabled=${busy} onClick=${act([ticket], "deny")}>${state.busy === "deny" ? "Denying …" : "Deny"}</button>
      <span class="apart"></span>${many && html`<button type="button" disabled=${busy} onClick=${act(alike, "approve")}>Approve all ${alike.length} of ${shown(ticket.tool, 60)}</button><button type="button" class="danger" disabled=${busy} onClick=${act(alike, "deny")}>Deny all</button>`}
      <a class="plain" href=${`#/approvals/${ticket.id}`}>Link</a></div><//></div>`;
}

function Notify() {
  const [permission, setPermission] = useState("Notification" in window ? Notification.permission : "unsupported");
  if (permission === "granted") return html`<p class="quiet">Notifications are on.</p>`;
  if (permission !== "default") return null;
  return html`<button type="button" onClick=${async () => setPermission(await Notification.requestPermission())}>Notify me of new ones</button>`;
}
