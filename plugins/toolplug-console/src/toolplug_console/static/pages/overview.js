// Overview: what runs, how it does, and what the last reload changed.
import { ask, useAnswer, useEvents } from "../api.js";
import { Chart, hourOf, Spark, useHour } from "../measures.js";
import { FormButton, PackageForm } from "../yaml_forms.js";
import { ServerState } from "./servers.js";
import { stateOf } from "./sessions.js";
import { Badge, Card, count, duration, Empty, html, Loading, Problem, Since, Text, useState } from "../ui.js";

const EVERY_MS = 5_000;
const SHOWN = 50;

export function Overview({ visitor }) {
  const providers = useAnswer("/v1/providers");
  useEvents("/console/providers", providers.reload);
  const servers = useAnswer("/api/mcp-servers", { every: EVERY_MS });
  const sessions = useAnswer("/api/sessions", { every: EVERY_MS });
  const hour = useHour();
  const configured = providers.data?.providers.filter((each) => each.state !== "installed-not-enabled");
  return html`<header class="page"><div><h1>Overview</h1><p class="quiet">What runs on this host, and how it does.</p></div></header>
    <div class="tiles">
      <${Tile} label="Providers" all=${configured} state=${(each) => each.state} good="active" href="#/overview"/>
      <${Tile} label="MCP servers" all=${servers.data?.servers} state=${(each) => each.state} good="up" href="#/servers"/>
      <${Tile} label="Sessions" all=${sessions.data?.sessions} state=${stateOf} good="attached" href="#/sessions"/>
      <a class="tile" href="#/calls"><span class="label">Calls in the last hour</span><strong>${hour?.calls ? hour.sum.toLocaleString("en") : "–"}</strong>
        <span class=${hour?.failures ? "tone bad" : "quiet"}>${hour?.calls ? (hour.failures ? `${hour.failures.toLocaleString("en")} not successful` : hour.sum ? "all successful" : "none") : " "}</span></a>
    </div>
    ${hour?.none ? html`<p class="quiet">This console remembers no calls: its setting <code>remember</code> is false.</p>` : html`<${Traffic} hour=${hour}/>`}
    <div class="columns">
      <div class="stack"><${Providers} found=${providers} visitor=${visitor} hour=${hour}/><${Busiest} hour=${hour}/></div>
      <div class="stack"><${Servers} found=${servers} hour=${hour}/><${Sessions} found=${sessions}/></div>
    </div>`;
}

/** How many there are, and how many in each state, the good one first. */
function Tile({ label, all, state, good, href }) {
  const states = [...new Set([good, ...(all ?? []).map(state)])].map((each) => [each, (all ?? []).filter((one) => state(one) === each).length]).filter(([, number]) => number);
  const bad = states.some(([each]) => each !== good);
  return html`<a class="tile" href=${href}><span class="label">${label}</span><strong>${all ? all.length.toLocaleString("en") : "–"}</strong>
    <span class=${bad ? "tone wait" : "quiet"}>${all ? states.map(([each, number]) => `${number.toLocaleString("en")} ${each.replaceAll("-", " ").replaceAll("_", " ")}`).join(", ") || "none" : " "}</span></a>`;
}

function Traffic({ hour }) {
  const found = hour ?? { at: [], calls: [], failed: [], p50: [], p95: [] };
  const now = (name) => { const last = found[name].slice(-2); return last.length ? last.reduce((sum, each) => sum + each, 0) / last.length : undefined; };
  const newest = (name) => found[name].findLast((each) => each != null);
  const rate = (value) => (value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 }));
  const [calls, failed, middle, high] = [now("calls"), now("failed"), newest("p50"), newest("p95")];
  return html`<div class="charts">
    <${Card} title="Calls a second" note=${html`<b>${rate(calls)}</b> now`}>
      <${Chart} at=${found.at} unit="rate" label=${`Calls a second in the last hour: ${rate(calls)} now`} lines=${[{ values: found.calls, colour: "accent", fill: true }]}/><//>
    <${Card} title="Failures a second" note=${html`<b>${rate(failed)}</b> now`}>
      <${Chart} at=${found.at} unit="rate" label=${`Failures a second in the last hour: ${rate(failed)} now`} lines=${[{ values: found.failed, colour: "chosen", fill: true }]}/><//>
    <${Card} title="Latency" note=${html`<span class="key accent">p50</span> <b>${duration(middle)}</b> <span class="key chosen">p95</span> <b>${duration(high)}</b>`}>
      <${Chart} at=${found.at} unit="duration" label=${`Latency in the last hour: of the newest calls half took less than ${duration(middle)}, 95 percent less than ${duration(high)}`}
        lines=${[{ values: found.p50, colour: "accent" }, { values: found.p95, colour: "chosen" }]}/><//>
  </div>`;
}

const MOST_BUSY = 8;

/** The tools with the most calls of the hour. */
function Busiest({ hour }) {
  const tools = (hour?.tools ?? []).slice(0, MOST_BUSY);
  return tools.length > 0 && html`<${Card} title="Busiest tools" note="in the last hour">
    <ul class="rows sparks busy">${tools.map((each) => { const numbers = { calls: each.calls, failed: each.failed }; const sum = (name) => each[name].reduce((a, b) => a + b, 0); return html`<li key=${`${each.kind} ${each.source} ${each.tool}`}>
      <div><a class="named" href=${`#/tools/${encodeURIComponent(each.tool)}`}><${Text} value=${each.tool} longest=${100}/></a><small class="quiet"><${Text} value=${each.source} longest=${60}/></small></div>
      <${Spark} numbers=${numbers}/><span class="number">${sum("calls").toLocaleString("en")}${sum("failed") > 0 && html` · <span class="tone bad">${sum("failed").toLocaleString("en")} failed</span>`}</span></li>`; })}</ul><//>`;
}

