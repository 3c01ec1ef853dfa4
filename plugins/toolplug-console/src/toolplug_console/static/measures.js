// The last hour as the host remembers it: calls, failures and latency; as charts, and as small lines of bars.
import { useAnswer } from "./api.js";
import { count, html, useLayoutEffect, useMemo, useRef, useState } from "./ui.js";

const EVERY_MS = 5_000;
const HOUR_S = 3_600;
const FEW = 40;
const PAUSE_S = 60;

/** The hour: `{at, calls, failed, p50, p95, tools}`, with rates a second; null until it is known or if none is. The rates
 * are those of the ticks that have ended; the sums have the calls since. */
export function useHour() {
  const { data, error } = useAnswer("/console/hour", { every: EVERY_MS });
  return useMemo(() => {
    if (!data) return error?.status === 404 ? { none: true } : null;
    const first = data.ends - data.calls.length * data.step_s;
    const rate = (numbers) => numbers.map((each) => each / data.step_s);
    return {
      at: data.calls.map((_, n) => first + (n + 1) * data.step_s), calls: rate(data.calls), failed: rate(data.failed), p50: data.p50, p95: data.p95,
      sum: sumOf(data.calls) + data.open.calls, failures: sumOf(data.failed) + data.open.failed, tools: data.tools,
    };
  }, [data, error]);
}

const sumOf = (numbers) => numbers.reduce((sum, each) => sum + each, 0);

/** The numbers of the tools for which `wanted` says so, together; null without calls. */
export function hourOf(hour, wanted) {
  const found = (hour?.tools ?? []).filter(wanted);
  if (!found.length) return null;
  const add = (name) => found[0][name].map((_, n) => sumOf(found.map((each) => each[name][n])));
  return { calls: add("calls"), failed: add("failed") };
}

/** An hour as sixty bars, failures in another colour. The text next to it, or its label, has the numbers. */
export function Spark({ numbers }) {
  const sums = numbers ? [sumOf(numbers.calls), sumOf(numbers.failed)] : [0, 0];
  const text = `${count(sums[0], "call")} in the last hour${sums[1] ? `, ${sums[1].toLocaleString("en")} failed` : ""}`;
  const most = Math.max(1, ...(numbers?.calls ?? []));
  const bars = (values) => values.map((value, n) => (value ? `M${n * 2 + 1} 20V${20 - Math.max(2.5, (value / most) * 18)}` : "")).join("");
  return html`<span class="spark" role="img" aria-label=${text} title=${text}><svg viewBox="0 0 120 20" preserveAspectRatio="none" aria-hidden="true"><path class="ground" d="M0 19.75H120"/>${
    numbers && html`<path d=${bars(numbers.calls)}/><path class="bad" d=${bars(numbers.failed)}/>`}</svg></span>`;
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
  useLayoutEffect(() => {
    const changed = () => setTheme((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(changed);
    system.addEventListener("change", changed);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => { system.removeEventListener("change", changed); observer.disconnect(); };
  }, []);
  return theme;
}

/** The last hour; the last minutes alone while there is nothing before them. */
function shownTime(plot) {
  const at = plot.data?.[0] ?? [];
  const until = at.at(-1) ?? Date.now() / 1000;
  const first = at.find((_, n) => plot.data.slice(1).some((values) => values[n]));
  return [until - (first === undefined ? HOUR_S : Math.min(HOUR_S, Math.max(300, (until - first) * 1.1))), until];
}

const clockOf = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** A tick of an axis of durations: one unit for its number, without digits that say nothing. */
const durationTick = (value) => (value === 0 ? "0" : value < 0.001 ? `${+(value * 1e6).toPrecision(2)} µs` : value < 1 ? `${+(value * 1000).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`);
const rateTick = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 });

/** The pauses of more than a minute between two values, each with the moments at which it begins and ends. */
function pausesOf(at, values, first, last) {
  const known = [];
  for (let n = first; n <= last; n++) if (values[n] != null) known.push(at[n]);
  return known.slice(1).map((moment, n) => [known[n], moment]).filter(([begins, ends]) => ends - begins > PAUSE_S);
}

/** A chart of an hour. `unit` is "rate" for numbers a second, or "duration" for seconds. */
export function Chart({ at, lines, label, unit }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const quiet = colour("quiet");
    const grid = colour("line");
    const size = () => ({ width: Math.max(120, box.current.clientWidth), height: 136 });
    const axis = { stroke: quiet, font: "11px system-ui", ticks: { show: false } };
    const few = (_, index) => plot.current?.data[index].filter((value) => value).length < FEW;
    plot.current = new window.uPlot({
      ...size(), legend: { show: false }, cursor: { show: false },
      scales: { x: { time: true, range: shownTime }, y: { range: (_, low, high) => [0, Math.max(high * 1.15, unit === "duration" ? 0.001 : 0.2)] } },
      axes: [
        { ...axis, incrs: [60, 120, 300, 600, 900, 1_800], grid: { show: false }, space: 64, size: 28, gap: 8, values: (_, ticks) => ticks.map(clockOf) },
        { ...axis, grid: { stroke: grid, width: 1 }, size: (_, values) => 14 + 6.2 * Math.max(2, ...(values ?? []).map((each) => each.length)), space: 34, gap: 6,
          values: (_, ticks) => ticks.map(unit === "duration" ? durationTick : rateTick) },
      ],
      padding: [8, 22, 0, 0],
      series: [{}, ...lines.map((line) => ({
        // A line from before a pause to after it would tell of calls that nobody made.
        gaps: (drawn, series, first, last) => pausesOf(drawn.data[0], drawn.data[series], first, last).map((pause) => pause.map((moment) => Math.round(drawn.valToPos(moment, "x", true)))),
        stroke: colour(line.colour), width: 1.75, points: { show: unit === "duration" && few, size: 5, width: 1, fill: colour(line.colour) },
        fill: line.fill ? colour(line.colour).replace(/^rgb\((.*)\)$/, "rgba($1, .1)") : undefined,
      }))],
    }, [at, ...lines.map((line) => line.values)], box.current);
    const observer = new ResizeObserver(() => plot.current.setSize(size()));
    observer.observe(box.current);
    return () => { observer.disconnect(); plot.current.destroy(); };
  }, [theme]);
  useLayoutEffect(() => { plot.current?.setData([at, ...lines.map((line) => line.values)]); }, [at]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}
