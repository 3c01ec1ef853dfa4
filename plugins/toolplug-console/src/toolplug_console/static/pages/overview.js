// Overview: what runs, how it does, and what the last reload changed.
import { ask, useAnswer, useEvents } from "../api.js";
import { Chart, useMeasures } from "../measures.js";
import { Badge, Card, count, duration, Empty, html, Loading, Problem, Since, Text, useState } from "../ui.js";

const EVERY_MS = 5_000;
const SHOWN = 50;

export function Overview({ visitor }) {
  const providers = useAnswer("/v1/providers");
  useEvents("/console/providers", providers.reload);
  const servers = useAnswer("/api/mcp-servers", { every: EVERY_MS });
  const sessions = useAnswer("/api/sessions", { every: EVERY_MS });
  const series = useMeasures();
  const configured = providers.data?.providers.filter((each) => each.state !== "installed-not-enabled");
  return html`<header class="page"><div><h1>Overview</h1><p class="quiet">What runs on this host, and how it does.</p></div></header>
    <div class="tiles">
      <${Tile} label="Providers" all=${configured} good=${(each) => each.state === "active"} word="active" href="#/overview"/>
      <${Tile} label="MCP servers" all=${servers.data?.servers} good=${(each) => each.state === "up"} word="up" href="#/servers"/>
      <${Tile} label="Sessions" all=${sessions.data?.sessions} good=${(each) => each.pluginStatus === "attached"} word="attached" href="#/sessions"/>
      <div class="tile"><span class="label">Calls since the start</span><strong>${series.total ? series.total.calls.toLocaleString("en") : "–"}</strong>
        <span class="quiet">${series.total ? `${series.total.errors.toLocaleString("en")} not successful` : " "}</span></div>
    </div>
    <${Traffic} series=${series}/>
    <div class="columns">
      <${Providers} found=${providers} visitor=${visitor}/>
      <div class="stack"><${Servers} found=${servers}/><${Sessions} found=${sessions}/></div>
    </div>`;
}

function Tile({ label, all, good, word, href }) {
  const fine = all?.filter(good).length;
  const bad = all && fine < all.length;
  return html`<a class="tile" href=${href}><span class="label">${label}</span><strong>${all ? all.length.toLocaleString("en") : "–"}</strong>
    <span class=${bad ? "tone wait" : "quiet"}>${all ? (all.length ? `${fine.toLocaleString("en")} ${word}` : "none") : " "}</span></a>`;
}

function Traffic({ series }) {
  const last = (name) => series[name].at(-1);
  const calls = last("calls");
  const errors = last("errors");
  const middle = series.middle.findLast((each) => each != null);
  const high = series.high.findLast((each) => each != null);
  const rate = (value) => (value === undefined ? "–" : value.toFixed(value < 10 ? 1 : 0));
  return html`<div class="charts">
    <${Card} title="Calls a second" note=${html`<b>${rate(calls)}</b> now`}>
      <${Chart} at=${series.at} label=${`Calls a second: ${rate(calls)} now`} lines=${[{ values: series.calls, colour: "accent", fill: true }]}/><//>
    <${Card} title="Failures a second" note=${html`<b>${rate(errors)}</b> now`}>
      <${Chart} at=${series.at} label=${`Failures a second: ${rate(errors)} now`} lines=${[{ values: series.errors, colour: "chosen", fill: true }]}/><//>
    <${Card} title="Latency" note=${html`p50 <b>${duration(middle / 1000)}</b> · p95 <b>${duration(high / 1000)}</b>`}>
      <${Chart} at=${series.at} unit="ms" label=${`Latency: half of the calls below ${duration(middle / 1000)}, 95 percent below ${duration(high / 1000)}`}
        lines=${[{ values: series.middle, colour: "accent" }, { values: series.high, colour: "chosen" }]}/><//>
  </div>`;
}

function Providers({ found, visitor }) {
  const [all, setAll] = useState(false);
  const rows = found.data?.providers ?? [];
  const configured = rows.filter((each) => each.state !== "installed-not-enabled");
  const installed = rows.length - configured.length;
  return html`<${Card} title="Providers" note=${found.data && count(configured.length, "provider")} actions=${visitor.can("operator") && html`<${Reload} done=${found.reload}/>`}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading}/>`}
    <ul class="rows">${(all ? rows : configured).slice(0, SHOWN).map((each) => html`<li key=${each.key}>
      <div><strong><${Text} value=${each.key} longest=${64}/></strong><small class="quiet">${each.distribution ? `${each.distribution} ${each.version}` : each.type}</small></div>
      <span class="number">${count(each.tools.length, "tool")}</span><${Badge} value=${each.state}/>
      ${each.reason && html`<p class="reason"><${Text} value=${each.reason} longest=${300}/>${each.fix && html` <em><${Text} value=${each.fix} longest=${200}/></em>`}</p>`}</li>`)}</ul>
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

function Servers({ found }) {
  const rows = found.data?.servers ?? [];
  return html`<${Card} title="MCP servers" note=${found.data && rows.length > 0 && count(rows.length, "server")}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading} rows=${2}/>`}
    ${found.data && !rows.length && html`<${Empty} title="No MCP servers">Servers under <code>mcp_servers</code>, and those added over HTTP, appear here.<//>`}
    <ul class="rows">${rows.slice(0, SHOWN).map((each) => html`<li key=${each.id}><div><strong><${Text} value=${each.id} longest=${64}/></strong></div>
      <span class="number">${count(each.tools.length, "tool")}</span><${Badge} value=${each.state}/>
      ${each.error && html`<p class="reason"><${Text} value=${each.error} longest=${300}/></p>`}</li>`)}</ul><//>`;
}

function Sessions({ found }) {
  const rows = found.data?.sessions ?? [];
  return html`<${Card} title="Sessions" note=${found.data && rows.length > 0 && count(rows.length, "session")}>
    <${Problem} error=${found.error} retry=${found.reload}/>
    ${!found.data && !found.error && html`<${Loading} rows=${2}/>`}
    ${found.data && !rows.length && html`<${Empty} title="No sessions">An application that registers its tools appears here.<//>`}
    <ul class="rows">${rows.slice(0, 8).map((each) => html`<li key=${each.code}><div><strong class="mono">${each.code}</strong><small class="quiet"><${Text} value=${each.pluginType} longest=${40}/> · expires <${Since} moment=${each.expiresAt}/></small></div>
      <span class="number">${count(each.toolCount, "tool")}</span><${Badge} value=${each.pluginStatus}/></li>`)}</ul>
    ${rows.length > 8 && html`<a class="plain" href="#/sessions">All ${count(rows.length, "session")}</a>`}<//>`;
}
