// Tools: whose catalog, each tool with its schema as a form, a call of it, and why it may be called or not.
import { ask, events, ROOT, storedKey, useAnswer, useEvents } from "../api.js";
import { SignIn } from "../connections.js";
import { hourOf, Spark, useHour } from "../measures.js";
import { argumentsOf, Fields, fieldsOf } from "../schema_form.js";
import { Badge, Card, Code, Copy, count, duration, Empty, html, Loading, Part, Problem, Search, shown, Text, useLayoutEffect, useMemo, useRef, useState, VirtualList } from "../ui.js";

const ROW = 40;
const WIDE = "(min-width: 52.01rem)";
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
  const providers = useAnswer("/v1/providers");
  useEvents("/console/providers", useSoon(() => { catalog.reload(); definitions.reload(); providers.reload(); }));
  const sessions = useAnswer("/api/sessions", { query: { tenant: query.tenant }, every: 15_000 });
  const configuration = useAnswer("/v1/configuration", { skip: !admin });
  const known = useMemo(() => namesIn(configuration.data?.values ?? [], visitor.tenant), [configuration.data]);
  const all = catalog.data?.tools ?? [];
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return words.length ? all.filter((tool) => words.every((word) => tool.name.toLowerCase().includes(word) || tool.description.toLowerCase().includes(word))) : all;
  }, [catalog.data, search]);
  const byName = useMemo(() => new Map((definitions.data?.tools ?? []).map((tool) => [tool._meta?.["toolplug/name"] ?? tool.name, tool])), [definitions.data]);
  const homes = useMemo(() => new Map((providers.data?.providers ?? []).flatMap((each) => each.tools.map((tool) => [tool, each.key]))), [providers.data]);
  const grouped = useMemo(() => inGroups(found, homes), [found, homes]);
  // Where there is room for both, the first one is open.
  const name = rest[0] ?? (matchMedia(WIDE).matches ? grouped.find((each) => !each.heads)?.name : undefined);
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
    <div class="split" data-open=${Boolean(rest[0])}>
      <${Card} class="list" title="Catalog" note=${catalog.data && (found.length === all.length ? count(all.length, "tool") : `${found.length.toLocaleString("en")} of ${count(all.length, "tool")}`)}>
        ${!catalog.data && !catalog.error ? html`<${Loading} rows=${8}/>` : !found.length
          ? html`<${Empty} title=${all.length ? "No tool matches" : "This catalog is empty"}>${all.length ? "Search for another word." : agent ? "An agent sees only the toolsets that it is allowed." : "Enable a provider, or add an MCP server."}<//>`
          : html`<${VirtualList} items=${grouped} height=${ROW} label="Tools" keyOf=${(tool) => tool.name} selected=${name} onSelect=${choose} row=${(tool) => html`<${Row} tool=${tool}/>`}/>`}
      <//>
      ${name ? html`<${Detail} key=${name} name=${name} tool=${chosen} definition=${byName.get(name)} waits=${!definitions.data && !definitions.error} query=${query} visitor=${visitor} back=${() => choose(null)}/>`
        : html`<${Card}><${Empty} title="Choose a tool">Its schema, a form to try it, and the gates of a call appear here.<//><//>`}
    </div>`;
}

/** The tools by their home, in the order of the catalog, each group after its heading; one group alone needs none. */
function inGroups(tools, homes) {
  const groups = new Map();
  for (const tool of tools) {
    const home = tool.server ? `server ${tool.server}` : tool.toolset ? `toolset ${tool.toolset}` : tool.type === "session" ? "sessions" : homes.get(tool.name) ?? tool.type;
    if (!groups.has(home)) groups.set(home, []);
    groups.get(home).push(tool);
  }
  return [...groups].flatMap(([heads, its]) => [{ heads, note: count(its.length, "tool"), name: `${heads} ` }, ...its]);
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
  useLayoutEffect(() => {
    const timer = setTimeout(() => setSettled(value), 350);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

/** The function, called once for all calls of a moment. */
function useSoon(act) {
  const latest = useRef(null);
  latest.current = act;
  const timer = useRef(0);
  useLayoutEffect(() => () => clearTimeout(timer.current), []);
  return () => { clearTimeout(timer.current); timer.current = setTimeout(() => latest.current(), 200); };
}

function Row({ tool }) {
  return html`<span class="line"><strong><${Text} value=${tool.name} longest=${100}/></strong>${tool.verdict !== "passes" && html`<${Badge} tone=${VERDICTS[tool.verdict]}>${tool.verdict}<//>`}${
    watchedPolicy(tool) && html`<${Badge} tone="bad">only watched<//>`}${tool.stale && html`<${Badge} value="stale"/>`}<span class="cut"><${Text} value=${tool.description || "No description"} longest=${160}/></span></span>`;
}

function Detail({ name, tool, definition, waits, query, visitor, back }) {
  const hour = useHour();
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
        ${watchedPolicy(tool) && html`<${Badge} tone="bad">only watched; would: denied<//>`}
        ${tool?.stale && html`<${Badge} value="stale"/>`}
        ${facts.readOnlyHint && html`<${Badge} tone="good">read only<//>`}${facts.destructiveHint && html`<${Badge} tone="bad">destructive<//>`}
        ${tokens && html`<${Badge} tone="fact">about ${count(tokens, "token")}<//>`}
      </div>
      ${hour?.calls && html`<${LastHour} numbers=${hourOf(hour, (each) => each.tool === name)}/>`}
    <//>
    ${query.tenant && html`<p class="quiet">This is the catalog of tenant <${Text} value=${query.tenant} longest=${60}/>. Your own calls are those of tenant <${Text} value=${visitor.tenant} longest=${60}/>.</p>`}
    ${!query.tenant && visitor.can("tools:call") && definition && tool?.callable !== false && html`<${TryIt} name=${name} definition=${definition} query=${query} visitor=${visitor}/>`}
    ${visitor.can("admin") && html`<${Gates} name=${name} query=${query}/>`}
    ${definition ? html`<${Card} title="Schema"><${Code} value=${definition.inputSchema} label="Input schema"/>${
      definition.outputSchema && html`<h3>Output</h3><${Code} value=${definition.outputSchema} label="Output schema"/>`}<//>`
      : waits ? html`<${Card}><${Loading}/><//>` : tool && html`<${Card}><${Empty} title="Models are not offered this tool">${!tool.callable ? html`<${Text} value=${tool.reason} longest=${400}/>` : tool.offer === "search" ? "It is deferred: a model finds it by search_tools." : "Its provider offers it on request only."}<//><//>`}
  </div>`;
}

/** The calls of a tool in the last hour, in words and as a small line. */
function LastHour({ numbers }) {
  const sum = (name) => (numbers?.[name] ?? []).reduce((all, each) => all + each, 0);
  return html`<div class="line hour"><${Spark} numbers=${numbers}/><small>${count(sum("calls"), "call")} in the last hour${sum("failed") > 0 && html`, <span class="tone bad nowrap">${sum("failed").toLocaleString("en")} failed</span>`}</small></div>`;
}

/** The policy of a tool that is only watched: calls pass that it would ask about or deny. */
export const watchedPolicy = (tool) => (tool?.verdict === "passes" && ["ask", "deny"].includes(tool.configuredPolicy) ? tool.configuredPolicy : "");

export const VERDICTS = { passes: "good", asks: "wait", refuses: "bad" };

/** What refuses, asks or passes a call now, in order. */
export function Gates({ name, query }) {
  const { data, error, reload } = useAnswer("/v1/explain", { query: { ...query, tool: name } });
  if (error) return html`<${Problem} error=${error} retry=${reload}/>`;
  if (!data) return html`<${Card} title="Gates"><${Loading} rows=${2}/><//>`;
  const subject = query.tenant ? "A call with your scopes" : "Your call";
  const words = { passes: "passes", asks: "needs an approval", refuses: "is refused" };
  return html`<${Card} title="Gates" note=${html`<span class=${`tone ${VERDICTS[data.verdict]}`}>${data.verdict}</span>`}>
    <p>${subject} ${words[data.verdict]}${data.reason && html`: <${Text} value=${data.reason} longest=${400}/>`}.</p>
    <ol class="gates">${data.gates.map((gate) => html`<li key=${gate.gate} class=${VERDICTS[gate.verdict]}><b><span>${gate.gate}</span><span class=${`tone ${VERDICTS[gate.verdict]}`}>${gate.verdict}</span></b>
        <span><${Text} value=${gate.detail} longest=${240}/></span><small><${Text} value=${gate.origin} longest=${120}/></small></li>`)}</ol>
    ${data.nearest.length > 0 && html`<p class="quiet">Did you mean ${data.nearest.map((each, n) => html`${n > 0 && ", "}<a key=${each} href=${`#/tools/${encodeURIComponent(each)}`}>${each}</a>`)}?</p>`}
    ${data.settings.length > 0 && html`<details><summary class="quiet">Limits and where they come from</summary><dl class="facts">${data.settings.map((each) => html`<dt key=${each.name}>${each.name}</dt><dd>${each.value} <small>${each.origin}</small></dd>`)}</dl></details>`}
  <//>`;
}

/** What was typed into the form of each tool: it stays while the code changes, and while other tools are looked at. */
const typed = new Map();
const MOST_TYPED = 100;

function keepTyped(name, values) {
  typed.delete(name);
  typed.set(name, values);
  if (typed.size > MOST_TYPED) typed.delete(typed.keys().next().value);
}

function TryIt({ name, definition, query, visitor }) {
  const fields = useMemo(() => fieldsOf(definition.inputSchema), [definition]);
  const [values, setTyped] = useState(() => typed.get(name) ?? {});
  const setValues = (given) => { keepTyped(name, given); setTyped(given); };
  const [wrong, setWrong] = useState({});
  const [call, setCall] = useState(null);
  const control = useRef(null);
  useLayoutEffect(() => () => control.current?.abort(), []);

  const run = async (approval) => {
    const given = argumentsOf(fields, values);
    setWrong(given.wrong);
    if (Object.keys(given.wrong).length) return;
    control.current = new AbortController();
    const began = performance.now();
    setCall({ running: true });
    let request = "";
    try {
      const body = { name, arguments: given.arguments, ...(query.agent && { agent: query.agent }), ...(query.session && { session: query.session }), ...(typeof approval === "string" && { approval }) };
      for await (const event of events("POST", "/v1/tool-calls", { body, signal: control.current.signal, onAnswer: (answer) => { request = answer.headers.get("x-request-id") ?? ""; } })) {
        if (event.event === "progress") setCall((before) => ({ ...before, progress: event.data }));
        else if (event.event === "result") setCall({ result: event.data, request, seconds: (performance.now() - began) / 1000 });
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
        call?.running && html`<button type="button" onClick=${() => control.current.abort()}>Cancel</button>`}
        <span class="apart"></span><${CopyAs} body=${{ name, arguments: argumentsOf(fields, values).arguments, ...(query.agent && { agent: query.agent }), ...(query.session && { session: query.session }) }}/></div>
    </form>
    ${call?.running && html`<progress value=${call.progress?.total ? call.progress.progress : undefined} max=${call.progress?.total || 1} aria-label="Progress of the call"></progress>`}
    <div class="labels" role="status"><${HowItGoes} call=${call} wrong=${wrong}/></div>
    ${call?.error && html`<${Problem} error=${call.error}/>`}
    ${call?.result && html`<${Result} result=${call.result} request=${call.request} again=${run} visitor=${visitor}/>`}
  <//>`;
}

/** A call in one line, which a screen reader reads out; its result is a region of its own. */
function HowItGoes({ call, wrong }) {
  if (call?.running) return html`<span class="quiet">${call.progress ? html`${call.progress.progress}${call.progress.total ? ` of ${call.progress.total}` : ""} <${Text} value=${call.progress.message ?? ""} longest=${200}/>` : "Waiting for the tool …"}</span>`;
  const names = Object.keys(wrong);
  if (names.length) return html`<span class="wrong">Not called: ${shown(names.join(", "), 200)} ${names.length === 1 ? "is" : "are"} not valid.</span>`;
  const result = call?.result;
  return result && html`<${Badge} value=${result.status}/><span class="quiet">${duration(call.seconds)} · ${count(result.output.length, "character")}</span>${
    result.retry_after_s != null && html`<span class="quiet">retry in ${duration(result.retry_after_s)}</span>`}`;
}

const asPython = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None"
  : Array.isArray(value) ? `[${value.map(asPython).join(", ")}]`
  : typeof value === "object" ? `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${asPython(each)}`).join(", ")}}` : JSON.stringify(value));

/** The call as a line for a shell, as Python, and the host as a server of an MCP client. A key is never copied. */
function CopyAs({ body }) {
  const [url, key] = [new URL("v1/tool-calls", ROOT).href, storedKey()];
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const curl = `curl -s ${url} -H 'Content-Type: application/json'${key && " -H \"Authorization: Bearer $TOOLPLUG_KEY\""} -d '${quoted}'`;
  const headers = `{"Content-Type": "application/json"${key && ', "Authorization": f"Bearer {os.environ[\'TOOLPLUG_KEY\']}"'}}`;
  const python = `import json\n${key && "import os\n"}from urllib.request import Request, urlopen\n\nbody = ${asPython(body)}\nrequest = Request("${url}", json.dumps(body).encode(), ${headers})\nprint(json.load(urlopen(request))["output"])\n`;
  const client = JSON.stringify({ mcpServers: { toolplug: { type: "http", url: new URL("mcp", ROOT).href, ...(key && { headers: { Authorization: "Bearer ${TOOLPLUG_KEY}" } }) } } }, null, 2);
  return html`<span class="copies"><small>Copy as</small><${Copy} text=${curl}>curl<//><${Copy} text=${python}>Python<//><${Copy} text=${client}>MCP client<//></span>`;
}

