// Calls: a live stream of answered calls, with filters, and what is known of one.
import { useAnswer } from "../api.js";
import { useCalls } from "../followed_calls.js";
import { Gates } from "./tools.js";
import { isQuestion } from "../waterfall_groups.js";
import { Badge, Card, clock, Code, Copy, count, duration, Empty, html, Loading, parsed, Problem, Search, stateWord, Text, useMemo, useState, VirtualList } from "../ui.js";

const ROW = 38;
const REFUSED = new Set(["denied", "limited", "unavailable", "unknown_tool"]);  // their gates say which line of the file it was
const PLACES = { native: "Provider", session: "Session tool", mcp: "MCP server", remote: "Remote host" };

export function Calls({ visitor, rest }) {
  const [paused, setPaused] = useState(false);
  const [search, setSearch] = useState("");
  const [status, setStatus] = useState("");
  const { calls, skipped, state, clear } = useCalls(paused);
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return calls.filter((call) => (!status || (status === "failed" ? call.status !== "success" : call.status === status))
      && words.every((word) => [call.tool, call.subject, call.source, call.session, call.agent, call.call_id, call.request_id, visitor.can("operator") ? call.tenant : ""]
        .some((text) => text && text.toLowerCase().includes(word))));
  }, [calls, search, status]);
  const statuses = useMemo(() => [...new Set(calls.map((call) => call.status))].sort(), [calls]);
  const chosen = Number(rest[0]) || null;
  const choose = (call) => { location.hash = call ? `#/calls/${call.id}` : "#/calls"; };
  const failed = found.reduce((n, call) => n + (call.status !== "success" && !isQuestion(call)), 0);
  return html`<header class="page"><div><h1>Calls</h1><p class="quiet">Every call as it is answered${visitor.can("operator") ? ", of all tenants" : " for your tenant"}, refused ones too.</p></div>
      <div class="actions"><span class="live" data-state=${paused ? "paused" : state} role="status">${paused ? "paused" : { live: "live", connecting: "connecting", refused: "not allowed" }[state]}</span>
        <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
        <button type="button" onClick=${clear}>Clear</button></div></header>
    <div class="toolbar">
      <div class="grow"><${Search} value=${search} onInput=${setSearch} label="Search tools, callers, sessions and ids"/></div>
      <label>Status<select value=${status} onChange=${(event) => setStatus(event.target.value)}><option value="">all</option><option value="failed">all but success</option>${
        statuses.map((each) => html`<option key=${each} value=${each}>${stateWord(each)}</option>`)}</select></label>
    </div>
    <div class=${`split wide${chosen ? "" : " alone"}`} data-open=${Boolean(chosen)}>
      <${Card} class="list" title="Stream" note=${html`${count(found.length, "call")}${failed > 0 && html` · <span class="tone bad">${failed.toLocaleString("en")} failed</span>`}${skipped > 0 && html` · ${count(skipped, "more call")} not shown`}`}>
        <div class="heads" aria-hidden="true"><span>Time</span><span>Tool</span><span>Caller</span><span class="number">Took</span><span>Status</span></div>
        ${found.length ? html`<${VirtualList} class="stream" items=${found} height=${ROW} label="Calls, the newest first" keyOf=${(call) => call.id} selected=${chosen} onSelect=${choose}
            row=${(call) => html`<${Row} call=${call} visitor=${visitor}/>`}/>`
          : html`<${Empty} title=${calls.length ? "No call matches" : state === "live" ? "Waiting for the next call" : "Connecting"}>${
            calls.length ? "Change the search or the status." : visitor.remember || visitor.keep_calls ? "No call was made in the last hour. New ones appear here by themselves." : "Calls appear here from now on; with the setting remember of the console, earlier ones too."}<//>`}
      <//>
      ${chosen && html`<${CallDetail} key=${chosen} id=${chosen} listed=${calls.find((call) => call.id === chosen)} visitor=${visitor} back=${() => choose(null)}/>`}
    </div>`;
}

// A call does not change once it is answered: its row is drawn once, and moved down as others come.
const Row = ({ call, visitor }) => useMemo(() => drawRow(call, visitor), [call, visitor]);

function drawRow(call, visitor) {
  return html`<div class="call"><time class="mono">${clock(call.ts)}</time>
    <span class="tool"><strong><${Text} value=${call.tool} longest=${100}/></strong>${call.source && html`<small><${Text} value=${call.source} longest=${60}/></small>`}${call.would && html`<small class="tone bad">would: denied</small>`}</span>
    <span class="cut"><${Text} value=${call.subject} longest=${60}/>${visitor.can("operator") && call.tenant !== visitor.tenant && html` · <${Text} value=${call.tenant} longest=${40}/>`}${call.session && html` · <span class="mono">${call.session}</span>`}</span>
    <span class="number">${duration(call.duration_s)}</span><${CallStatus} call=${call}/></div>`;
}

/** How a call ended; one that was denied since a person has to approve it was asked about. */
const CallStatus = ({ call }) => (isQuestion(call) ? html`<${Badge} tone="wait">asked<//>` : html`<${Badge} value=${call.status}/>`);

