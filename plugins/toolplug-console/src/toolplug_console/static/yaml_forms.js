// Forms for an MCP server, a key and an installed package: the lines of providers.yaml that each means, and where they
// go. Nothing is written: the lines are there to copy.
import { ask, useAnswer } from "./api.js";
import { Difference } from "./difference.js";
import { Dialog } from "./keyboard.js";
import { Copy, count, html, Loading, Problem, Text, useMemo, useState } from "./ui.js";

const PLAIN = /^[A-Za-z_][\w./:@${}-]*(?: [\w./:@${}-]+)*$/;
const WORDS = new Set(["true", "false", "yes", "no", "on", "off", "null", "y", "n"]);

/** A text as YAML: plain where that is the same text, else quoted. */
export const scalar = (text) => (PLAIN.test(text) && !WORDS.has(text.toLowerCase()) && !/: |:$| #/.test(text) ? text : JSON.stringify(text));
const list = (texts) => `[${texts.map((each) => (/[,[\]{}]/.test(each) ? JSON.stringify(each) : scalar(each))).join(", ")}]`;

/** The lines of a section of the file as they are known here, names alone, with the line of each: no value leaves the host. */
function known(values, section) {
  const found = new Map();
  const depth = section.split(".").length;
  for (const { path, source, origin } of values) {
    if (source === "file" && path.startsWith(`${section}.`)) found.set(path.split(".")[depth], found.get(path.split(".")[depth]) ?? origin);
    else if (source === "file" && path.startsWith(`${section}[`)) { const item = path.slice(section.length).match(/^\[\d+\]/)[0]; found.set(item, found.get(item) ?? origin); }
  }
  return [...found];
}

/** The file around the new lines, before and after: `{before, after, lines, line}`. */
function change(values, section, lines) {
  const entries = known(values, section);
  const keys = section.split(".");
  const heads = keys.map((key, n) => `${"  ".repeat(n)}${key}:`);
  const indent = "  ".repeat(keys.length);
  const shownEntries = entries.map(([name, origin]) => `${indent}${name.startsWith("[") ? "- {…}" : `${name}: …`}  # ${origin.replace(/^.*[/\\]/, "")}`);
  const present = entries.length ? heads.length : heads.filter((_, n) => values.some((each) => each.source === "file" && each.path.startsWith(keys.slice(0, n + 1).join(".")))).length;
  const fresh = lines.map((line) => indent + line);
  const before = [...heads.slice(0, present), ...shownEntries];
  return { before: before.join("\n"), after: [...heads.slice(0, present), ...shownEntries, ...heads.slice(present), ...fresh].join("\n"), lines: [...heads.slice(present), ...fresh].join("\n") };
}

/** A Python file that is served by itself has no providers.yaml: the lines are a whole new one, with an entry for it. */
function newFile(values, section, lines) {
  const { path, value } = values.find((each) => /^providers\.[^.]+\.type$/.test(each.path) && each.source === "file");
  const entry = [`${path.split(".")[1]}:`, `  type: ${scalar(value)}`, "  enabled: true"];
  const made = section === "providers" ? [change([], section, [...entry, ...lines])] : [change([], "providers", entry), change([], section, lines)];
  const text = made.map((each) => each.lines).join("\n");
  return { before: "", after: text, lines: text };
}

/** The lines of a form, how the file differs with them, and a button that copies them. */
function Lines({ section, lines, visitor }) {
  const asks = visitor.can("admin");
  const { data, error } = useAnswer("/v1/configuration", { skip: !asks });
  const code = data?.file?.endsWith(".py") ? data.file.replace(/^.*[/\\]/, "") : "";
  const made = useMemo(() => (code ? newFile : change)(data?.values ?? [], section, lines), [data, section, lines.join("\n")]);
  // Which lines the file needs depends on what it has, and whether there is one.
  if (asks && !data && !error) return html`<${Loading} rows=${2}/>`;
  return html`<div class="stack">
    <div class="line"><h3 class="name">${data?.file && !code ? html`<span class="mono"><${Text} value=${data.file} longest=${120}/></span>` : "providers.yaml"}</h3><${Copy} text=${`${made.lines}\n`}>Copy the lines<//></div>
    <${Difference} before=${made.before} after=${made.after} label="What changes in providers.yaml"/>
    ${code ? html`<p class="quiet">Nothing is written here. <code>${code}</code> is served without a configuration: put the lines into a new <code>providers.yaml</code> next to it, and start <code>toolplug serve</code> there.</p>`
      : html`<p class="quiet">Nothing is written here. Put the lines into the file; <code>toolplug check</code> says whether they are valid, and <em>Reload</em> on <em>Overview</em> uses them.</p>`}</div>`;
}

/** A button that opens a form in a window. */
export function FormButton({ label, title, primary, children }) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return html`<button type="button" class=${primary ? "primary" : ""} onClick=${() => setOpen(true)}>${label}</button>
    ${open && html`<${Dialog} label=${title} class="form" close=${close}><div class="line"><h2 class="name">${title}</h2><button type="button" class="close" aria-label="Close" onClick=${close}>✕</button></div>${children}<//>`}`;
}

