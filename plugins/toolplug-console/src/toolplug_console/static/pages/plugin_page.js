// A page that a plugin offers: a table of what one of its routes answers.
import { useAnswer } from "../api.js";
import { Badge, Card, clock, count, duration, Empty, html, Loading, Problem, Search, Text, useMemo, useState } from "../ui.js";

const EVERY_MS = 5_000;
const SHOWN = 500;

export function PluginPage({ page }) {
  const { title, text, path, rows: field } = page.plugin;
  const { data, error, reload } = useAnswer(path, { every: EVERY_MS });
  const [search, setSearch] = useState("");
  const all = Array.isArray(data?.[field]) ? data[field] : [];
  // A column in which no row has a value takes the room of those that have.
  const filled = page.plugin.columns.filter((column) => all.some((row) => row?.[column] != null && row[column] !== ""));
  const columns = filled.length ? filled : page.plugin.columns;
  const found = useMemo(() => {
    const word = search.trim().toLowerCase();
    return word ? all.filter((row) => columns.some((column) => String(row?.[column] ?? "").toLowerCase().includes(word))) : all;
  }, [data, search]);
  const numbers = new Set(columns.filter((column) => column !== "ts" && all.some((row) => typeof row?.[column] === "number")));
  return html`<header class="page"><div><h1><${Text} value=${title} longest=${60}/></h1><p class="quiet"><${Text} value=${text} longest=${300}/></p></div></header>
    <div class="toolbar"><div class="grow"><${Search} value=${search} onInput=${setSearch} label="Search the rows"/></div></div>
    <${Problem} error=${error} retry=${reload}/>
    <${Card} label=${title} title=${html`<span>${count(found.length, "row")}</span>`} note=${found.length > SHOWN && `the first ${SHOWN} are shown`}>
      ${!data && !error ? html`<${Loading} rows=${6}/>` : !found.length ? html`<${Empty} title=${all.length ? "No row matches" : "Nothing here yet"}/>`
        : html`<div class="scroll" tabindex="0" role="region" aria-label="Rows"><table><thead><tr>${columns.map((column) => html`<th key=${column} scope="col" class=${numbers.has(column) ? "number" : ""}>${headed(column)}</th>`)}</tr></thead>
          <tbody>${found.slice(0, SHOWN).map((row, n) => html`<tr key=${row?.id ?? n}>${columns.map((column) => html`<td key=${column} class=${numbers.has(column) ? "number" : column.endsWith("id") ? "mono" : ""}><${Cell} name=${column} value=${row?.[column]}/></td>`)}</tr>`)}</tbody></table></div>`}<//>`;
}

const headed = (column) => (column === "ts" ? "time" : column.replace(/_(s|at)$/, "").replaceAll("_", " "));

function Cell({ name, value }) {
  if (value == null) return html`<span class="quiet">–</span>`;
  if (name === "status" || name === "state") return html`<${Badge} value=${value}/>`;
  if (name.endsWith("_s") && typeof value === "number") return duration(value);
  if ((name === "ts" || name.endsWith("_at")) && !Number.isNaN(new Date(value).getTime())) return html`<time>${typeof value === "number" ? new Date(value * 1000).toLocaleString("en-GB") : `${new Date(value).toLocaleDateString("en-GB")} ${clock(value)}`}</time>`;
  return html`<${Text} value=${typeof value === "object" ? JSON.stringify(value) : value} longest=${200}/>`;
}
