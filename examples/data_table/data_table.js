/**
 * A table with a chart. What a person does with it a model may do as well, through the tools that the page lends to a
 * toolplug host. They follow the state: without rows there is nothing to describe, to select or to draw.
 */

import { element, startChat } from "./chat.js";

const MAX_ROWS = 200;
const RETRY_MS = 5_000;
const KEPT = "data_table";
const KINDS = ["bar", "line"];

// The table, kept as long as the tab, so that loading the page again shows the same.

/** @type {{ rows: { label: string, value: number, chosen: boolean }[], kind: string | null }} */
const table = JSON.parse(sessionStorage.getItem(KEPT) ?? '{"rows":[],"kind":null}');

const room = () => MAX_ROWS - table.rows.length;

function addRows(rows) {
  table.rows.push(...rows.map(({ label, value }) => ({ label, value, chosen: false })));
  changed(rows.length === 1 ? "a row was added" : `${rows.length} rows were added`);
}

function keepRows(keep, reason) {
  table.rows = table.rows.filter(keep);
  if (table.rows.length === 0) table.kind = null;
  changed(reason);
}

function select(wanted) {
  for (const row of table.rows) row.chosen = wanted(row);
  changed("the selection changed");
  return table.rows.filter(({ chosen }) => chosen).map(({ label }) => label);
}

function draw(kind) {
  table.kind = kind;
  changed(`the chart shows ${kind}s`);
}

function describe() {
  const sorted = table.rows.map(({ value }) => value).sort((one, other) => one - other);
  const sum = sorted.reduce((total, value) => total + value, 0);
  const middle = sorted.length >> 1;
  return {
    rows: sorted.length,
    minimum: sorted[0],
    maximum: sorted[sorted.length - 1],
    mean: sum / sorted.length,
    median: sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2,
    sum,
    selected: table.rows.filter(({ chosen }) => chosen).map(({ label }) => label),
    chart: table.kind,
  };
}

/** Every change of the table ends here: what is seen, kept and lent follows. */
function changed(reason) {
  sessionStorage.setItem(KEPT, JSON.stringify(table));
  show();
  app?.replace(tools(), reason);
}

// The tools.

const ROW = {
  type: "object",
  properties: { label: { type: "string", minLength: 1, maxLength: 40 }, value: { type: "number" } },
  required: ["label", "value"],
  additionalProperties: false,
};

const ADD_ROWS = {
  name: "add_rows",
  description: `Adds rows to the table, which takes ${MAX_ROWS}, and returns how many there are.`,
  inputSchema: {
    type: "object",
    properties: { rows: { type: "array", items: ROW, minItems: 1, maxItems: 100 } },
    required: ["rows"],
    additionalProperties: false,
  },
  handler: async ({ rows }) => {
    if (rows.length > room()) throw new toolplug.ToolError(`the table has room for ${room()} rows`);
    addRows(rows);
    await app.settled(); // a model that reads the answer can draw the rows at once
    return { rows: table.rows.length };
  },
};

const DESCRIBE = {
  name: "describe",
  description: "Tells what is in the table: how many rows, their range, mean, median and sum, what is selected.",
  annotations: { readOnlyHint: true },
  handler: describe,
};

const SELECT = {
  name: "select",
  description: "Selects the rows that fit everything given, and no others; returns their labels.",
  inputSchema: {
    type: "object",
    properties: {
      labels: { type: "array", items: { type: "string" } },
      minimum: { type: "number", description: "the least value" },
      maximum: { type: "number", description: "the greatest value" },
    },
    additionalProperties: false,
  },
  annotations: { idempotentHint: true },
  handler: ({ labels, minimum = -Infinity, maximum = Infinity }) => ({
    selected: select(({ label, value }) => (labels?.includes(label) ?? true) && value >= minimum && value <= maximum),
  }),
};

const DRAW_CHART = {
  name: "draw_chart",
  description: "Draws the rows as bars or as a line, in place of what is drawn.",
  inputSchema: {
    type: "object",
    properties: { kind: { enum: KINDS } },
    required: ["kind"],
    additionalProperties: false,
  },
  annotations: { idempotentHint: true },
  handler: ({ kind }) => {
    draw(kind);
    return { drawn: kind, rows: table.rows.length };
  },
};

/** What can be done with the table as it is. */
function tools() {
  return [
    ...(room() > 0 ? [ADD_ROWS] : []),
    ...(table.rows.length > 0 ? [DESCRIBE, SELECT, DRAW_CHART] : []),
  ];
}

// The session.

let toolplug = null;
let app = null;
let attempts = 0;
let timer = 0;

async function start() {
  const attempt = ++attempts;
  clearTimeout(timer);
  app?.close();
  app = null;
  const host = hostUrl();
  showState("connecting");
  try {
    const session = await connect(host, attempt);
    if (attempt !== attempts) session.close();
    else follow(session);
  } catch (error) {
    if (attempt !== attempts) return;
    if (error.temporary) away(error.message);
    else refused(error);
  }
}

