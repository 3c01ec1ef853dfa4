// A JSON schema as a form: a field for each property that a form can show, JSON text for every other.
import { html, Text } from "./ui.js";

const SIMPLE = new Set(["string", "number", "integer", "boolean"]);
const MOST_CHOICES = 200;

function kindOf(schema) {
  const options = schema?.anyOf ?? schema?.oneOf;
  const one = options?.filter((each) => each?.type !== "null");
  const own = one?.length === 1 ? { ...one[0], ...schema } : schema ?? {};
  const types = [own.type].flat().filter((type) => type && type !== "null");
  const type = types.length === 1 ? types[0] : one?.length === 1 ? one[0].type : undefined;
  if (Array.isArray(own.enum) && own.enum.length <= MOST_CHOICES) return { kind: "enum", own };
  return { kind: SIMPLE.has(type) ? type : "json", own };
}

/** The fields of an object schema, each with its kind and whether it must be given. */
export function fieldsOf(schema) {
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  return Object.entries(schema?.properties ?? {}).map(([name, each]) => ({ name, required: required.has(name), ...kindOf(each) }));
}

/** What the fields hold, as arguments: `{arguments, wrong}`, where `wrong` has a text for each field that is no JSON. */
export function argumentsOf(fields, values) {
  const found = {};
  const wrong = {};
  for (const { name, kind, own, required } of fields) {
    const value = values[name];
    if (value === undefined || (value === "" && !(required && kind === "string"))) continue;
    if (kind === "number" || kind === "integer") {
      if (Number.isFinite(Number(value))) found[name] = Number(value);
      else wrong[name] = "This is not a number.";
    } else if (kind === "enum") found[name] = own.enum[Number(value)];
    else if (kind === "json") {
      try {
        found[name] = JSON.parse(value);
      } catch {
        wrong[name] = "This is not JSON.";
      }
    } else found[name] = value;
  }
  return { arguments: found, wrong };
}

export function Fields({ fields, values, wrong, onChange }) {
  return html`<div class="fields">${fields.map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} wrong=${wrong[field.name]}
    onChange=${(value) => onChange({ ...values, [field.name]: value })}/>`)}</div>`;
}

function Field({ field, value, wrong, onChange }) {
  const { name, kind, own, required } = field;
  const hint = html`${own.description && html`<span class="hint"><${Text} value=${own.description} longest=${600}/></span>`}${wrong && html`<span class="wrong">${wrong}</span>`}`;
  const title = html`<span class="top"><code><${Text} value=${name} longest=${80}/></code><small class="quiet">${[own.format || (kind === "json" ? (own.type ?? "JSON") : kind), required && "required",
    own.default != null && `default ${JSON.stringify(own.default)}`].filter(Boolean).join(" · ").slice(0, 120)}</small></span>`;
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