function Providers({ found, visitor, hour }) {
  const [all, setAll] = useState(false);
  const rows = found.data?.providers ?? [];
  const configured = rows.filter((each) => each.state !== "installed-not-enabled");
  const installed = rows.length - configured.length;
  return html`<${Card} title="Providers" note=${found.data && count(configured.length, "provider")} actions=${visitor.can("operator") && html`<${Reload} done=${found.reload}/>`}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading}/>`}
    <ul class="rows sparks">${configured.slice(0, SHOWN).map((each) => html`<li key=${each.key}>
      <div><strong><${Text} value=${each.key} longest=${64}/></strong><small class="quiet cut" title=${each.distribution || each.type}>${(each.distribution || each.type).replace(/^.*[/\\]/, "")} ${each.version}</small></div>
      ${hour?.calls ? html`<${Spark} numbers=${hourOf(hour, (tool) => tool.kind === "native" && tool.source === each.key)}/>` : html`<span></span>`}<span class="number">${count(each.tools.length, "tool")}</span><${Badge} value=${each.state}/>
      ${each.reason && html`<p class="reason"><${Text} value=${each.reason} longest=${300}/>${each.fix && html`; <em><${Text} value=${each.fix} longest=${200}/></em>`}</p>`}</li>`)}</ul>
    ${all && html`<ul class="rows installed">${rows.filter((each) => !configured.includes(each)).slice(0, SHOWN).map((each) => html`<li key=${each.key}>
      <div><strong><${Text} value=${each.key} longest=${64}/></strong><small class="quiet">${each.distribution} ${each.version}</small></div>
      ${visitor.can("admin") && html`<${FormButton} label="Enable" title=${`Enable ${each.distribution || each.key}`}><${PackageForm} provider=${each} visitor=${visitor}/><//>`}</li>`)}</ul>`}
    ${found.data && !configured.length && html`<${Empty} title="No provider is configured">Add one to <code>providers.yaml</code>, then reload.<//>`}
    ${installed > 0 && html`<button type="button" class="plain" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Hide" : "Show"} ${count(installed, "package")} that ${installed === 1 ? "is" : "are"} only installed</button>`}
  <//>`;
}

function Reload({ done }) {
  const [state, setState] = useState({});
  const reload = async () => {
    setState({ busy: true });
    try {
      setState({ last: await ask("POST", "/v1/reload") });
    } catch (error) {
      setState({ error });
    }
    done();
  };
  const { last, error } = state;
  const parts = last && [["started", last.started], ["stopped", last.stopped], ["unchanged", last.kept]].filter(([, keys]) => keys.length);
  return html`<button type="button" disabled=${state.busy} onClick=${reload}>${state.busy ? "Reloading …" : "Reload"}</button>
    ${(last || error) && html`<div class="after" role="status">
      ${last && html`<p>Configuration reloaded: ${parts.map(([word, keys], n) => html`${n > 0 && "; "}${word} <${Text} value=${keys.join(", ")} longest=${200}/>`)}.</p>`}
      ${error && html`<p class="tone bad">${error.message}</p><ul>${error.problems.slice(0, 20).map((each) => html`<li><code>${each.file}${each.line ? `:${each.line}` : ""}</code> <${Text} value=${each.message} longest=${300}/></li>`)}</ul>`}
    </div>`}`;
}

function Servers({ found, hour }) {
  const rows = found.data?.servers ?? [];
  return html`<${Card} title="MCP servers" note=${found.data && rows.length > 0 && count(rows.length, "server")}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading} rows=${2}/>`}
    ${found.data && !rows.length && html`<${Empty} title="No MCP servers">Servers under <code>mcp_servers</code>, and those added over HTTP, appear here.<//>`}
    <ul class="rows sparks">${rows.slice(0, SHOWN).map((each) => html`<li key=${each.id}><div><a class="named" href=${`#/servers/${encodeURIComponent(each.id)}`}><${Text} value=${each.id} longest=${64}/></a></div>
      ${hour?.calls ? html`<${Spark} numbers=${hourOf(hour, (tool) => tool.kind === "mcp" && tool.source === each.id)}/>` : html`<span></span>`}<span class="number">${count(each.tools.length, "tool")}</span><${ServerState} server=${each}/>
      ${each.error && html`<p class="reason"><${Text} value=${each.error} longest=${300}/></p>`}</li>`)}</ul><//>`;
}

function Sessions({ found }) {
  const rows = found.data?.sessions ?? [];
  return html`<${Card} title="Sessions" note=${found.data && rows.length > 0 && count(rows.length, "session")}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading} rows=${2}/>`}
    ${found.data && !rows.length && html`<${Empty} title="No sessions">An application that registers its tools appears here.<//>`}
    <ul class="rows">${rows.slice(0, 8).map((each) => html`<li key=${each.code}><div><a class="named mono" href=${`#/sessions/${each.code}`}>${each.code}</a><small class="quiet"><${Text} value=${each.pluginType} longest=${40}/> · expires <${Since} moment=${each.expiresAt}/></small></div>
      <span class="number">${count(each.toolCount, "tool")}</span><${Badge} value=${stateOf(each)}/></li>`)}</ul>
    ${rows.length > 8 && html`<a class="plain" href="#/sessions">All ${count(rows.length, "session")}</a>`}<//>`;
}
