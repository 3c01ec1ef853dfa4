// The waterfall of a group as a picture of its own, to keep and to send: an SVG file in the colours of the page.
import { isQuestion, tickText, tookText } from "./waterfall_groups.js";
import { duration, shown } from "./ui.js";

const WIDTH = 1200;
const NAMES = 260;
const RIGHT = 110;
const LANE = 34;
const TOP = 118;
const EDGE = 32;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** Give the browser the picture as a file. `shownIn` is an element of the page, whose colours it has. */
export function savePicture(shownIn, group, about) {
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(draw(shownIn, group, about))], { type: "image/svg+xml" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: `waterfall-${about.title.replace(/[^\w-]+/g, "-").slice(0, 60)}.svg` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function draw(shownIn, group, { title, colours, ticks }) {
  const probe = shownIn.ownerDocument.createElement("i");
  shownIn.append(probe);
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const height = TOP + group.lanes.length * LANE + 72;
  const make = (name, attributes, parent, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  };
  const svg = make("svg", { xmlns: "http://www.w3.org/2000/svg", width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, "font-family": FONT });
  const wait = colour("state-wait");
  const hatch = make("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, make("defs", {}, svg));
  make("rect", { width: 7, height: 7, fill: wait, opacity: 0.18 }, hatch);
  make("rect", { width: 3, height: 7, fill: wait, opacity: 0.75 }, hatch);
  make("rect", { width: WIDTH, height, rx: 18, fill: colour("card") }, svg);
  const text = (x, y, value, more = {}) => make("text", { x, y, fill: colour("text"), "font-size": 14, ...more }, svg, value);
  text(EDGE, 48, shown(title, 80), { "font-size": 22, "font-weight": 650 });
  text(EDGE, 72, `${group.calls.length} calls in ${duration(group.ran)}${group.waited ? `, waited ${duration(group.waited)} for approval` : ""}${group.failed ? `, ${group.failed} failed` : ""}`, { fill: colour("quiet") });
  const left = EDGE + NAMES;
  const room = WIDTH - left - RIGHT;
  const at = (moment) => left + group.scale.of(moment) * room;
  const bottom = TOP + group.lanes.length * LANE;
  for (const tick of ticks) {
    const x = left + tick.at * room;
    make("line", { x1: x, x2: x, y1: TOP - 8, y2: bottom, stroke: colour("line") }, svg);
    text(x + 4, TOP - 12, tickText(tick.seconds), { fill: colour("quiet"), "font-size": 12 });
  }
  group.lanes.forEach((lane, n) => {
    const y = TOP + n * LANE;
    text(EDGE, y + 22, shown(lane.tool, 30), { "font-weight": 550 });
    const bar = (each, fill) => make("rect", { x: at(each.begins), y: y + 8, width: Math.max(4, at(each.ends) - at(each.begins)), height: LANE - 15, rx: 5, fill }, svg);
    for (const each of lane.waits) bar(each, "url(#hatch)");
    for (const each of lane.bars) {
      if (isQuestion(each.call)) continue;
      bar(each, colour(each.call.status === "panic" ? "state-bad" : each.call.status === "success" ? `series-${colours.get(lane.source)}` : "chosen"));
    }
    text(WIDTH - EDGE, y + 22, tookText(lane) || "waits", { fill: colour("quiet"), "text-anchor": "end", "font-size": 13 });
  });
  text(WIDTH - EDGE, bottom + 44, "toolplug", { fill: colour("accent"), "text-anchor": "end", "font-weight": 650 });
  let x = EDGE;
  const named = [...colours].map(([source, n]) => [shown(source || "not known", 30), colour(`series-${n}`)]);
  if (group.waited > 0) named.push(["waits for approval", "url(#hatch)"]);
  if (group.failed > 0) named.push(["failed", colour("chosen")]);
  if (group.calls.some((call) => call.status === "panic")) named.push(["crashed", colour("state-bad")]);
  for (const [name, fill] of named) {
    make("rect", { x, y: bottom + 34, width: 11, height: 11, rx: 3, fill }, svg);
    text(x + 17, bottom + 44, name, { fill: colour("quiet"), "font-size": 13 });
    x += name.length * 7.5 + 40;
  }
  probe.remove();
  return svg;
}
