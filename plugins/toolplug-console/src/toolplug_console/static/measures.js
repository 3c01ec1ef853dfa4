// Calls a second, errors and latency, from what the host counts for Prometheus; and small charts of them.
import { askText, connection } from "./api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

const EVERY_MS = 2_000;
const KEPT = 151;
const LINE = /^(\w+)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

function totals(text) {
  const found = { calls: 0, errors: 0, buckets: new Map() };
  for (const line of text.split("\n")) {
    if (!line.includes("builtin_tool_")) continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    const given = Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, text_]) => [key, text_]));
    if (name.endsWith("_builtin_tool_executions_total")) {
      found.calls += Number(value);
      if (given.status !== "success") found.errors += Number(value);
    } else if (name.endsWith("_builtin_tool_duration_seconds_bucket")) {
      const upTo = given.le === "+Inf" ? Infinity : Number(given.le);
      found.buckets.set(upTo, (found.buckets.get(upTo) ?? 0) + Number(value));
    }
  }
  return found;
}

/** The latency below which this share of the new calls ended, from the buckets; NaN without calls. */
function quantile(share, now, before) {
  const limits = [...now.buckets.keys()].sort((a, b) => a - b);
  const added = limits.map((limit) => now.buckets.get(limit) - (before.buckets.get(limit) ?? 0));
  const all = added.at(-1) ?? 0;
  if (!(all > 0)) return NaN;
  const at = added.findIndex((each) => each >= share * all);
  const low = at ? limits[at - 1] : 0;
  const high = Number.isFinite(limits[at]) ? limits[at] : low * 2;
  const below = at ? added[at - 1] : 0;
  return low + (high - low) * ((share * all - below) / Math.max(1, added[at] - below));
}

/** What was measured since the page was opened: times, calls and errors a second, and latencies. */
export function useMeasures() {
  const [series, setSeries] = useState({ at: [], calls: [], errors: [], middle: [], high: [], total: null });
  useEffect(() => {
    let before = null;
    let then = 0;
    let timer;
    const control = new AbortController();
    const look = async () => {
      if (!document.hidden && connection.state !== "away") {
        const now = performance.now();
        const found = await askText("/metrics", { signal: control.signal }).then(totals).catch(() => null);
        if (control.signal.aborted) return;
        if (found && before && found.calls >= before.calls && now > then) {
          const seconds = (now - then) / 1000;
          const last = before;
          setSeries((old) => {
            const add = (name, value) => [...old[name], value].slice(-KEPT);
            const number = (value) => (Number.isNaN(value) ? null : value * 1000);
            return {
              at: add("at", Date.now() / 1000), calls: add("calls", (found.calls - last.calls) / seconds),
              errors: add("errors", (found.errors - last.errors) / seconds),
              middle: add("middle", number(quantile(0.5, found, last))), high: add("high", number(quantile(0.95, found, last))),
              total: found,
            };
          });
        } else if (found) setSeries((old) => ({ ...old, total: found }));
        before = found;
        then = now;
      }
      timer = setTimeout(look, EVERY_MS);
    };
    look();
    return () => { control.abort(); clearTimeout(timer); };
  }, []);
  return series;
}

const colour = (name) => {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};

function useTheme() {
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const changed = () => setTheme((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(changed);
    system.addEventListener("change", changed);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => { system.removeEventListener("change", changed); observer.disconnect(); };
  }, []);
  return theme;
}

/** The last five minutes; the last one while the page is younger than that. */
function shownTime(plot) {
  const now = Date.now() / 1000;
  const since = plot.data?.[0]?.[0] ?? now;
  return [now - Math.min(300, Math.max(60, now - since)), now];
}

/** A line chart without axes of numbers: its values are next to it, and in its label. */
export function Chart({ at, lines, label, unit }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const quiet = colour("quiet");
    const grid = colour("line");
    const size = () => ({ width: Math.max(120, box.current.clientWidth), height: 136 });
    const axis = { stroke: quiet, font: "11px system-ui", ticks: { show: false } };
    plot.current = new window.uPlot({
      ...size(), legend: { show: false }, cursor: { show: false },
      scales: { x: { time: true, range: shownTime }, y: { range: (_, low, high) => [0, Math.max(high * 1.15, unit === "ms" ? 1 : 0.5)] } },
      axes: [
        { ...axis, grid: { show: false }, space: 72, size: 28, gap: 8, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")) },
        { ...axis, grid: { stroke: grid, width: 1 }, size: unit ? 48 : 36, space: 34, gap: 6,
          values: (_, ticks) => ticks.map((tick) => (unit ? `${tick} ${unit}` : String(tick))) },
      ],
      padding: [8, 26, 0, 0],
      series: [{}, ...lines.map((line) => ({
        stroke: colour(line.colour), width: 1.75, points: { show: false }, spanGaps: true,
        fill: line.fill ? colour(line.colour).replace(/^rgb\((.*)\)$/, "rgba($1, .1)") : undefined,
      }))],
    }, [at, ...lines.map((line) => line.values)], box.current);
    const observer = new ResizeObserver(() => plot.current.setSize(size()));
    observer.observe(box.current);
    return () => { observer.disconnect(); plot.current.destroy(); };
  }, [theme]);
  useEffect(() => { plot.current?.setData([at, ...lines.map((line) => line.values)]); }, [at]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}
