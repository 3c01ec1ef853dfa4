// Chat: a conversation with the configured model, the tool calls in it, and approvals asked for in place.
import { events, useAnswer } from "../api.js";
import { askedSignIn, SignIn } from "../connections.js";
import { Conversation, explained } from "../conversation.js";
import { Markdown } from "../markdown.js";
import { fitsSentence, Sentence } from "../sentence.js";
import { Code, duration, Empty, html, parsed, Part, shown, Text, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";

const LONGEST = 100_000;
const NEAR_END_PX = 80;
const MARKS = { running: "…", done: "✓", failed: "✗", stopped: "–" };
const STATES = { running: "running", done: "answered", failed: "failed", stopped: "stopped" };

/** The conversation and what is typed, which stay while the visitor looks at other pages. */
let held = null;

async function* answering(request, signal) {
  for await (const { data } of events("POST", "/v1/responses", { body: request, signal })) yield data;
}

function heldFor(visitor) {
  const owner = JSON.stringify([visitor.tenant, visitor.subject]);
  if (held?.owner !== owner) {
    held?.talk.stop();
    held = { owner, draft: "", choice: { agent: "", session: "", model: "" }, changed: () => {} };
    held.talk = newTalk(held);
  }
  return held;
}

const newTalk = (mine) => new Conversation(answering, () => mine.changed());

export function Chat({ visitor, rest }) {
  const mine = heldFor(visitor);
  const [, redraw] = useState(0);
  const [choice, setChoice] = useState(() => ({ ...mine.choice, ...(rest[0] && { session: rest[0] }) }));
  mine.choice = choice;
  useLayoutEffect(() => {
    let frame = 0;
    mine.changed = () => { frame ||= requestAnimationFrame(() => { frame = 0; redraw((n) => n + 1); }); };
    return () => { mine.changed = () => {}; cancelAnimationFrame(frame); };
  }, [mine]);
  const [missing, setMissing] = useState(false);
  // Who sees the configuration asks a host without a model nothing that it has to refuse.
  const admin = visitor.can("admin");
  const configuration = useAnswer("/v1/configuration", { every: missing ? 5_000 : 0, skip: !admin });
  const without = admin && Boolean(configuration.data) && !configuration.data.values.some((each) => each.path.startsWith("responses."));
  const models = useAnswer("/v1/models", { every: missing ? 5_000 : 0, skip: without || (admin && !configuration.data && !configuration.error) });
  const sessions = useAnswer("/api/sessions", { every: 15_000 });
  useLayoutEffect(() => setMissing(without || models.error?.code === "not_configured"), [models.error, without]);
  const { talk } = mine;
  const codes = (sessions.data?.sessions ?? []).map((each) => each.code);
  const names = (models.data?.data ?? []).map((each) => each.id);
  const choose = (name) => (event) => setChoice({ ...choice, [name]: event.target.value.trim() });
  const begin = () => { talk.stop(); mine.talk = newTalk(mine); redraw((n) => n + 1); };
  return html`<header class="page"><div><h1>Chat</h1><p class="quiet">The configured model, with the tools that you may call.</p></div>
      <div class="actions"><button type="button" disabled=${!talk.entries.length} onClick=${begin}>New conversation</button></div></header>
    <div class="toolbar choices">
      <label>Agent<input value=${choice.agent} placeholder="none" spellcheck="false" autocomplete="off" onInput=${choose("agent")}/></label>
      <label>Session<select value=${choice.session} onChange=${choose("session")}><option value="">none</option>${
        [...new Set([...codes, choice.session].filter(Boolean))].map((code) => html`<option key=${code} value=${code}>${code}</option>`)}</select></label>
      ${names.length > 1 && html`<label>Model<select value=${choice.model} onChange=${choose("model")}><option value="">default</option>${
        names.slice(0, 200).map((name) => html`<option key=${name} value=${name}>${shown(name, 80)}</option>`)}</select></label>`}
    </div>
    ${missing ? html`<${NoModel}/>` : html`<section class="card chat" aria-label="Conversation">
      <${Transcript} talk=${talk} choice=${choice} visitor=${visitor}/>
      <${Composer} mine=${mine} choice=${choice}/>
      <p class="unseen" role="status">${shown(talk.status, 600)}</p>
    </section>`}`;
}

function NoModel() {
  const { title, text, lines } = explained({ code: "not_configured" });
  return html`<section class="card" aria-label="No model"><h2>${title}</h2><p>${text}</p><${Code} value=${lines} label="Lines of providers.yaml"/>
    <p class="quiet">Any server with the Chat Completions API works, on this machine or elsewhere. This page continues by itself once the host has a model.</p></section>`;
}

function Transcript({ talk, choice, visitor }) {
  const box = useRef(null);
  const follows = useRef(true);
  const look = () => { follows.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < NEAR_END_PX; };
  const last = talk.entries.at(-1);
  useLayoutEffect(() => { if (last?.kind === "user") follows.current = true; }, [last?.key]);
  useLayoutEffect(() => { if (follows.current) box.current.scrollTop = box.current.scrollHeight; });
  return html`<div class="talk" ref=${box} tabindex="0" role="region" aria-label="Messages" aria-busy=${talk.busy} onScroll=${look}>
    ${!talk.entries.length && html`<${Empty} title="Type a message">${choice.session ? `The model also gets the tools of session ${choice.session}.` : "Every tool call of the model is shown, with its arguments and its result."}<//>`}
    ${talk.entries.map((entry) => html`<${Entry} key=${entry.key} entry=${entry} version=${`${entry.version} ${entry === last} ${talk.busy}`} last=${entry === last} talk=${talk} visitor=${visitor}/>`)}
    ${talk.busy && last?.kind !== "text" && html`<p class="thinking quiet" aria-hidden="true"><i></i>${talk.status} …</p>`}
  </div>`;
}

function Entry({ entry, version, last, talk, visitor }) {
  return useMemo(() => {
    if (entry.kind === "user") return html`<div class="said user"><span class="unseen">You: </span><${Text} value=${entry.text} longest=${LONGEST}/></div>`;
    if (entry.kind === "text") return html`<div class="said answer"><span class="unseen">Model: </span><${Markdown} text=${entry.text}/></div>`;
    if (entry.kind === "call") return html`<${Call} entry=${entry}/>`;
    if (entry.kind === "approval") return html`<${Approval} entry=${entry} talk=${talk} visitor=${visitor}/>`;
    if (entry.kind === "note") return html`<p class="noted quiet"><${Text} value=${entry.text}/></p>`;
    return html`<div class="problem"><div><p><strong><${Text} value=${entry.title}/></strong> <${Text} value=${entry.text ?? ""} longest=${600}/></p>${
      entry.lines && html`<${Code} value=${entry.lines} label="Lines of providers.yaml"/>`}</div>${
      last && !talk.busy && html`<button type="button" onClick=${() => talk.retry()}>Try again</button>`}</div>`;
  }, [entry, version, visitor]);
}

function Call({ entry }) {
  const parts = entry.parts ?? [];
  const images = parts.filter((part) => part.type === "image");
  return html`<div class=${`tool-call ${entry.state}`}>
    <details><summary><span class="state"><span aria-hidden="true">${MARKS[entry.state]}</span><span class="unseen">${STATES[entry.state]}</span></span>
        <strong class="mono"><${Text} value=${entry.name} longest=${100}/></strong>
        <span class="cut mono"><${Text} value=${entry.arguments} longest=${160}/></span>
        <span class="number">${entry.took == null ? STATES[entry.state] : entry.took < 0.001 ? "< 1 ms" : duration(entry.took)}</span></summary>
      <h3>Arguments</h3><${Code} value=${parsed(entry.arguments)} label="Arguments"/>
      ${entry.output != null && html`<h3>Result</h3><${Code} value=${parsed(entry.output)} label="Result"/>`}
      ${parts.filter((part) => part.type !== "image").map((part, n) => html`<${Part} key=${n} part=${part}/>`)}
    </details>
    ${entry.state === "failed" ? html`<p class="tone bad"><${Text} value=${entry.output} longest=${300}/></p><${SignIn} asked=${askedSignIn(entry.output)}/>`
      : entry.output && html`<p class="cut"><${Text} value=${entry.output} longest=${200}/></p>`}
    ${images.map((part, n) => html`<${Part} key=${n} part=${part}/>`)}
  </div>`;
}

function Approval({ entry, talk, visitor }) {
  const mayDecide = visitor.can("approvals:write");
  const decide = (approve) => talk.decide(entry, approve);
  const { inner } = entry;  // a script waits for one of its calls
  const outer = inner && parsed(entry.arguments);
  const name = inner?.tool ?? entry.name;
  const given = inner ? inner.arguments : parsed(entry.arguments);
  const said = fitsSentence(given);
  const { agent, session } = talk.choice;
  const definitions = useAnswer("/v1/tools", { query: { format: "mcp", agent, session }, skip: !said || Boolean(entry.decision) });
  const schema = definitions.data?.tools.find((each) => each.name === name || each._meta?.["toolplug/name"] === name)?.inputSchema;
  return html`<section class="approve" aria-label="A call that needs approval">
    <p><strong class="mono"><${Text} value=${name} longest=${100}/></strong>${inner && html` in <span class="mono"><${Text} value=${entry.name} longest=${100}/></span>${inner.line > 0 && `, line ${inner.line}`},`} ${entry.decision ? html`was <b>${entry.decision}</b>.` : "needs approval."}</p>
    ${!entry.decision && html`${said && html`<${Sentence} tool=${name} given=${given} schema=${schema}/>`}
      ${said ? html`<details><summary class="quiet">Arguments as JSON</summary><${Code} value=${given} label="Arguments"/></details>` : html`<${Code} value=${given} label="Arguments"/>`}
      ${inner && html`<details><summary class="quiet">The call that it is part of</summary><${Code} value=${typeof outer?.code === "string" ? outer.code : outer} label="The call that it is part of"/></details>`}
      ${!mayDecide && html`<p class="quiet">${entry.again ? "It is not decided yet." : "Your key may not decide it."} Someone with the scope approvals:write does, under Approvals; then continue.</p>`}
      <div class="actions">${mayDecide ? html`<button type="button" class="primary" onClick=${() => decide(true)}>Approve</button>`
        : html`<button type="button" class="primary" onClick=${() => decide(true)}>Continue</button>`}
        <button type="button" class="danger" onClick=${() => decide(false)}>Deny</button></div>`}
  </section>`;
}

function Composer({ mine, choice }) {
  const { talk } = mine;
  const [text, setText] = useState(mine.draft);
  mine.draft = text;
  const field = useRef(null);
  useLayoutEffect(() => { if (matchMedia("(hover: hover)").matches) field.current.focus({ preventScroll: true }); }, []);
  const send = (event) => {
    event?.preventDefault();
    if (talk.busy || !text.trim()) return;
    setText("");
    talk.send(text.trim(), choice);
  };
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    else if (event.key === "Escape" && talk.busy) { event.preventDefault(); talk.stop(); }
  };
  return html`<form class="composer" onSubmit=${send} onKeyDown=${key}>
    <label class="unseen" for="message">Message</label>
    <textarea id="message" ref=${field} rows="1" value=${text} placeholder="Message" aria-describedby="keys" onInput=${(event) => setText(event.target.value)}></textarea>
    ${talk.busy ? html`<button type="button" class="danger" onClick=${() => talk.stop()}>Stop</button>` : html`<button class="primary" disabled=${!text.trim()}>Send</button>`}
    <p id="keys" class="quiet">Enter sends, Shift+Enter is a new line, Esc stops the answer.</p>
  </form>`;
}
