// The arguments of a call in words, by the schema of its tool: "order: item A1, count 3, express".
import { html, shown, Text } from "./ui.js";

const MOST = 8;

const isFlat = (value) => value === null || ["string", "number", "boolean"].includes(typeof value);
/** A record of a few plain values, such as a line of an order. */
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length <= MOST && Object.values(value).every(isFlat);
const isSaid = (value) => isFlat(value) || isRecord(value) || (Array.isArray(value) && value.length <= MOST && (value.every(isFlat) || value.every(isRecord)));

/** Whether every argument can be said in a sentence, and is. */
export function fitsSentence(given) {
  return given !== null && typeof given === "object" && !Array.isArray(given)
    && Object.keys(given).length <= MOST
    && Object.values(given).every((value) => isSaid(value) && JSON.stringify(value).length <= 200);
}

const worded = (name) => name.replaceAll("_", " ");
const said = (value) => {
  if (Array.isArray(value)) return value.map(said).join(isRecord(value[0]) ? "; " : ", ");
  if (isRecord(value)) return Object.entries(value).map(([name, each]) => (each === true ? worded(name) : each === false ? `not ${worded(name)}` : `${worded(name)} ${said(each)}`)).join(", ");
  return typeof value === "string" ? value || "“”" : String(value);
};

/** The arguments, in the order of the schema; flags are named alone where they are set. */
export function Sentence({ tool, given, schema }) {
  const known = Object.keys(schema?.properties ?? {});
  const names = [...known.filter((name) => name in given), ...Object.keys(given).filter((name) => !known.includes(name))];
  return html`<p class="sentence"><strong class="mono"><${Text} value=${tool} longest=${120}/></strong>${!names.length && " without arguments"}${names.map((name, n) => html`<span key=${name} title=${schema?.properties?.[name]?.description}>${n ? ", " : " "}${
    given[name] === true ? html`<b>${shown(worded(name), 80)}</b>` : given[name] === false ? html`not ${shown(worded(name), 80)}`
    : html`<span class="quiet">${shown(worded(name), 80)}</span> <b><${Text} value=${said(given[name])} longest=${400}/></b>`}</span>`)}.</p>`;
}
