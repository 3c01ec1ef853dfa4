// Sessions: applications that lend their tools, the tools as they appear and go, and the events of one.
import { askText, useAnswer, useEvents } from "../api.js";
import { Badge, Card, clock, Code, count, Empty, html, Loading, Problem, Search, Since, Text, useMemo, useState, VirtualList } from "../ui.js";

const ROW = 58;
const WIDE = "(min-width: 52.01rem)";
const MOST_EVENTS = 300;
// Why a tool cannot be called, in words; other reasons are words already.
const REASONS = { plugin_gone: "application away" };
const MOST_PROMPT = 60_000;

/** The state of a session, in the same word on every page. */
export const stateOf = (session) => (session.registered ? session.pluginStatus : "unregistered");

export function Sessions({ rest, visitor }) {
  const { data, error, reload } = useAnswer("/api/sessions", { every: 4_000 });
  const [search, setSearch] = useState("");
  const all = data?.sessions ?? [];
  const found = useMemo(() => {
    const word = search.trim().toLowerCase();
    return word ? all.filter((each) => `${each.code} ${each.pluginType} ${stateOf(each)}`.toLowerCase().includes(word)) : all;
  }, [data, search]);
  // Where there is room for both, the first one is open.
  const code = rest[0] ?? (matchMedia(WIDE).matches ? all[0]?.code : undefined);
  const choose = (session) => { location.hash = session ? `#/sessions/${session.code}` : "#/sessions"; };
  return html`<header class="page"><div><h1>Sessions</h1><p class="quiet">Applications of your tenant that lend their tools, and what they offer now.</p></div></header>
    <div class="toolbar"><div class="grow"><${Search} value=${search} onInput=${setSearch} label="Search codes, types and states"/></div></div>
    <${Problem} error=${error} retry=${reload}/>
    <div class="split" data-open=${Boolean(rest[0])}>
      <${Card} class="list" title="Live sessions" note=${data && count(found.length, "session")}>
        ${!data && !error ? html`<${Loading} rows=${6}/>` : !found.length
          ? html`<${Empty} title=${all.length ? "No session matches" : "No sessions"}>${all.length ? "Search for another word." : html`An application opens one with <code>POST /api/sessions</code> and registers its tools. To try it, lend the functions of a file:`}<//>${!all.length && html`<div class="inset"><${Code} value="toolplug sessions try FILE.py" label="Command"/></div>`}`
          : html`<${VirtualList} items=${found} height=${ROW} label="Sessions" keyOf=${(each) => each.code} selected=${code} onSelect=${choose} row=${(each) => html`
            <span class="line"><strong class="mono">${each.code}</strong><small>${count(each.toolCount, "tool")}</small><${Badge} value=${stateOf(each)}/></span>
            <span class="cut"><${Text} value=${each.pluginType || "no type"} longest=${60}/> · expires <${Since} moment=${each.expiresAt}/></span>`}/>`}<//>
      ${code ? html`<${Detail} key=${code} code=${code} visitor=${visitor} back=${() => choose(null)}/>`
        : html`<${Card}><${Empty} title="Choose a session">Its tools, its application and its events appear here.<//><//>`}
    </div>`;
}

function Detail({ code, visitor, back }) {
  const metadata = useAnswer(`/api/sessions/${code}/metadata`);
  const log = useAnswer(`/api/sessions/${code}/events`);
  const [live, setLive] = useState([]);
  const [over, setOver] = useState("");
  const state = useEvents(`/api/sessions/${code}/stream`, ({ event, data, id }) => {
    if (event === "heartbeat") return;
    if (event === "error") setOver(data.code ?? "ended");
    if (event === "tool-availability-update" || event === "plugin-status" || event === "connected" || event === "resync") metadata.reload();
    if (event !== "connected") setLive((before) => [{ event, data, id, at: Date.now() / 1000 }, ...before].slice(0, MOST_EVENTS));
  }, { skip: Boolean(over) });
  const session = metadata.data;
  const [prompt, setPrompt] = useState("");
  const [problem, setProblem] = useState(null);
  // Asked again each time: the tools may be others by then.
  const showPrompt = () => (prompt ? setPrompt("") : askText(`/api/sessions/${code}/prompt`, { headers: { accept: "text/markdown" } })
    .then((text) => { setPrompt(text); setProblem(null); }, setProblem));
  const events = [...live, ...[...(log.data?.events ?? [])].reverse().filter((old) => !live.some((each) => each.id === String(old.id)))].slice(0, MOST_EVENTS);
  if (metadata.error) return html`<div class="detail"><button type="button" class="plain back" onClick=${back}>‹ All sessions</button><${Problem} error=${metadata.error} retry=${metadata.reload}/></div>`;
  return html`<div class="detail">
    <button type="button" class="plain back" onClick=${back}>‹ All sessions</button>
    <${Card}><div class="line"><h2 class="mono name">${code}</h2><span class="live" data-state=${over ? "refused" : state}>${over ? over.replaceAll("_", " ") : state}</span></div>
      ${!session ? html`<${Loading}/>` : html`<dl class="facts">
        <dt>Application</dt><dd><${Text} value=${session.pluginType || "no type"} longest=${80}/></dd>
        <dt>Revision</dt><dd>${session.revision}</dd>
        <dt>Last change</dt><dd>${session.lastUpdated ? html`<${Since} moment=${session.lastUpdated}/>` : "–"}</dd>
        <dt>Expires</dt><dd><${Since} moment=${session.expiresAt}/></dd>
        ${session.capabilities.length > 0 && html`<dt>Capabilities</dt><dd><div class="labels">${session.capabilities.map((each) => html`<${Badge} key=${each.type} tone="fact">${each.type} ${each.level}<//>`)}</div></dd>`}
      </dl>
      <div class="actions">${visitor.can("tools:call") && html`<a class="plain" href=${`#/chat/${code}`}>Chat with its tools</a>`}
        <button type="button" aria-expanded=${Boolean(prompt)} onClick=${showPrompt}>Prompt for a model</button></div>
      <${Problem} error=${problem}/>${prompt && html`<${Code} value=${prompt} label="Prompt" longest=${MOST_PROMPT}/>`}`}<//>
    <${Card} title="Tools" note=${session && count(session.tools.length, "tool")}>
      ${session && !session.tools.length && html`<${Empty} title=${session.registered ? "It lends nothing now" : "Not registered yet"}/>`}
      <ul class="rows lent" aria-live="polite">${(session?.tools ?? []).map((each) => html`<li key=${each.name}><div><strong class="mono"><${Text} value=${each.name} longest=${130}/></strong>
        <p class="reason"><${Text} value=${each.description ?? ""} longest=${240}/></p></div><span></span>
        <${Badge} tone=${each.available === false ? "wait" : "good"}>${each.available === false ? REASONS[each.reason] ?? each.reason ?? "unavailable" : "available"}<//></li>`)}</ul><//>
    <${Card} title="Events" note=${html`newest first${events.length > 0 && html` · ${count(events.length, "event")}`}`}>
      ${events.length ? html`<ol class="events">${events.map((each, n) => html`<li key=${`${each.id}-${n}`}><details><summary><b>${each.event}</b> <${Text} value=${summary(each)} longest=${160}/> <small class="quiet">${each.data?.timestamp ? clock(each.data.timestamp) : each.at ? clock(each.at) : ""}</small></summary><${Code} value=${each.data} label="Event" longest=${4_000}/></details></li>`)}</ol>`
        : html`<${Empty} title="No events yet"/>`}<//>
  </div>`;
}

function summary({ event, data }) {
  if (event === "tool-availability-update") {
    const { added = [], removed = [], modified = [] } = data.updates ?? {};
    const names = (list) => list.map((each) => each.name ?? each).join(", ");
    return [added.length && `added ${names(added)}`, removed.length && `removed ${names(removed)}`, modified.length && `changed ${names(modified)}`, data.reason && `(${data.reason})`].filter(Boolean).join(" ");
  }
  return data?.status ?? data?.tool ?? data?.code ?? "";
}
