// Calls as groups of lanes over time, for the page Waterfall. Nothing here draws.
import { duration } from "./ui.js";

const BURST_S = 30;
const APPROVAL_S = 300;  // a wait is drawn for so long; a host may keep a question open for longer
const BREAK_SHARE = 0.12;
const BREAK_WIDTH = 0.05;
const WAIT_WIDTH = 0.13;  // room for the words in it

export const BY = { conversation: "conversation", session: "session", request: "request", caller: "caller" };

const startOf = (call) => call.ts - (call.duration_s ?? 0);
const callerOf = (call) => `${call.tenant} ${call.subject} ${call.agent ?? ""}`;

/** What a call belongs to: `[kind, id]`; null where only its caller is known. */
function homeOf(call, by) {
  if (by === "caller") return null;
  if (by === "session") return call.session ? ["session", call.session] : null;
  if (by === "request") return call.trace_id ? ["trace", call.trace_id] : call.request_id ? ["request", call.request_id] : null;
  return call.conversation ? ["conversation", call.conversation] : call.session ? ["session", call.session] : null;
}

/**
 * Groups of calls, the newest first. A call without a home joins the others of its caller that were made within half a
 * minute; one that was made with an approval joins the call that has asked for it.
 */
export function groupsOf(calls, by) {
  const groups = new Map();
  const asked = new Map();
  const bursts = new Map();
  for (const call of [...calls].sort((a, b) => startOf(a) - startOf(b))) {
    const home = homeOf(call, by);
    let key = home ? home.join("/") : undefined;
    if (call.approval && by !== "request" && asked.has(call.approval)) key = asked.get(call.approval);
    const burst = bursts.get(callerOf(call));
    if (!key) key = burst && startOf(call) - burst.ends < BURST_S ? burst.key : `caller/${call.id}`;
    if (call.approval && !asked.has(call.approval)) asked.set(call.approval, key);
    if (!home) bursts.set(callerOf(call), { key, ends: Math.max(call.ts, burst?.key === key ? burst.ends : 0) });
    if (!groups.has(key)) groups.set(key, { key, kind: home?.[0] ?? "caller", id: home?.[1] ?? call.subject, calls: [] });
    groups.get(key).calls.push(call);
  }
  return [...groups.values()].map(completed).sort((a, b) => b.newest - a.newest);
}

function completed(group) {
  const lanes = lanesOf(group.calls);
  const spans = lanes.flatMap((lane) => [...lane.bars, ...lane.waits]);
  const begins = Math.min(...spans.map((span) => span.begins));
  const ends = Math.max(...spans.map((span) => span.ends));
  return {
    ...group, lanes, begins, ends, newest: Math.max(...group.calls.map((call) => call.ts)), scale: scaleOf(spans, begins, ends),
    failed: group.calls.filter((call) => call.status !== "success" && !isQuestion(call)).length,
    waited: lengthOf(lanes.flatMap((lane) => lane.waits)),
    ran: lengthOf(lanes.flatMap((lane) => lane.bars)),
    tools: [...new Set(group.calls.map((call) => call.tool))],
    trace: group.calls.find((call) => call.trace_id)?.trace_id ?? "",
  };
}

/** The spans without what lies between them; those that overlap as one, in order. */
function joined(spans) {
  const found = [];
  for (const span of [...spans].sort((a, b) => a.begins - b.begins)) {
    const last = found.at(-1);
    if (last && span.begins <= last.ends) last.ends = Math.max(last.ends, span.ends);
    else found.push({ begins: span.begins, ends: span.ends });
  }
  return found;
}

/** How long at least one of the spans lasted: what happens side by side counts once. */
const lengthOf = (spans) => joined(spans).reduce((sum, each) => sum + each.ends - each.begins, 0);

/** Whether the call was not run but asked about; one that a person has denied is none. */
export const isQuestion = (call) => Boolean(call.asked) && call.status === "denied";

/** The calls as lanes, in the order of their beginnings: a repetition and an approved call are in the lane of the first. */
function lanesOf(calls) {
  const lanes = [];
  const failed = new Map();  // the newest lane of a tool that has failed
  for (const call of calls) {
    const bar = { call, begins: startOf(call), ends: call.ts };
    const asked = call.approval && lanes.find((lane) => lane.open === call.approval);
    const before = asked ? undefined : failed.get(call.tool);
    const again = before && before.bars.at(-1).ends <= bar.begins + 0.001 && before;
    const lane = asked || again || { tool: call.tool, source: call.source ?? "", bars: [], waits: [], attempts: 0 };
    if (!asked && !again) lanes.push(lane);
    if (asked) {
      lane.waits.at(-1).ends = Math.max(bar.begins, lane.waits.at(-1).begins);
      lane.waits.at(-1).open = false;
    }
    if (isQuestion(call)) {
      if (!asked) lane.waits.push({ begins: bar.ends, ends: Math.min(Date.now() / 1000, bar.ends + APPROVAL_S), open: Date.now() / 1000 < bar.ends + APPROVAL_S });
      else if (lane.bars.at(-1)?.call.status === "denied") lane.bars.pop();
    } else lane.attempts += 1;
    lane.bars.push(bar);
    lane.open = isQuestion(call) ? call.approval : "";
    if (call.status !== "success" && !isQuestion(call)) failed.set(call.tool, lane);
    else if (failed.get(call.tool) === lane) failed.delete(call.tool);
    lane.source ||= call.source ?? "";
  }
  return lanes;
}