const Field = ({ label, hint, children }) => html`<label class="field"><span class="top">${label}</span>${children}${hint && html`<span class="hint">${hint}</span>`}</label>`;

const MOST_PREFIX = 32;
const ID = /^[a-z][a-z0-9_-]{0,63}$/;

export function ServerForm({ visitor, done }) {
  const [given, setGiven] = useState({ id: "", how: "url", url: "", command: "", policy: "ask", pin: true, everyone: true });
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const [command, ...args] = given.command.trim().split(/\s+/);
  const lines = [`${given.id || "name"}:`, ...(given.how === "url" ? [`  url: ${scalar(given.url || "https://…")}`] : [`  command: ${scalar(command || "…")}`, ...(args.length ? [`  args: ${list(args)}`] : [])]),
    ...(given.policy === "allow" ? [] : [`  policy: ${given.policy}`]), ...(given.pin ? ["  pin: true"] : []), ...(given.everyone ? [`  prefix: ${(given.id || "name").slice(0, MOST_PREFIX)}`] : [])];
  const wrong = given.id && !ID.test(given.id);
  return html`<div class="fields">
    <${Field} label="Name" hint=${wrong ? html`<span class="wrong">A lower-case letter, then up to 63 of a-z 0-9 _ -.</span>` : given.everyone ? html`Its tools are called <code>${(given.id || "name").slice(0, MOST_PREFIX)}.tool</code>.` : html`A toolset with <code>from: mcp:${given.id || "name"}</code> has its tools.`}><input value=${given.id} spellcheck="false" autocomplete="off" onInput=${set("id")}/><//>
    <${Field} label="Reached by"><select value=${given.how} onChange=${set("how")}><option value="url">a URL (Streamable HTTP)</option><option value="command">a command (standard input and output)</option></select><//>
    ${given.how === "url" ? html`<${Field} label="URL"><input type="url" value=${given.url} placeholder="https://mcp.example/mcp" spellcheck="false" onInput=${set("url")}/><//>`
      : html`<${Field} label="Command" hint="The program and its arguments, separated by spaces; no shell reads it."><input class="mono" value=${given.command} placeholder="uvx mcp-server-time" spellcheck="false" onInput=${set("command")}/><//>`}
    <${Field} label="Policy of its tools"><select value=${given.policy} onChange=${set("policy")}><option value="ask">ask: a person approves each call</option><option value="allow">allow: every call runs</option><option value="deny">deny: no call runs</option></select><//>
    <label class="field check"><input type="checkbox" checked=${given.everyone} onChange=${set("everyone")}/><span>Offer its tools to every caller without an agent; else to the agents whose toolset has them</span></label>
    <label class="field check"><input type="checkbox" checked=${given.pin} onChange=${set("pin")}/><span>Hold tools that are new or whose definition changes, until someone accepts them</span></label>
    ${given.how === "url" ? html`<${Preview} url=${given.url} ready=${!wrong && given.url} visitor=${visitor} done=${done}/>` : html`<p class="quiet">A command is never started from a web page. <code>toolplug discover ${given.id || "name"}</code> shows its tools once the lines are in the file.</p>`}
    <${Lines} section="mcp_servers" lines=${lines} visitor=${visitor}/></div>`;
}

const WAIT = { wait: "20s" };

/** The tools of a server before it is in the file: the host asks it under a name that is removed again at once. */
function Preview({ url, ready, visitor, done }) {
  const [state, setState] = useState({});
  if (!visitor.can("admin")) return null;
  const look = async () => {
    setState({ busy: true });
    let added = true;
    const id = `preview-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    try {
      const found = await ask("POST", "/api/mcp-servers", { body: { id, url, policy: "deny" }, query: WAIT });
      setState(found.error ? { error: { title: "The server gives no tools.", message: found.error } } : { tools: found.tools });
    } catch (error) {
      added = !(error.status >= 400 && error.status < 500);
      setState({ error });
    } finally {
      if (added) await ask("DELETE", `/api/mcp-servers/${id}`).catch(() => {});
      done?.();
    }
  };
  return html`<div class="stack"><div class="actions"><button type="button" disabled=${!ready || state.busy} onClick=${look}>${state.busy ? "Asking the server …" : "Show its tools"}</button>
      <span class="quiet">The host asks the server now; nothing of it stays.</span></div>
    <${Problem} error=${state.error}/>
    ${state.tools && html`<div role="status"><p>${count(state.tools.length, "tool")}${state.tools.some((tool) => tool.cut.length) && html`, <span class="tone wait">with texts that the host removes</span>`}</p><ul class="rows preview">${state.tools.slice(0, 100).map((tool) => html`<li key=${tool.name}><div><strong class="mono"><${Text} value=${tool.name} longest=${100}/></strong><p class="reason"><${Text} value=${tool.description} longest=${240}/></p></div></li>`)}</ul></div>`}</div>`;
}