async function connect(host, attempt) {
  try {
    // A module that could not be loaded is not asked for again under the same address.
    toolplug = await import(`${host}/toolplug.js${attempt > 1 ? `?attempt=${attempt}` : ""}`);
  } catch (cause) {
    const hint = `Start it with make serve; its http.allowed_origins must list ${location.origin}.`;
    throw Object.assign(new Error(`No host answers at ${host}. ${hint}`, { cause }), { temporary: true });
  }
  return await toolplug.connect({
    host,
    apiKey: fields.apiKey.value || undefined,
    pluginType: "data_table",
    capabilities: [
      { type: "data_analysis", level: "basic", resources: ["table"] },
      { type: "visualization", level: "basic", resources: KINDS },
    ],
    environment: { version: "1.0", features: ["chart", "selection"] },
    storage: sessionStorage,
  });
}

function follow(session) {
  app = session;
  const hear = (type, listener) => session.addEventListener(type, ({ detail }) => session === app && listener(detail));
  hear("state", showSession);
  hear("tools", showTools);
  hear("call", showCall);
  app.replace(tools(), "the page is there");
  app.settled().then((taken) => session === app && showTools(taken), () => {}); // what the host has had all along
  showSession({ state: app.state });
  chat.look();
}

function away(message) {
  showState("away");
  notify(message, "Try now");
  timer = setTimeout(start, RETRY_MS);
}

function refused(error) {
  showState("closed");
  if (error.status !== 401) {
    notify(`${error.message} (${error.code})`, "Try again");
    return;
  }
  notify(`The host ${fields.apiKey.value ? "does not know this API key" : "asks for an API key"}.`, "Try again");
  by("connection").closest("details").open = true;
  fields.apiKey.focus();
}

// What is seen. Texts from elsewhere are only ever set as text.

const by = (id) => document.getElementById(id);
const fields = by("connection").elements;
const hostUrl = () => fields.host.value.replace(/\/+$/, "");

function showSession({ state, error, retryInMs }) {
  showState(state);
  by("code").textContent = app.code;
  by("copy").disabled = by("copy-prompt").disabled = false;
  if (state === "waiting") {
    notify(`${error.message} Trying again in ${Math.ceil(retryInMs / 1000)} s; calls wait for a while.`, "Try now");
  } else if (state === "closed") {
    // To a host that has started again, the session's own token is one of nobody.
    const why = error?.status === 401 ? "the host no longer has this session" : (error?.message.split("; ")[0] ?? "the session is closed");
    notify(`${why[0].toUpperCase()}${why.slice(1)}. The rows are still here.`, "Start a new session");
  } else {
    by("notice").hidden = true;
  }
}

function showState(state) {
  by("state").dataset.state = state;
  by("state").textContent = { away: "host away", waiting: "reconnecting" }[state] ?? state;
}

function notify(message, action) {
  by("notice").hidden = false;
  by("notice").querySelector("p").textContent = message;
  by("retry").textContent = action;
}

function showTools({ lent, refused: refusals, error, retryInMs }) {
  const described = new Map(tools().map((tool) => [tool.name, tool.description]));
  const old = new Map([...by("tools").children].map((item) => [item.dataset.name, item]));
  const items = lent.map((name) => old.get(name) ?? toolItem(name, described.get(name) ?? ""));
  const bad = refusals.map(({ name, error: why }) => toolItem(name, `refused: ${why}`, "refused"));
  by("tools").replaceChildren(...items, ...bad);
  by("no-tools").hidden = items.length + bad.length > 0;
  if (error) notify(`${error.message} The tools follow in ${Math.ceil(retryInMs / 1000)} s.`, "Try now");
  else if (app.state === "connected") by("notice").hidden = true;
}

function toolItem(name, text, className = "") {
  const [title, described] = [element("strong", { textContent: name }), element("p", { textContent: text })];
  const item = element("li", { className }, title, described);
  item.dataset.name = name;
  return item;
}

function showCall({ id, name, phase, error }) {
  by("no-calls").hidden = true;
  const known = [...by("calls").children].find((item) => item.dataset.id === id);
  const text = error ? `${phase}: ${error.message}` : phase;
  if (known) {
    known.lastChild.textContent = text;
    return;
  }
  const item = element("li", {}, element("strong", { textContent: name }), element("span", { textContent: text }));
  item.dataset.id = id;
  by("calls").prepend(item);
  while (by("calls").children.length > 50) by("calls").lastChild.remove();
}