/**
 * The scale from moments to shares of the width: time in which something ran is in proportion, and a long time in which
 * nothing did, or in which a call waited for a person, is a narrow break.
 */
function scaleOf(spans, begins, ends) {
  const busy = joined(spans.filter((each) => each.call));
  const worked = busy.reduce((sum, each) => sum + each.ends - each.begins, 0);
  const parts = [];
  let at = begins;
  const add = (part) => {
    const last = parts.at(-1);
    // Of one scale, and so with one row of lines on the axis.
    if (last && !last.idle && !part.idle) last.ends = part.ends;
    else parts.push(part);
  };
  const rest = (until) => { if (until > at) add({ begins: at, ends: until, idle: until - at > Math.max(0.02, worked * BREAK_SHARE) }); };
  for (const each of busy) {
    rest(each.begins);
    add({ ...each, idle: false });
    at = each.ends;
  }
  rest(ends);
  const breaks = parts.filter((part) => part.idle);
  const waits = spans.filter((each) => !each.call);
  for (const part of breaks) part.width = waits.some((wait) => wait.begins < part.ends && wait.ends > part.begins) ? WAIT_WIDTH : BREAK_WIDTH;
  const wide = breaks.reduce((sum, part) => sum + part.width, 0);
  const less = Math.min(1, 0.4 / wide);
  const share = parts.length === breaks.length ? 0 : 1 - wide * less;
  const real = parts.reduce((sum, part) => sum + (part.idle ? 0 : part.ends - part.begins), 0);
  let left = 0;
  for (const part of parts) {
    part.left = left;
    part.width = share === 0 ? 1 / parts.length : part.idle ? part.width * less : real > 0 ? (share * (part.ends - part.begins)) / real : share / (parts.length - breaks.length);
    left += part.width;
  }
  const of = (moment) => {
    const part = parts.find((each) => moment <= each.ends) ?? parts.at(-1);
    if (!part) return 0;
    const length = part.ends - part.begins;
    return part.left + part.width * (length > 0 ? Math.min(1, Math.max(0, (moment - part.begins) / length)) : 0);
  };
  return { parts, of };
}

/** How long the calls of a lane ran; empty while one waits for an approval. */
export function tookText(lane) {
  if (lane.waits.some((wait) => wait.open)) return "";
  const ran = lane.bars.filter((bar) => !isQuestion(bar.call) && bar.call.duration_s != null && bar.call.status !== "unknown_tool");
  return ran.length ? duration(lengthOf(ran)) : "not run";
}

const STEPS = [1, 2, 5];
const NARROW = 0.04;  // of the width: one line of the axis fits there, where it begins

/** Where the axis has lines: `{at, seconds}`, at shares of the width, and seconds since the group began. */
export function ticksOf(group, most) {
  const found = [];
  // A label is to the right of its line, and ends before the picture does.
  const fits = (at) => at < 1 - 0.4 / most && (!found.length || at - found.at(-1).at > 0.9 / most);
  for (const [n, part] of group.scale.parts.entries()) {
    if (part.idle || part.ends <= part.begins) continue;
    if (n > 0 && part.width <= NARROW) {
      if (fits(part.left)) found.push({ at: part.left, seconds: part.begins - group.begins });
      continue;
    }
    const wanted = Math.max(1, Math.floor(part.width * most));
    const raw = (part.ends - part.begins) / wanted;
    const ten = 10 ** Math.floor(Math.log10(raw));
    const step = ten * (STEPS.find((each) => each * ten >= raw) ?? 10);
    const from = part.begins - group.begins;
    for (let n = Math.ceil(from / step - 1e-9); n * step <= part.ends - group.begins + 1e-9 && found.length < 40; n += 1) {
      const at = group.scale.of(group.begins + n * step);
      if (fits(at)) found.push({ at, seconds: n * step });
    }
  }
  return found;
}

/** The label of a line of the axis. */
export const tickText = (seconds) => (seconds < 1e-9 ? "0" : seconds < 1 ? `${+(seconds * 1000).toPrecision(3)} ms` : seconds < 120 ? `${+seconds.toFixed(2)} s` : `${+(seconds / 60).toFixed(1)} min`);
