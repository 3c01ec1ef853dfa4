// Tools: whose catalog, each tool with its schema as a form, a call of it, and why it may be called or not.
import { ask, events, useAnswer } from "../api.js";
import { argumentsOf, Fields, fieldsOf } from "../schema_form.js";
import { Badge, Card, Code, count, duration, Empty, html, Loading, Part, Problem, Search, Text, useEffect, useMemo, useRef, useState, VirtualList } from "../ui.js";

const ROW = 58;
const LETTERS_A_TOKEN = 4;

export function Tools({ visitor, rest }) {
  const [search, setSearch] = useState("");
  const [agent, setAgent] = useState("");
  const [session, setSession] = useState("");
  const [tenant, setTenant] = useState("");
  const [admin, operator] = [visitor.can("admin"), visitor.can("operator")];
  const query = useSettled({ agent, session, tenant: tenant === visitor.tenant ? "" : tenant });
  const catalog = useAnswer("/api/catalog", { query, every: 15_000 });
  const definitions = useAnswer("/v1/tools", { query: { ...query, format: "mcp" } });
  const sessions = useAnswer("/api/sessions", { query: { tenant: query.tenant }, every: 15_000 });
  const configuration = useAnswer("/v1/configuration", { skip: !admin });
  const known = useMemo(() => namesIn(configuration.data?.values ?? [], visitor.tenant), [configuration.data]);
  const all = catalog.data?.tools ?? [];
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return words.length ? all.filter((tool) => words.every((word) => tool.name.toLowerCase().includes(word) || tool.description.toLowerCase().includes(word))) : all;
  }, [catalog.data, search]);
  const byName = useMemo(() => new Map((definitions.data?.tools ?? []).map((tool) => [tool._meta?.["toolplug/name"] ?? tool.name, tool])), [definitions.data]);
  const name = rest[0];
  const chosen = all.find((tool) => tool.name === name);
  const choose = (tool) => { location.hash = tool ? `#/tools/${encodeURIComponent(tool.name)}` : "#/tools"; };
  return html`<header class="page"><div><h1>Tools</h1><p class="quiet">What a caller can see, and what each tool does when it is called.</p></div></header>
    <div class="toolbar">
      <div class="grow"><${Search} value=${search} onInput=${setSearch} label="Search names and descriptions"/></div>
      ${operator && html`<label>Tenant<input value=${tenant} list="tenants" placeholder=${visitor.tenant} spellcheck="false" onInput=${(event) => { setTenant(event.target.value.trim()); setSession(""); }}/>
        <datalist id="tenants">${known.tenants.map((each) => html`<option key=${each} value=${each}/>`)}</datalist></label>`}
      <label>Agent<input value=${agent} list="agents" placeholder="none" spellcheck="false" onInput=${(event) => setAgent(event.target.value.trim())}/>
        <datalist id="agents">${known.agents.map((each) => html`<option key=${each} value=${each}/>`)}</datalist></label>
      <label>Session<select value=${session} onChange=${(event) => setSession(event.target.value)}><option value="">none</option>${
        (sessions.data?.sessions ?? []).map((each) => html`<option key=${each.code} value=${each.code}>${each.code}</option>`)}</select></label>
    </div>
    <${Problem} error=${catalog.error} retry=${catalog.reload}/>
    <div class="split" data-open=${Boolean(name)}>
      <${Card} class="list" title="Catalog" note=${catalog.data && (found.length === all.length ? count(all.length, "tool") : `${found.length.toLocaleString("en")} of ${count(all.length, "tool")}`)}>
        ${!catalog.data && !catalog.error ? html`<${Loading} rows=${8}/>` : !found.length
          ? html`<${Empty} title=${all.length ? "No tool matches" : "This catalog is empty"}>${all.length ? "Search for another word." : agent ? "An agent sees only the toolsets that it is allowed." : "Enable a provider, or add an MCP server."}<//>`
          : html`<${VirtualList} items=${found} height=${ROW} label="Tools" keyOf=${(tool) => tool.name} selected=${name} onSelect=${choose} row=${(tool) => html`<${Row} tool=${tool}/>`}/>`}
      <//>
      ${name ? html`<${Detail} key=${name} name=${name} tool=${chosen} definition=${byName.get(name)} waits=${!definitions.data && !definitions.error} query=${query} visitor=${visitor} back=${() => choose(null)}/>`
        : html`<${Card}><${Empty} title="Choose a tool">Its schema, a form to try it, and the gates of a call appear here.<//><//>`}
    </div>`;
}

/** The agents and tenants that a configuration names, to choose from. */
function namesIn(values, own) {
  const found = (pattern, pick) => [...new Set(values.map((each) => pattern.exec(each.path) && pick(each)).filter(Boolean))].sort();
  return {
    agents: found(/^agents\./, (each) => each.path.split(".")[1]),
    tenants: found(/^auth\.api_keys\[\d+\]\.tenant$/, (each) => each.value).filter((each) => each !== own),
  };
}

/** The value, once it has been the same for a moment. */
function useSettled(value) {
  const text = JSON.stringify(value);
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 350);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function Row({ tool }) {
  const home = tool.server ?? tool.toolset ?? (tool.type === "native" ? "" : tool.type);
  return html`<span class="line"><strong><${Text} value=${tool.name} longest=${100}/></strong>${tool.verdict !== "passes" && html`<${Badge} tone=${VERDICTS[tool.verdict]}>${tool.verdict}<//>`}${
    tool.stale && html`<${Badge} value="stale"/>`}${home && html`<small>${home}</small>`}</span>
    <span class="cut"><${Text} value=${tool.description || "No description"} longest=${160}/></span>`;
}

function Detail({ name, tool, definition, waits, query, visitor, back }) {
  const tokens = definition && Math.ceil(JSON.stringify(definition).length / LETTERS_A_TOKEN);
  const facts = definition?.annotations ?? {};
  return html`<div class="detail">
    <button type="button" class="plain back" onClick=${back}>‹ All tools</button>
    <${Card}>
      <div><h2 class="mono"><${Text} value=${name} longest=${200}/></h2></div>
      <p><${Text} value=${tool?.description || definition?.description || "No description"}/></p>
      ${tool?.reason && !visitor.can("admin") && html`<p class="reason"><${Text} value=${tool.reason} longest=${400}/></p>`}
      <div class="labels">
        ${tool ? html`<${Badge} tone="fact">${tool.type}<//>` : html`<${Badge} tone="bad">not in this catalog<//>`}
        ${tool?.server && html`<${Badge} tone="fact">server ${tool.server}<//>`}
        ${tool?.toolset && html`<${Badge} tone="fact">toolset ${tool.toolset}<//>`}
        ${tool && html`<${Badge} tone=${VERDICTS[tool.verdict]}>${tool.verdict}<//>`}
        ${tool && html`<${Badge} tone="fact">policy: ${tool.configuredPolicy}<//>`}
        ${tool?.stale && html`<${Badge} value="stale"/>`}
        ${facts.readOnlyHint && html`<${Badge} tone="good">read only<//>`}${facts.destructiveHint && html`<${Badge} tone="bad">destructive<//>`}
        ${tokens && html`<${Badge} tone="fact">about ${count(tokens, "token")}<//>`}
      </div>
    <//>
    ${visitor.can("admin") && html`<${Gates} name=${name} query=${query}/>`}
    ${query.tenant && html`<p class="quiet">This is the catalog of tenant <${Text} value=${query.tenant} longest=${60}/>. Your own calls are those of tenant <${Text} value=${visitor.tenant} longest=${60}/>.</p>`}
    ${!query.tenant && visitor.can("tools:call") && definition && tool?.callable !== false && html`<${TryIt} name=${name} definition=${definition} query=${query} visitor=${visitor}/>`}
    ${definition ? html`<${Card} title="Schema"><${Code} value=${definition.inputSchema} label="Input schema"/>${
      definition.outputSchema && html`<h3>Output</h3><${Code} value=${definition.outputSchema} label="Output schema"/>`}<//>`
      : waits ? html`<${Card}><${Loading}/><//>` : tool && html`<${Card}><${Empty} title="Models are not offered this tool">${!tool.callable ? html`<${Text} value=${tool.reason} longest=${400}/>` : tool.offer === "search" ? "It is deferred: a model finds it by search_tools." : "Its provider offers it on request only."}<//><//>`}
  </div>`;
}

const VERDICTS = { passes: "good", asks: "wait", refuses: "bad" };

function Gates({ name, query }) {
  const { data, error, reload } = useAnswer("/v1/explain", { query: { ...query, tool: name } });
  if (error) return html`<${Problem} error=${error} retry=${reload}/>`;
  if (!data) return html`<${Card} title="Gates"><${Loading} rows=${2}/><//>`;
  const whose = query.tenant ? "A call with your scopes" : "A call of yours";
  const words = { passes: "passes", asks: "needs an approval", refuses: "is refused" };
  return html`<${Card} title="Gates" note=${html`<span class=${`tone ${VERDICTS[data.verdict]}`}>${data.verdict}</span>`}>
    <p>${whose} ${words[data.verdict]}${data.reason && html`: <${Text} value=${data.reason} longest=${400}/>`}.</p>
    <ol class="gates">${data.gates.map((gate) => html`<li key=${gate.gate} class=${VERDICTS[gate.verdict]}><b><span>${gate.gate}</span><span class=${`tone ${VERDICTS[gate.verdict]}`}>${gate.verdict}</span></b>
        <span><${Text} value=${gate.detail} longest=${240}/></span><small><${Text} value=${gate.origin} longest=${120}/></small></li>`)}</ol>
    ${data.nearest.length > 0 && html`<p class="quiet">Did you mean ${data.nearest.map((each, n) => html`${n > 0 && ", "}<a key=${each} href=${`#/tools/${encodeURIComponent(each)}`}>${each}</a>`)}?</p>`}
    ${data.settings.length > 0 && html`<details><summary class="quiet">Limits and where they come from</summary><dl class="facts">${data.settings.map((each) => html`<dt key=${each.knob}>${each.knob}</dt><dd>${each.value} <small>${each.origin}</small></dd>`)}</dl></details>`}
  <//>`;
}

function TryIt({ name, definition, query, visitor }) {
  const fields = useMemo(() => fieldsOf(definition.inputSchema), [definition]);
  const [values, setValues] = useState({});
  const [wrong, setWrong] = useState({});
  const [call, setCall] = useState(null);
  const control = useRef(null);
  useEffect(() => () => control.current?.abort(), []);

  const run = async (approval) => {
    const given = argumentsOf(fields, values);
    setWrong(given.wrong);
    if (Object.keys(given.wrong).length) return;
    control.current = new AbortController();
    const began = performance.now();
    setCall({ running: true });
    try {
      const body = { name, arguments: given.arguments, ...(query.agent && { agent: query.agent }), ...(query.session && { session: query.session }), ...(typeof approval === "string" && { approval }) };
      for await (const event of events("POST", "/v1/tool-calls", { body, signal: control.current.signal })) {
        if (event.event === "progress") setCall((before) => ({ ...before, progress: event.data }));
        else if (event.event === "result") setCall({ result: event.data, seconds: (performance.now() - began) / 1000 });
      }
      setCall((before) => (before?.running ? { error: new Error("The answer ended before its result.") } : before));
    } catch (error) {
      setCall(error.name === "AbortError" ? null : { error });
    }
  };
  return html`<${Card} title="Try it">
    <form class="fields" onSubmit=${(event) => { event.preventDefault(); run(); }}>
      ${fields.length ? html`<${Fields} fields=${fields} values=${values} wrong=${wrong} onChange=${setValues}/>` : html`<p class="quiet">This tool takes no arguments.</p>`}
      <div class="actions"><button class="primary" disabled=${call?.running}>${call?.running ? "Running …" : "Call"}</button>${
        call?.running && html`<button type="button" onClick=${() => control.current.abort()}>Cancel</button>`}</div>
    </form>
    <div aria-live="polite">
      ${call?.running && html`<${Progress} progress=${call.progress}/>`}
      ${call?.error && html`<${Problem} error=${call.error}/>`}
      ${call?.result && html`<${Result} result=${call.result} seconds=${call.seconds} again=${run} visitor=${visitor}/>`}
    </div>
  <//>`;
}

function Progress({ progress }) {
  return html`<div><progress value=${progress?.total ? progress.progress : undefined} max=${progress?.total || 1} aria-label="Progress of the call"></progress>
    <p class="quiet">${progress ? html`${progress.progress}${progress.total ? ` of ${progress.total}` : ""} <${Text} value=${progress.message ?? ""} longest=${200}/>` : "Waiting for the tool …"}</p></div>`;
}

function Result({ result, seconds, again, visitor }) {
  const approval = result.metadata?.approval;
  return html`<div class="result">
    <div class="labels"><${Badge} value=${result.status}/><span class="quiet">${duration(seconds)} · ${count(result.output.length, "character")}</span>${
      result.retry_after_s != null && html`<span class="quiet">retry in ${duration(result.retry_after_s)}</span>`}</div>
    ${(result.parts ?? []).map((part, n) => html`<${Part} key=${n} part=${part}/>`)}
    ${(result.output || !(result.parts ?? []).length) && html`<${Code} value=${result.structured !== undefined ? result.structured : result.output} label="Result"/>`}
    ${approval && html`<div class="actions">${visitor.can("approvals:write")
      ? html`<a class="plain" href="#/approvals">Decide about it</a>` : html`<span class="quiet">Someone with the scope approvals:write decides about it.</span>`}
      <button type="button" onClick=${() => again(approval.id)}>Call again with the approval</button></div>`}
  </div>`;
}