/** What is known of one call, for who may see it. */
export function CallDetail({ id, listed, visitor, back, children }) {
  const { data, error, reload } = useAnswer(`/console/calls/${id}`);
  const call = data ?? listed;
  if (!call) return error ? html`<${Card} title="Call"><${Problem} error=${{ title: "This call is gone.", message: error.message }} retry=${reload}/><button type="button" class="plain" onClick=${back}>Back to the stream</button><//>` : html`<${Card} title="Call"><${Loading}/><//>`;
  const fact = (name, value, mono) => value != null && value !== "" && html`<dt>${name}</dt><dd class=${mono ? "mono copied" : ""}><${Text} value=${value} longest=${300}/>${mono && html`<${Copy} text=${value} label=${name}/>`}</dd>`;
  return html`<div class="detail">
    <button type="button" class="plain back" onClick=${back}>‹ All calls</button>
    <${Card}>
      <div class="line"><h2 class="mono name"><${Text} value=${call.tool} longest=${200}/></h2><button type="button" class="close" aria-label="Close" onClick=${back}>✕</button></div>
      <div class="labels"><${CallStatus} call=${call}/><span class="quiet">${call.duration_s == null ? "the tool was not reached" : `took ${duration(call.duration_s)}`}</span>${call.would && html`<${Badge} tone="bad">would: denied<//>`}</div>
      ${call.reason && html`<p class=${call.status === "success" ? "" : "why"}><${Text} value=${call.reason} longest=${600}/></p>`}
      <dl class="facts">
        ${fact("Answered", new Date(call.ts * 1000).toLocaleString("en-GB"))}
        ${fact(PLACES[call.kind] ?? "Place", call.source)}
        ${fact("Only watched", call.would)}${fact("Caller", call.subject)}${fact("Tenant", call.tenant)}${fact("Agent", call.agent)}${fact("Session", call.session, true)}
        ${fact("Call", call.call_id, true)}${fact("Request", call.request_id, true)}${fact("Trace", call.trace_id, true)}
      </dl>
      <div class="actions"><a class="plain" href=${`#/tools/${encodeURIComponent(call.tool)}`}>Open the tool, its gates and a form to try it</a>
        ${!children && html`<a class="plain" href=${`#/waterfall/call/${call.id}`}>Its waterfall</a>`}</div>
    <//>
    ${data?.place && html`<${Card} title="Where it crashed"><${Code} value=${data.place} label="Where it crashed"/><p class="quiet">On a developer's machine <code>toolplug why ${call.request_id || call.call_id}</code> has the full trace.</p><//>`}
    ${data && html`<${Card} title="Arguments and result">
      ${data.arguments != null ? html`<h3>Arguments</h3><${Code} value=${parsed(data.arguments)} label="Arguments"/><h3>Result</h3><${Code} value=${parsed(data.output)} label="Result"/>`
        : html`<${Empty} title="Not kept">${call.sensitive ? "This tool is sensitive." : !data.own ? "Only the caller and admin see them." : visitor.keep_calls ? "Newer calls took its place, or the host was started again." : html`Set <code>keep_calls</code> of the console to keep them.`}<//>`}<//>`}
    ${error && html`<${Card} title="Arguments and result"><${Empty} title="Not remembered any longer">${error.message}<//><//>`}
    ${REFUSED.has(call.status) && visitor.can("admin") && call.tenant === visitor.tenant && !children && html`<${Gates} name=${call.tool} query=${{ agent: call.agent, session: call.session }}/>`}
    ${children}
  </div>`;
}