const SCOPES = ["tools:read", "tools:call", "sessions:write", "approvals:read", "approvals:write", "admin", "operator"];

export function KeyForm({ visitor }) {
  const [given, setGiven] = useState({ subject: "", tenant: "", agents: "", scopes: ["tools:read", "tools:call"] });
  const [key, setKey] = useState(null);
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const flip = (scope) => setGiven({ ...given, scopes: SCOPES.filter((each) => (each === scope) !== given.scopes.includes(each)) });
  const make = async () => {
    const text = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32)))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
    setKey({ text, sha256: [...new Uint8Array(digest)].map((each) => each.toString(16).padStart(2, "0")).join("") });
  };
  const agents = given.agents.split(/[\s,]+/).filter(Boolean);
  const lines = [`- sha256: ${key?.sha256 ?? "…"}`, `  subject: ${scalar(given.subject || "…")}`, ...(given.tenant ? [`  tenant: ${scalar(given.tenant)}`] : []), `  scopes: ${list(given.scopes)}`, ...(agents.length ? [`  agents: ${list(agents)}`] : [])];
  return html`<div class="fields">
    <${Field} label="Who has it" hint="The subject in logs, approvals and on this page."><input value=${given.subject} spellcheck="false" autocomplete="off" onInput=${set("subject")}/><//>
    <${Field} label="Tenant" hint="The default tenant if it is empty."><input value=${given.tenant} spellcheck="false" onInput=${set("tenant")}/><//>
    <${Field} label="Agents" hint="The key may act as these alone, separated by commas; empty: as any."><input value=${given.agents} spellcheck="false" onInput=${set("agents")}/><//>
    <fieldset class="scopes"><legend>Scopes</legend>${SCOPES.map((scope) => html`<label key=${scope}><input type="checkbox" checked=${given.scopes.includes(scope)} onChange=${() => flip(scope)}/><span class="mono">${scope}</span></label>`)}</fieldset>
    ${crypto.subtle ? html`<div class="actions"><button type="button" class="primary" onClick=${make}>${key ? "Make another key" : "Make a key"}</button>${key && html`<span class="mono cut secret">${key.text}</span><${Copy} text=${key.text}>Copy the key<//>`}</div>
        <p class="quiet">${key ? "It is shown once, and is in this window alone: the file has its digest." : "It is made in your browser; the file gets its SHA-256 digest."}</p>`
      : html`<p class="quiet">A browser makes keys over https and on this machine alone.</p>`}
    <${Lines} section="auth.api_keys" lines=${lines} visitor=${visitor}/></div>`;
}

export function PackageForm({ provider, visitor }) {
  const [key, setKey] = useState(provider.key);
  const lines = [`${key || provider.key}:`, ...(key && key !== provider.type ? [`  type: ${scalar(provider.type)}`] : []), "  enabled: true"];
  return html`<div class="fields"><p><strong>${provider.distribution}</strong> <span class="quiet">${provider.version}</span></p>
    <${Field} label="Name of the entry"><input value=${key} spellcheck="false" onInput=${(event) => setKey(event.target.value)}/><//>
    <p class="quiet">Its settings and their defaults: <code>toolplug schema</code>, or the package's own page.</p>
    <${Lines} section="providers" lines=${lines} visitor=${visitor}/></div>`;
}