/** Where a call has just crashed, for who may see it. */
function Crash({ call, request }) {
  const { data } = useAnswer(`/console/crashes/${encodeURIComponent(request)}/${encodeURIComponent(call)}`);
  return data && html`<p class="why"><${Text} value=${data.line} longest=${1_000}/></p>${data.trace && html`<${Code} value=${data.trace} label="Trace" longest=${70_000}/>`}`;
}

function Result({ result, request, again, visitor }) {
  const approval = result.metadata?.approval;
  return html`<div class="result">
    ${(result.parts ?? []).map((part, n) => html`<${Part} key=${n} part=${part}/>`)}
    ${(result.output || !(result.parts ?? []).length) && html`<${Code} value=${result.structured !== undefined ? result.structured : result.output} label="Result"/>`}
    ${result.status === "panic" && request && visitor.can("operator") && html`<${Crash} call=${result.call_id} request=${request}/>`}
    ${result.metadata?.code === "sign_in_needed" && html`<div class="actions"><${SignIn} asked=${result.metadata.sign_in}/></div>`}
    ${approval && html`<div class="actions">${visitor.can("approvals:write")
      ? html`<a class="plain" href="#/approvals">Decide about it</a>` : html`<span class="quiet">Someone with the scope approvals:write decides about it.</span>`}
      <button type="button" onClick=${() => again(approval.id)}>Call again with the approval</button></div>`}
  </div>`;
}
