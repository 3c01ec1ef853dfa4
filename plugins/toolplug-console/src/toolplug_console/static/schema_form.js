// A JSON schema as a form: a field for each property that a form can show, JSON text for every other.
import { html, Text } from "./ui.js";

const SIMPLE = new Set(["string", "number", "integer", "boolean"]);
const MOST_CHOICES = 200;
const MOST_ITEMS = 100;
const DEEPEST = 4;

function kindOf(schema, depth) {
  const options = schema?.anyOf ?? schema?.oneOf;
  const one = options?.filter((each) => each?.type !== "null");
  const own = one?.length === 1 ? { ...one[0], ...schema } : schema ?? {};
  const types = [own.type].flat().filter((type) => type && type !== "null");
  const type = types.length === 1 ? types[0] : one?.length === 1 ? one[0].type : undefined;
  if (Array.isArray(own.enum) && own.enum.length <= MOST_CHOICES) return { kind: "enum", own };
  if (type === "object" && depth < DEEPEST && own.properties && !own.anyOf && Object.keys(own.properties).length) return { kind: "object", own, fields: fieldsOf(own, depth + 1) };
  if (type === "array" && depth < DEEPEST && own.items && typeof own.items === "object" && !own.prefixItems) {
    const item = { name: "", required: true, ...kindOf(own.items, depth + 1) };
    if (item.kind !== "json") return { kind: "list", own, item };
  }
  return { kind: SIMPLE.has(type) ? type : "json", own };
}

/** The fields of an object schema, each with its kind and whether it must be given. */
export function fieldsOf(schema, depth = 0) {
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  return Object.entries(schema?.properties ?? {}).map(([name, each]) => ({ name, required: required.has(name), ...kindOf(each, depth) }));
}

/** What the fields hold, as arguments: `{arguments, wrong}`, where `wrong` has a text for each field that holds nothing valid. */
export function argumentsOf(fields, values) {
  const found = {};
  const wrong = {};
  for (const field of fields) {
    const given = valueOf(field, values[field.name]);
    if (given.wrong) wrong[field.name] = given.wrong;
    else if (given.value !== undefined) found[field.name] = given.value;
  }
  return { arguments: found, wrong };
}

/** What one field holds: `{value}`, undefined where it is not given, or `{wrong}`: a text, or for its parts texts. */
function valueOf(field, value) {
  const { kind, own, required } = field;
  if (kind === "object") {
    if (value === undefined && !required) return {};
    const inner = argumentsOf(field.fields, value ?? {});
    return Object.keys(inner.wrong).length ? { wrong: inner.wrong } : { value: inner.arguments };
  }
  if (kind === "list") {
    if (value === undefined) return required ? { value: [] } : {};
    const items = value.map((each) => valueOf(field.item, each));
    return items.some((each) => each.wrong) ? { wrong: items.map((each) => each.wrong) } : { value: items.map((each) => each.value ?? "") };
  }
  if (value === undefined || (value === "" && !(required && kind === "string"))) return {};
  if (kind === "number" || kind === "integer") return Number.isFinite(Number(value)) ? { value: Number(value) } : { wrong: "This is not a number." };
  if (kind === "enum") return { value: own.enum[Number(value)] };
  if (kind !== "json") return { value };
  try {
    return { value: JSON.parse(value) };
  } catch {
    return { wrong: "This is not JSON." };
  }
}

export function Fields({ fields, values, wrong, onChange }) {
  return html`<div class="fields">${fields.map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} wrong=${wrong[field.name]}
    onChange=${(value) => onChange({ ...values, [field.name]: value })}/>`)}</div>`;
}

function Field({ field, value, wrong, onChange }) {
  const { name, kind, own, required } = field;
  const hint = html`${own.description && html`<span class="hint"><${Text} value=${own.description} longest=${600}/></span>`}${typeof wrong === "string" && html`<span class="wrong">${wrong}</span>`}`;
  const title = html`<span class="top"><code><${Text} value=${name} longest=${80}/></code><small class="quiet">${[own.format || (kind === "json" ? (own.type ?? "JSON") : kind), required && "required",
    own.default != null && `default ${JSON.stringify(own.default)}`].filter(Boolean).join(" · ").slice(0, 120)}</small></span>`;
  if (kind === "object" || kind === "list") return html`<${Nested} field=${field} title=${title} hint=${hint} value=${value} wrong=${wrong} onChange=${onChange}/>`;
  if (kind === "boolean") {
    return html`<label class="field"><span class="top"><code><${Text} value=${name} longest=${80}/></code><small class="quiet">boolean${required && " · required"}</small></span>
      <select value=${value === undefined ? "" : String(value)} onChange=${(event) => onChange(event.target.value === "" ? undefined : event.target.value === "true")}>
        <option value="">${own.default === undefined ? "not given" : `default: ${own.default}`}</option><option value="true">true</option><option value="false">false</option></select>${hint}</label>`;
  }
  const text = { value: value ?? "", required, onInput: (event) => onChange(event.target.value) };
  const many = kind === "string" && !own.format && !(own.maxLength <= 200);
  return html`<label class="field">${title}${
    kind === "enum" ? html`<select ...${text}><option value="">${required ? "choose" : "not given"}</option>${own.enum.map((each, n) => html`<option key=${n} value=${n}>${String(each).slice(0, 100)}</option>`)}</select>`
    : kind === "json" ? html`<textarea class="mono" rows="3" spellcheck="false" placeholder=${own.type === "array" ? "[]" : own.type === "object" ? "{}" : "JSON"} ...${text}></textarea>`
    : kind === "string" ? (many ? html`<textarea rows="2" ...${text}></textarea>` : html`<input type="text" maxlength=${own.maxLength} ...${text}/>`)
    : html`<input type="number" step=${kind === "integer" ? 1 : "any"} min=${own.minimum} max=${own.maximum} ...${text}/>`}${hint}</label>`;
}

/** The fields of a nested object, or those of each item of a list. */
function Nested({ field, title, hint, value, wrong, onChange }) {
  const { kind, own, required, item } = field;
  if (kind === "object") {
    const open = required || value !== undefined;
    return html`<fieldset class="nested"><legend>${title}</legend>${hint}
      ${open ? html`<${Fields} fields=${field.fields} values=${value ?? {}} wrong=${wrong ?? {}} onChange=${onChange}/>` : ""}
      ${!required && html`<button type="button" class="plain" onClick=${() => onChange(open ? undefined : {})}>${open ? "Leave it out" : "Give it"}</button>`}</fieldset>`;
  }
  const items = value ?? [];
  const most = Math.min(own.maxItems ?? MOST_ITEMS, MOST_ITEMS);
  const set = (n, given) => onChange(items.map((each, at) => (at === n ? given : each)));
  const drop = (n) => { const left = items.filter((_, at) => at !== n); onChange(left.length || required ? left : undefined); };
  return html`<fieldset class="nested"><legend>${title}</legend>${hint}
    ${items.map((each, n) => html`<div key=${n} class="item"><${Field} field=${{ ...item, name: `item ${n + 1}` }} value=${each} wrong=${wrong?.[n]} onChange=${(given) => set(n, given)}/>
      <button type="button" class="close" aria-label=${`Remove item ${n + 1} of ${field.name}`} onClick=${() => drop(n)}>✕</button></div>`)}
    ${items.length < most && html`<button type="button" class="plain" onClick=${() => onChange([...items, item.kind === "object" ? {} : item.kind === "list" ? [] : item.kind === "boolean" ? false : ""])}>Add ${items.length ? "another" : "an item"}</button>`}</fieldset>`;
}