function show() {
  const { rows, kind } = table;
  by("count").textContent = rows.length ? `${rows.length} of ${MAX_ROWS}` : "";
  by("no-rows").hidden = rows.length > 0;
  by("rows").replaceChildren(...rows.map(rowOf));
  by("remove").disabled = !rows.some(({ chosen }) => chosen);
  by("clear").disabled = rows.length === 0;
  by("add").querySelector("button").disabled = room() === 0;
  for (const name of KINDS) {
    by(name).disabled = rows.length === 0;
    by(name).ariaPressed = `${name === kind}`;
  }
  showChart();
}

function rowOf(row) {
  const box = element("input", { type: "checkbox", checked: row.chosen, ariaLabel: `Select ${row.label}` });
  box.addEventListener("change", () => {
    row.chosen = box.checked;
    changed("the selection changed");
    by("rows").children[table.rows.indexOf(row)].querySelector("input").focus();
  });
  return element(
    "tr",
    { className: row.chosen ? "chosen" : "" },
    element("td", {}, box),
    element("td", { textContent: row.label }),
    element("td", { textContent: row.value.toLocaleString() }),
  );
}

// The chart: plain SVG, as wide as there is room.

const HEIGHT = 240;
const [TOP, RIGHT, BOTTOM, LEFT] = [12, 16, 28, 44];

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function showChart() {
  const { rows, kind } = table;
  const place = by("chart");
  if (!kind) {
    place.replaceChildren(element("p", { className: "empty", textContent: "Nothing is drawn yet." }));
    return;
  }
  const width = Math.max(place.clientWidth, 240);
  const values = rows.map(({ value }) => value);
  const ticks = scale(Math.min(0, ...values), Math.max(0, ...values));
  const [low, high] = [ticks[0], ticks[ticks.length - 1]];
  const step = (width - LEFT - RIGHT) / rows.length;
  const x = (index) => LEFT + (index + 0.5) * step;
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": spoken(rows, kind) });
  for (const tick of ticks) {
    chart.append(
      svg("line", { class: tick === 0 ? "grid zero" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, compact(tick)),
    );
  }
  if (kind === "line") {
    const points = values.map((value, i) => `${x(i)},${y(value)}`).join(" ");
    chart.append(svg("polyline", { class: "trace", points }));
  }
  const every = Math.ceil(rows.length / Math.max(1, Math.floor((width - LEFT) / 64)));
  rows.forEach(({ label, value, chosen }, i) => {
    const looks = { class: chosen ? "mark chosen" : "mark" };
    const [above, below] = [Math.min(y(value), y(0)), Math.max(y(value), y(0))];
    const bar = { x: x(i) - step * 0.36, width: step * 0.72, y: above, height: below - above, rx: 2 };
    const dot = { cx: x(i), cy: y(value), r: 4 };
    const mark = kind === "bar" ? svg("rect", { ...looks, ...bar }) : svg("circle", { ...looks, ...dot });
    mark.append(svg("title", {}, `${label}: ${value.toLocaleString()}`));
    chart.append(mark);
    const fits = Math.max(3, Math.floor((step * every) / 7));
    const short = label.length > fits ? `${label.slice(0, fits - 1)}…` : label;
    if (i % every === 0) chart.append(svg("text", { x: x(i), y: HEIGHT - 8, "text-anchor": "middle" }, short));
  });
  place.replaceChildren(chart);
}

/** About five round numbers from the least to the greatest. */
function scale(least, greatest) {
  const rough = (greatest - least || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const first = Math.floor(least / step);
  const last = Math.max(Math.ceil(greatest / step), first + 1);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

const compact = (value) => value.toLocaleString(undefined, { notation: "compact", maximumSignificantDigits: 3 });

function spoken(rows, kind) {
  const first = rows.slice(0, 12).map(({ label, value }) => `${label} ${value}`);
  return `${kind === "bar" ? "Bars" : "A line"} of ${rows.length} values: ${first.join(", ")}`;
}

// What a person does.

by("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const { label, value } = event.target.elements;
  if (room() > 0) addRows([{ label: label.value.trim(), value: value.valueAsNumber }]);
  event.target.reset();
  label.focus();
});
by("remove").addEventListener("click", () => keepRows(({ chosen }) => !chosen, "the selected rows are gone"));
by("clear").addEventListener("click", () => keepRows(() => false, "all rows are gone"));
for (const kind of KINDS) by(kind).addEventListener("click", () => draw(kind));
by("retry").addEventListener("click", start);
by("copy").addEventListener("click", () => navigator.clipboard.writeText(app.code));
by("copy-prompt").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(await app.prompt());
  } catch (error) {
    notify(error.message, "Try now");
  }
});
by("connection").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
new ResizeObserver(showChart).observe(by("chart"));

const chat = startChat({
  form: by("ask"),
  list: by("talk"),
  status: by("heard"),
  connection: () => ({ host: hostUrl(), apiKey: fields.apiKey.value, session: app?.code }),
});

fields.host.value = new URLSearchParams(location.search).get("host") ?? "http://127.0.0.1:8080";
show();
start();
