// The arguments of a call in words, by the schema of its tool: "order: item A1, count 3, express".
import { html, shown, Text } from "./ui.js";

const MOST = 8;

const isFlat = (value) => value === null || ["string", "number", "boolean"].includes(typeof value);

/** Whether every argument can be said in a sentence, and is. */
export function fitsSentence(given) {
  return given !== null && typeof given === "object" && !Array.isArray(given)
    && Object.keys(given).length <= MOST
    && Object.values(given).every((value) => (isFlat(value) || (Array.isArray(value) && value.length <= MOST && value.every(isFlat))) && JSON.stringify(value).length <= 200);
}

const said = (value) => (Array.isArray(value) ? value.map(said).join(", ") : typeof value === "string" ? value || "“”" : String(value));
const worded = (name) => name.replaceAll("_", " ");

/** The arguments, in the order of the schema; flags are named alone where they are set. */
export function Sentence({ tool, given, schema }) {
  const known = Object.keys(schema?.properties ?? {});
  const names = [...known.filter((name) => name in given), ...Object.keys(given).filter((name) => !known.includes(name))];
  return html`<p class="sentence"><strong class="mono"><${Text} value=${tool} longest=${120}/></strong>${!names.length && " without arguments"}${names.map((name, n) => html`<span key=${name} title=${schema?.properties?.[name]?.description}>${n ? ", " : " "}${
    given[name] === true ? html`<b>${shown(worded(name), 80)}</b>` : given[name] === false ? html`not ${shown(worded(name), 80)}`
    : html`<span class="quiet">${shown(worded(name), 80)}</span> <b><${Text} value=${said(given[name])} longest=${400}/></b>`}</span>`)}.</p>`;
}
