// Configuration: every value that applies now with its origin, without secrets, and what the last reload changed.
import { useAnswer } from "../api.js";
import { FormButton, KeyForm } from "../yaml_forms.js";
import { Badge, Card, Code, count, Empty, html, Loading, Problem, Search, Since, Text, useMemo, useState, VirtualList } from "../ui.js";

const WIDE = "(min-width: 52.01rem)";
const ROW = () => (matchMedia(WIDE).matches ? 36 : 48);  // a narrow row has two lines
const MOST_CHANGES = 200;
const SOURCES = { file: "in the file", environment: "environment variable", "secret file": "secret file", default: "default", runtime: "set at run time", code: "the host's code" };
const TONES = { file: "fact", environment: "good", "secret file": "good", default: "calm", runtime: "wait", code: "fact" };
const KINDS = { added: "good", removed: "bad", changed: "wait" };

export function Configuration({ rest, visitor }) {
  const { data, error, reload } = useAnswer("/v1/configuration", { every: 15_000 });
  const [search, setSearch] = useState("");
  const [source, setSource] = useState("");
  const all = data?.values ?? [];
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter((each) => (!source || (source === "set" ? each.source !== "default" : each.source === source))
      && words.every((word) => [each.path, each.value, each.origin].some((text) => text.toLowerCase().includes(word))));
  }, [data, search, source]);
  const present = useMemo(() => Object.keys(SOURCES).filter((name) => all.some((each) => each.source === name)), [data]);
  const chosen = all.find((each) => each.path === rest[0]);
  const choose = (each) => { location.hash = each ? `#/configuration/${encodeURIComponent(each.path)}` : "#/configuration"; };
  return html`<header class="page"><div><h1>Configuration</h1><p class="quiet">The values that apply now, and where each comes from. Secrets are not sent to the browser.</p></div>
      <div class="actions">${data && html`<p class="quiet mono"><${Text} value=${data.file} longest=${200}/></p>`}<${FormButton} label="Add a key" title="Add an API key"><${KeyForm} visitor=${visitor}/><//></div></header>
    <${Problem} error=${error} retry=${reload}/>
    ${data && html`<${LastReload} last=${data.lastReload}/>`}
    <div class="toolbar">
      <div class="grow"><${Search} value=${search} onInput=${setSearch} label="Search paths, values and files"/></div>
      <label>Origin<select value=${source} onChange=${(event) => setSource(event.target.value)}><option value="">all</option><option value="set">all but defaults</option>${
        present.map((each) => html`<option key=${each} value=${each}>${SOURCES[each]}</option>`)}</select></label>
    </div>
    <div class=${`split wide${chosen ? "" : " alone"}`} data-open=${Boolean(chosen)}>
      <${Card} class="list" title="Values" note=${data && (found.length === all.length ? count(all.length, "value") : `${found.length.toLocaleString("en")} of ${count(all.length, "value")}`)}>
        ${!data && !error && html`<${Loading} rows=${8}/>`}
        ${data && !found.length && html`<${Empty} title="No value matches">Search for another word, or choose another origin.<//>`}
        ${found.length > 0 && html`<div class="heads setting" aria-hidden="true"><span>Path</span><span>Value</span><span>Origin</span></div>
          <${VirtualList} class="stream" items=${found} height=${ROW()} label="Values of the configuration" keyOf=${(each) => each.path} selected=${chosen?.path} onSelect=${choose} row=${(each) => html`<${Row} value=${each}/>`}/>`}
      <//>
      ${chosen && html`<${Detail} key=${chosen.path} value=${chosen} back=${() => choose(null)}/>`}
    </div>`;
}

const placeOf = (each) => (each.source === "default" ? "default" : each.origin.replace(/^.*[/\\](?=[^/\\]+:\d+$)/, ""));

function Row({ value }) {
  return html`<div class="setting"><strong class="mono cut" title=${value.path}>${value.path}</strong>
    <span class="mono cut">${value.secret ? html`<span class="unseen">secret, </span>` : ""}<${Text} value=${value.value} longest=${160}/></span>
    <span class="cut" title=${value.origin}>${placeOf(value)}</span></div>`;
}

function Detail({ value, back }) {
  return html`<div class="detail">
    <button type="button" class="plain back" onClick=${back}>‹ All values</button>
    <${Card}>
      <div class="line"><h2 class="mono name"><${Text} value=${value.path} longest=${300}/></h2><button type="button" class="close" aria-label="Close" onClick=${back}>✕</button></div>
      <div class="labels"><${Badge} tone=${TONES[value.source]}>${SOURCES[value.source]}<//>${value.secret && html`<${Badge} tone="wait">secret<//>`}</div>
      <${Code} value=${value.value} label="Value"/>
      ${value.source === "environment" && html`<p class="quiet">The value of the variable stays on the host.</p>`}
      ${value.source === "runtime" && html`<p class="quiet">It replaces the value of the file until it is changed again.</p>`}
      <dl class="facts"><dt>Origin</dt><dd class="mono"><${Text} value=${value.origin} longest=${300}/></dd></dl>
    <//></div>`;
}

function LastReload({ last }) {
  if (!last) return null;
  const { started, stopped } = last.providers;
  const moved = [[started, "started"], [stopped, "stopped"]].filter(([keys]) => keys.length).map(([keys, word]) => `${word} ${keys.join(", ")}`).join("; ");
  return html`<${Card} title="Last reload" note=${html`<${Since} moment=${last.at}/> by <${Text} value=${last.by} longest=${60}/>`} actions=${html`<${Badge} tone=${last.applied ? "good" : "bad"}>${last.applied ? "applied" : "refused"}<//>`}>
    ${!last.applied && html`<p class="why">The new configuration has ${count(last.problems.length, "problem")}. Nothing was changed.</p>
      <ul class="events">${last.problems.slice(0, MOST_CHANGES).map((each, n) => html`<li key=${n}>${each.path && html`<b class="mono"><${Text} value=${each.path} longest=${200}/></b> `}<${Text} value=${each.message} longest=${400}/>
        <small>${each.file}${each.line > 0 && `:${each.line}`}${each.hint && html` · <${Text} value=${each.hint} longest=${300}/>`}</small></li>`)}</ul>`}
    ${last.applied && !last.changes.length && html`<p class="quiet">No value has changed.</p>`}
    ${moved && html`<p class="quiet">Providers: ${moved}.</p>`}
    ${last.changes.length > 0 && html`<ul class="rows changes" tabindex="0" aria-label="Changed values">${last.changes.slice(0, MOST_CHANGES).map((each) => html`<li key=${`${each.kind} ${each.path}`}>
      <div><strong class="mono"><${Text} value=${each.path} longest=${200}/></strong><span class="mono before">${each.before && html`<del><span class="unseen">before: </span><${Text} value=${each.before} longest=${160}/></del>`}${each.after && html`<ins><span class="unseen">now: </span><${Text} value=${each.after} longest=${160}/></ins>`}</span></div>
      <small>${each.origin.replace(/^.*[/\\](?=[^/\\]+:\d+$)/, "")}</small><${Badge} tone=${KINDS[each.kind]}>${each.kind}<//></li>`)}</ul>
      ${last.changes.length > MOST_CHANGES && html`<p class="quiet">${count(last.changes.length - MOST_CHANGES, "more change")}</p>`}`}<//>`;
}
