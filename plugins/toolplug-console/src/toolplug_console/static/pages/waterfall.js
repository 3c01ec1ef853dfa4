// Waterfall: the calls of a conversation, a session, a request or a caller as bars over time.
import { useCalls } from "../followed_calls.js";
import { CallDetail } from "./calls.js";
import { Gates } from "./tools.js";
import { savePicture } from "../waterfall_picture.js";
import { BY, groupsOf, isQuestion, ticksOf, tickText, tookText } from "../waterfall_groups.js";
import { Badge, Card, clock, Copy, count, duration, Empty, html, Loading, roughly, stateWord, Text, useLayoutEffect, useMemo, useRef, useState, VirtualList } from "../ui.js";

const ROW = 64;
const TICKS_WIDE = 6;
const TICKS_NARROW = 4;
const MOST_LANES = 100;
const CALM_MS = 500;  // between two drawings, however many calls come
const LINKED = { trace: "request", request: "request", session: "session" };  // how a link to one groups them
const WIDE = "(min-width: 52.01rem)";

export function Waterfall({ visitor, rest }) {
  const { calls: followed, state } = useCalls(false);
  const calls = useCalm(followed);
  const [kind, id, of] = rest;
  const [chosenBy, setBy] = useState("conversation");
  const by = LINKED[kind] ?? chosenBy;
  const groups = useMemo(() => groupsOf(calls, by), [calls, by]);
  const key = kind && id ? `${kind}/${id}` : undefined;
  const found = kind === "call" ? groups.find((group) => group.calls.some((call) => String(call.id) === id)) : groups.find((group) => group.key === key);
  // Where there is room for both, the newest is open.
  const group = found ?? (!key && matchMedia(WIDE).matches ? groups[0] : undefined);
  const choose = (each) => { location.hash = each ? `#/waterfall/${each.key.split("/").map(encodeURIComponent).join("/")}` : "#/waterfall"; };
  const call = group?.calls.find((each) => String(each.id) === (kind === "call" ? id : of));
  return html`<header class="page"><div><h1>Waterfall</h1><p class="quiet">Calls over time: what ran side by side, what waited for a person, what failed.</p></div>
      <span class="live" data-state=${state} role="status">${{ live: "live", connecting: "connecting", refused: "not allowed" }[state]}</span></header>
    <div class="split falls" data-open=${Boolean(key)}>
      <${Card} class="list" label="Groups of calls">
        <div class="by" role="radiogroup" aria-label="Calls by">${Object.entries(BY).map(([each, text]) => html`<label key=${each}><input class="unseen" type="radio" name="by" checked=${by === each} onChange=${() => { setBy(each); choose(null); }}/><span>${text}</span></label>`)}</div>
        ${groups.length ? html`<${VirtualList} class="stream" items=${groups} height=${ROW} label="Groups of calls, the newest first" keyOf=${(each) => each.key} selected=${group?.key} onSelect=${choose} row=${(each) => html`<${Row} group=${each}/>`}/>`
          : html`<${Empty} title=${state === "live" ? "No calls yet" : "Connecting"}>${state === "live" && "Calls of the last hour, and new ones as they are answered, appear here."}<//>`}
      <//>
      ${group ? html`<div class="detail"><button type="button" class="plain back" onClick=${() => choose(null)}>‹ All groups</button>
          <${Picture} group=${group} chosen=${call} choose=${(each) => { location.hash = `#/waterfall/${[...group.key.split("/"), each.id].map(encodeURIComponent).join("/")}`; }}/>
          ${call && html`<${Chosen} key=${call.id} call=${call} visitor=${visitor} back=${() => choose(group)}/>`}</div>`
        : html`<${Card}>${key && state !== "live" ? html`<${Loading}/>` : html`<${Empty} title=${key ? "These calls are not remembered" : "Choose a group"}>${key ? "The newest 200 calls of the last hour are." : "Its calls appear here as bars over time."}<//>`}<//>`}
    </div>`;
}

/** The value, which changes no more often than the picture is drawn. */
function useCalm(value) {
  const [calm, setCalm] = useState(value);
  const last = useRef(-CALM_MS);
  useLayoutEffect(() => {
    const timer = setTimeout(() => { last.current = performance.now(); setCalm(value); }, Math.max(0, last.current + CALM_MS - performance.now()));
    return () => clearTimeout(timer);
  }, [value]);
  return calm;
}

/** The call that was clicked, with its gates as they are now. */
function Chosen({ call, visitor, back }) {
  const place = useRef(null);
  useLayoutEffect(() => { if (!matchMedia(WIDE).matches) place.current.scrollIntoView(); }, []);
  return html`<div ref=${place}><${CallDetail} id=${call.id} listed=${call} visitor=${visitor} back=${back}>
    ${visitor.can("admin") && call.tenant === visitor.tenant && html`<${Gates} name=${call.tool} query=${{ agent: call.agent, session: call.session }}/>`}<//></div>`;
}

const titleOf = (group) => (group.kind === "caller" ? group.id : group.kind === "conversation" ? `conversation ${group.id}` : group.kind === "session" ? `session ${group.id}` : `${group.kind} ${group.id.slice(0, 12)}`);

function Row({ group }) {
  return html`<span class="line"><strong><${Text} value=${group.tools.slice(0, 3).join(", ")} longest=${90}/>${group.tools.length > 3 && html`<span class="quiet"> +${group.tools.length - 3}</span>`}</strong><time class="quiet">${clock(group.newest)}</time></span>
    <${Thumb} group=${group}/>
    <span class="line foot"><span class="cut"><${Text} value=${titleOf(group)} longest=${60}/></span><small>${count(group.calls.length, "call")}</small><small>${group.ran ? duration(group.ran) : "not run"}</small></span>`;
}

const toneOf = (call) => (isQuestion(call) ? "asked" : call.status === "panic" ? "crashed" : call.status === "success" ? "" : "failed");

/** The picture of a group in the height of a line. */
function Thumb({ group }) {
  const lanes = group.lanes.slice(0, 6);
  const x = (moment) => `${(group.scale.of(moment) * 100).toFixed(2)}%`;
  const wide = (from, to) => `${Math.max(1.2, (group.scale.of(to) - group.scale.of(from)) * 100).toFixed(2)}%`;
  return html`<svg class="thumb" aria-hidden="true" width="100%" height="14">${lanes.map((lane, n) => [
    ...lane.waits.map((wait) => html`<rect class="wait" x=${x(wait.begins)} width=${wide(wait.begins, wait.ends)} y=${n * 2.4} height="1.7" rx=".8"/>`),
    ...lane.bars.map((bar) => html`<rect class=${toneOf(bar.call)} x=${x(bar.begins)} width=${wide(bar.begins, bar.ends)} y=${n * 2.4} height="1.7" rx=".8"/>`)])}</svg>`;
}

/** Whether there is room for the wide picture. */
function useWide() {
  const [wide, setWide] = useState(() => matchMedia(WIDE).matches);
  useLayoutEffect(() => {
    const query = matchMedia(WIDE);
    const changed = () => setWide(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return wide;
}

const SERIES = 5;
const WORDS_FIT = 0.07;

/** The place of each source among the colours, in the order in which they are called. */
function coloursOf(group) {
  const sources = [...new Set(group.lanes.map((lane) => lane.source))];
  return new Map(sources.map((source, n) => [source, n % SERIES]));
}

function Picture({ group, chosen, choose }) {
  const wide = useWide();
  const ticks = useMemo(() => ticksOf(group, wide ? TICKS_WIDE : TICKS_NARROW), [group, wide]);
  const colours = useMemo(() => coloursOf(group), [group]);
  const lanes = group.lanes.slice(0, MOST_LANES);
  const left = (share) => `${(share * 100).toFixed(3)}%`;
  const question = group.lanes.some((lane) => lane.waits.length);
  return html`<${Card} class="fall" label="Waterfall">
    <header><div class="fall-title"><h2><${Text} value=${titleOf(group)} longest=${120}/></h2>
        <p class="quiet">${clock(group.begins)} · ${count(group.calls.length, "call")} ${group.ran > 0 ? html`in <b>${duration(group.ran)}</b>` : "that did not run"}${group.waited > 0 && html` · waited <b>${duration(group.waited)}</b>`}${group.failed > 0 && html` · <span class="tone bad">${group.failed} failed</span>`}${
          group.kind !== "caller" && html` · <${Text} value=${group.calls[0].subject} longest=${60}/>`}</p></div>
      <div class="actions">${group.trace && html`<${Copy} text=${group.trace}>Trace id<//>`}<${Copy} text=${location.href}>Link<//><button type="button" onClick=${(event) => savePicture(event.currentTarget.closest(".fall"), group, { title: titleOf(group), colours, ticks })}>Save picture</button></div></header>
    <div class="lanes" role="list" aria-label="Calls in the order of their beginnings">
      <div class="axis" aria-hidden="true"><span class="track">${ticks.map((tick) => html`<i key=${tick.at} style=${{ left: left(tick.at) }}><b>${tickText(tick.seconds)}</b></i>`)}</span></div>
      <div class="grid" aria-hidden="true"><span class="track">${ticks.map((tick) => html`<i key=${tick.at} style=${{ left: left(tick.at) }}></i>`)}${
        group.scale.parts.filter((part) => part.idle).map((part) => html`<em key=${part.begins} style=${{ left: left(part.left), width: left(part.width) }}></em>`)}</span></div>
      ${lanes.map((lane, n) => html`<${Lane} key=${lane.bars[0].call.id} lane=${lane} group=${group} tone=${colours.get(lane.source)} chosen=${chosen} choose=${choose} left=${left}/>`)}
    </div>
    ${group.lanes.length > MOST_LANES && html`<p class="quiet">${count(group.lanes.length - MOST_LANES, "more call")}</p>`}
    <ul class="legend">${[...colours].map(([source, n]) => html`<li key=${source} class=${`series-${n}`}><${Text} value=${source || "not known"} longest=${40}/></li>`)}${
      question && html`<li class="wait">waits for approval</li>`}${group.calls.some((call) => toneOf(call) === "failed") && html`<li class="failed">failed</li>`}${group.calls.some((call) => call.status === "panic") && html`<li class="crashed">crashed</li>`}</ul><//>`;
}

function Lane({ lane, group, tone, chosen, choose, left }) {
  const last = lane.bars.at(-1).call;
  const of = (moment) => group.scale.of(moment);
  const took = tookText(lane);
  return html`<div role="listitem" class=${`lane series-${tone}${lane.bars.some((bar) => bar.call === chosen) ? " chosen" : ""}`}>
    <button type="button" class="lane-name" onClick=${() => choose(last)} aria-pressed=${lane.bars.some((bar) => bar.call === chosen)}><strong><${Text} value=${lane.tool} longest=${100}/></strong>${
      lane.attempts > 1 && html`<small class="again" aria-hidden="true" title="The same tool, again after a failure">↻ ${lane.attempts}</small>`}<span class="unseen">${lane.attempts > 1 && `, ${lane.attempts} attempts`}, ${took ? `${stateWord(last.status)}, ${took}` : "waits for approval"}</span></button>
    <span class="track" aria-hidden="true">${lane.waits.map((wait) => html`<i key=${wait.begins} class=${`bar wait${wait.open ? " open" : ""}`} style=${{ left: left(of(wait.begins)), width: left(of(wait.ends) - of(wait.begins)) }} title=${`waited ${duration(wait.ends - wait.begins)} for an approval`}>${of(wait.ends) - of(wait.begins) > WORDS_FIT && html`<b>${wait.open ? "waits" : roughly(wait.ends - wait.begins)}</b>`}</i>`)}${
      lane.bars.map((bar, n) => html`<i key=${bar.call.id} class=${`bar ${toneOf(bar.call)}${bar.call === chosen ? " chosen" : ""}`} style=${{ left: left(of(bar.begins)), width: left(of(bar.ends) - of(bar.begins)) }}
        title=${`${bar.call.tool}: ${stateWord(bar.call.status)}, ${duration(bar.call.duration_s ?? 0)}`} onClick=${() => choose(bar.call)}></i>`)}</span>
    <span class="lane-took" aria-hidden="true">${!took ? html`<${Badge} value="waiting"/>` : took === "not run" ? html`<${Badge} tone="calm">not run<//>` : took}</span></div>`;
}
