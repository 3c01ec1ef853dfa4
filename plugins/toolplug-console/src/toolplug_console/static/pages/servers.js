// Servers: MCP servers with their status and tools; quarantined definitions, which an operator may accept.
import { ask, useAnswer } from "../api.js";
import { Connections } from "../connections.js";
import { Difference } from "../difference.js";
import { VERDICTS } from "./tools.js";
import { FormButton, ServerForm } from "../yaml_forms.js";
import { Badge, Card, count, Code, Empty, html, Loading, pretty, Problem, Since, Text, useState } from "../ui.js";

const EXAMPLE = "mcp_servers:\n  time: {command: uvx, args: [mcp-server-time], prefix: time}\n  docs: {url: https://mcp.example/mcp, prefix: docs}";

export function Servers({ visitor, rest }) {
  const { data, error, reload } = useAnswer("/api/mcp-servers", { every: 4_000 });
  const servers = (data?.servers ?? []).filter((each) => !each.id.startsWith("preview-"));
  // Where there is room for both, the first is open.
  const chosen = servers.find((each) => each.id === rest[0]) ?? (!rest[0] && matchMedia(WIDE).matches ? servers[0] : undefined);
  return html`<header class="page"><div><h1>Servers</h1><p class="quiet">MCP servers, what was found of their tools, and what waits to be accepted.</p></div>
      <${FormButton} label="Add a server" title="Add an MCP server"><${ServerForm} visitor=${visitor} done=${reload}/><//></header>
    <${Problem} error=${error} retry=${reload}/>
    <${Connections}/>
    <div class="split" data-open=${Boolean(rest[0])}>
      <${Card} class="list pad" title="MCP servers" note=${data && count(servers.length, "server")}>
        ${!data && !error && html`<${Loading}/>`}
        ${data && !servers.length && html`<${Empty} title="No MCP servers"><em>Add a server</em> gives the lines for one, as here.<//><${Code} value=${EXAMPLE} label="Lines of providers.yaml"/>`}
        <ul class="rows pick">${servers.map((each) => html`<li key=${each.id} class=${each === chosen ? "chosen" : ""}>
          <div><a href=${`#/servers/${encodeURIComponent(each.id)}`} aria-current=${each === chosen ? "true" : undefined}><${Text} value=${each.id} longest=${64}/></a></div>
          <span class="number">${count(each.tools.length, "tool")}</span><${ServerState} server=${each}/>
          <p class="reason">${quarantined(each).length > 0 ? html`<span class="tone wait">${quarantined(each).length} of ${count(each.tools.length, "tool")} in quarantine</span>` : html`checked <${Since} moment=${each.lastDiscovery}/>`}</p></li>`)}</ul><//>
      ${chosen ? html`<${Detail} key=${chosen.id} server=${chosen} visitor=${visitor} done=${reload}/>` : html`<${Card}><${Empty} title="Choose a server">Its tools and its status appear here.<//><//>`}
    </div>`;
}

const WIDE = "(min-width: 52.01rem)";
const MOST_WAITING = 50;

/** How a server is; one that is up and whose tools are all in quarantine serves nothing. */
export function ServerState({ server }) {
  const held = quarantined(server).length;
  return server.state === "up" && held > 0 && held === server.tools.length ? html`<${Badge} tone="wait">${held} of ${held} quarantined<//>` : html`<${Badge} value=${server.state}/>`;
}

const quarantined = (server) => server.tools.filter((tool) => tool.quarantined);

function Detail({ server, visitor, done }) {
  const [state, setState] = useState({});
  const act = async (word, path, body) => {
    setState({ busy: word });
    try {
      await ask("POST", `/api/mcp-servers/${encodeURIComponent(server.id)}/${path}`, { body: body ?? undefined });
      setState({});
    } catch (error) {
      setState({ error });
    }
    done();
  };
  const waiting = quarantined(server);
  const fine = server.tools.filter((tool) => !tool.quarantined);
  const needed = server.source === "file" ? "operator" : "admin";
  const manages = visitor.can(needed);
  const catalog = useAnswer("/api/catalog");
  // Its tools by their own name: in the catalog they are prefix.name, or server/name where nothing offers them.
  const offered = new Map((catalog.data?.tools ?? []).filter((tool) => tool.server === server.id).map((tool) => [tool.name.slice(tool.name.search(/[./]/) + 1), tool]));
  const held = [...offered.values()];
  const closed = fine.length > 0 && held.length > 0 && held.every((tool) => tool.verdict === "refuses" && tool.reason === held[0].reason) && held[0].reason;
  return html`<div class="detail">
    <a class="plain back" href="#/servers">‹ All servers</a>
    <${Card}>
      <div class="line"><h2 class="name"><${Text} value=${server.id} longest=${64}/></h2>${manages && server.enabled && html`<button type="button" disabled=${Boolean(state.busy)} onClick=${() => act("discover", "discover?wait=true")}>${state.busy === "discover" ? "Discovering …" : "Discover again"}</button>`}</div>
      <div class="labels"><${ServerState} server=${server}/>${server.pin && html`<${Badge} tone="fact">pinned<//>`}<${Badge} tone="fact">from ${server.source === "file" ? "the file" : "the API"}<//></div>
      <${Problem} error=${state.error}/>
      ${server.error && html`<p class="why"><${Text} value=${server.error} longest=${1_000}/></p>`}
      <dl class="facts"><dt>Last discovery</dt><dd><${Since} moment=${server.lastDiscovery}/></dd>
        ${server.nextRetry && html`<dt>Next attempt</dt><dd><${Since} moment=${server.nextRetry}/></dd>`}
        <dt>Policy</dt><dd>${typeof server.policy === "string" ? server.policy : "ask the caller"}</dd>
        ${server.transport && Object.entries(server.transport).filter(([, value]) => value?.length !== 0).map(([name, value]) => html`<dt key=${name}>${name === "url" ? "URL" : name[0].toUpperCase() + name.slice(1)}</dt><dd class="mono"><${Text} value=${typeof value === "string" ? value : JSON.stringify(value)} longest=${400}/></dd>`)}</dl>
    <//>
    ${waiting.length > 0 && html`<${Card} title="Quarantine" note=${count(waiting.length, "tool")} actions=${manages && html`<button type="button" class="primary" disabled=${Boolean(state.busy)} onClick=${() => act("accept", "accept", {})}>Accept all</button>`}>
      <p class="quiet">These are new, or their definitions have changed, since the server was accepted. They cannot be called until someone with the scope ${needed} accepts them.</p>
      ${waiting.slice(0, MOST_WAITING).map((tool) => html`<${Quarantined} key=${tool.name} tool=${tool} accept=${manages && (() => act("accept", "accept", { tools: [tool.name] }))} busy=${Boolean(state.busy)}/>`)}
      ${waiting.length > MOST_WAITING && html`<p class="quiet">${count(waiting.length - MOST_WAITING, "more tool")} in quarantine.</p>`}<//>`}
    ${(fine.length > 0 || !waiting.length) && html`<${Card} title="Tools" note=${fine.length > 0 && count(fine.length, "tool")}>
      ${!fine.length && html`<p class="quiet">None are known. They appear here when the server has listed them.</p>`}
      ${closed && html`<p class="why"><${Text} value=${closed} longest=${400}/></p>`}
      <ul class="rows">${fine.slice(0, 500).map((tool) => html`<li key=${tool.name}><div>${offered.has(tool.name) ? html`<a class="named mono" href=${`#/tools/${encodeURIComponent(offered.get(tool.name).name)}`}><${Text} value=${tool.name} longest=${130}/></a>` : html`<strong class="mono"><${Text} value=${tool.name} longest=${130}/></strong>`}</div><span></span>${offered.has(tool.name) ? html`<${Badge} tone=${VERDICTS[offered.get(tool.name).verdict]}>${offered.get(tool.name).verdict}<//>` : html`<span></span>`}
        <p class="reason"><${Text} value=${tool.description} longest=${300}/>${tool.cut.length > 0 && html` <span class="tone wait">removed: <${Text} value=${tool.cut.join("; ")} longest=${300}/></span>`}</p></li>`)}</ul>
      ${server.leftOut.length > 0 && html`<details><summary class="quiet">${count(server.leftOut.length, "tool")} left out</summary><ul>${server.leftOut.slice(0, 100).map((each) => html`<li key=${each}><${Text} value=${each} longest=${300}/></li>`)}</ul></details>`}<//>`}
  </div>`;
}

/** A tool in quarantine: what has changed of its accepted definition, or the whole of a new one. */
function Quarantined({ tool, accept, busy }) {
  const { accepted, isNew } = tool;
  const parts = accepted ? [["Description", accepted.description, tool.description], ["Input schema", pretty(accepted.inputSchema), pretty(tool.inputSchema)],
    ["Output schema", pretty(accepted.outputSchema), pretty(tool.outputSchema)]].filter(([, before, after]) => before !== after) : [];
  return html`<div class="quarantined"><div class="line"><strong class="mono name"><${Text} value=${tool.name} longest=${130}/></strong><${Badge} tone=${isNew ? "fact" : "wait"}>${isNew ? "new" : "changed"}<//>${
      accept && html`<button type="button" disabled=${busy} onClick=${accept} aria-label=${`Accept ${tool.name}`}>Accept</button>`}</div>
    ${!accepted && !isNew && html`<p class="quiet">The accepted definition is not kept, so that only the new one can be shown.</p>`}
    ${parts.map(([title, before, after]) => html`<h3 key=${title}>${title}</h3><${Difference} before=${before} after=${after} label=${`${title}, what has changed`}/>`)}
    ${!accepted && html`<p><${Text} value=${tool.description} longest=${1_000}/></p><${Code} value=${tool.inputSchema} label="Input schema" longest=${6_000}/>`}</div>`;
}
