// Grants: a rule for several calls, said in words before it is made, and the list of those that there are.
import { ask, useAnswer } from "../api.js";
import { Card, count, html, Problem, shown, Since, Text, useState } from "../ui.js";

const PATH = "/v1/grants";
const EVERY_MS = 5_000;
const LAST = 100;  // calls of the journal that a rule is tried on
const TIMES = [["1h", "1 hour"], ["8h", "8 hours"], ["24h", "a day"], ["168h", "a week"]];

const named = (name) => name.replaceAll("_", " ");
const said = (value) => (typeof value === "string" ? value || "“”" : JSON.stringify(value) ?? "null");

/** The arguments as they run: a rule names the defaults of the tool, too. */
export function filled(given, schema) {
  const defaults = Object.entries(schema?.properties ?? {}).filter(([name, each]) => !(name in given) && each && typeof each === "object" && "default" in each);
  return { ...Object.fromEntries(defaults.map(([name, each]) => [name, each.default])), ...given };
}

/** The choices for an argument, the narrowest first. */
export const choicesFor = (value) => ["equal", ...(typeof value === "number" ? ["most"] : []), "any"];

/** The JSON Schema of a rule; the host closes it. */
export function schemaOf(values, choices) {
  const rule = (name) => ({ equal: { const: values[name] }, most: { maximum: values[name] }, any: true })[choices[name] ?? "equal"];
  return { properties: Object.fromEntries(Object.keys(values).map((name) => [name, rule(name)])) };
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Whether a call of these arguments would be allowed by the rule that the choices make. */
export function meets(values, choices, given, schema) {
  const whole = filled(given ?? {}, schema);
  if (!same(Object.keys(whole).sort(), Object.keys(values).sort())) return false;
  return Object.keys(values).every((name) => {
    const choice = choices[name] ?? "equal";
    return choice === "any" || (choice === "most" ? typeof whole[name] === "number" && whole[name] <= values[name] : same(whole[name], values[name]));
  });
}

/** A schema of a grant in words: "table is orders, limit is at most 100". */
export function ruleInWords(rule) {
  if (rule === true) return "any arguments";
  const properties = rule?.properties ?? Object.fromEntries(Object.entries(rule ?? {}).map(([name, value]) => [name, { const: value }]));
  const parts = Object.entries(properties).map(([name, each]) => {
    if (each === true || same(each, {})) return `any ${named(name)}`;
    if (each && typeof each === "object" && same(Object.keys(each), ["const"])) return `${named(name)} is ${said(each.const)}`;
    if (each && typeof each === "object" && same(Object.keys(each), ["maximum"])) return `${named(name)} is at most ${each.maximum}`;
    return `${named(name)} is as ${JSON.stringify(each)}`;
  });
  return parts.join(", ") || "no arguments";
}

/** Makes one decision for a call and for those like it. */
export function AllowLike({ ticket, tool, journal, busy, done }) {
  const [open, setOpen] = useState(false);
  const schema = tool?.inputSchema;
  const values = filled(ticket.arguments ?? {}, schema);
  const [choices, setChoices] = useState({});
  const [time, setTime] = useState("1h");
  const [scope, setScope] = useState(ticket.session ? "session" : "caller");
  const [state, setState] = useState({});
  // Asked when it is opened only: fifty calls may wait, each with a form.
  const known = useAnswer("/v1/journal", { query: { newest: "true", calls: "true", limit: LAST }, skip: !journal || !open });
  const rule = schemaOf(values, choices);
  const kept = (known.data?.calls ?? []).filter((call) => "arguments" in call);
  const met = kept.filter((call) => call.tool === ticket.tool && call.subject === ticket.subject && meets(values, choices, call.arguments, schema)).length;
  const make = async () => {
    setState({ busy: true });
    try {
      await done({ arguments: rule, scope, for: time });
    } catch (error) {
      setState({ error });
    }
  };
  return html`<details class="allow-like" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary class="quiet">Allow calls like this one</summary>
    <div class="choose">${Object.keys(values).map((name) => html`<label key=${name}><span class="mono">${shown(named(name), 80)}</span> <select value=${choices[name] ?? "equal"} onChange=${(event) => setChoices({ ...choices, [name]: event.target.value })}>${
      choicesFor(values[name]).map((each) => html`<option key=${each} value=${each}>${each === "any" ? "any" : `${each === "most" ? "at most" : "is"} ${shown(said(values[name]), 60)}`}</option>`)}</select></label> `)}
    <label>for <select value=${time} onChange=${(event) => setTime(event.target.value)}>${TIMES.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>
    ${ticket.session && html` <label>in <select value=${scope} onChange=${(event) => setScope(event.target.value)}><option value="session">this session</option><option value="caller">every session</option></select></label>`}</div>
    <p class="rule" role="status"><strong><${Text} value=${ticket.subject} longest=${80}/></strong> may call <strong class="mono"><${Text} value=${ticket.tool} longest=${120}/></strong> where <${Text} value=${ruleInWords(rule)} longest=${600}/>, for ${TIMES.find(([value]) => value === time)[1]}.${
      kept.length > 0 && ` It would have met ${met} of the last ${count(kept.length, "call")}.`}</p>
    <${Problem} error=${state.error}/>
    <div class="actions"><button type="button" class="primary" disabled=${busy || state.busy} onClick=${make}>Allow them</button></div></details>`;
}

/** What people have allowed, each with a button that takes it back. */
export function Grants() {
  const { data, error, reload } = useAnswer(PATH, { every: EVERY_MS });
  const [failed, setFailed] = useState(null);
  const grants = data?.grants ?? [];
  const revoke = (grant) => async () => {
    try {
      await ask("DELETE", `${PATH}/${encodeURIComponent(grant.id)}`);
      setFailed(null);
    } catch (problem) {
      setFailed(problem);
    }
    reload();
  };
  if (!grants.length && !failed) return error?.status === 403 ? null : html`<${Problem} error=${error} retry=${reload}/>`;
  return html`<${Card} title="Allowed" note=${count(grants.length, "rule")}><${Problem} error=${failed}/><ul class="rows">${grants.slice(0, 200).map((grant) => html`<li key=${grant.id}>
    <div><strong class="mono"><${Text} value=${grant.tool} longest=${120}/></strong> <${Text} value=${ruleInWords(grant.arguments)} longest=${400}/>
      <small class="quiet">for <${Text} value=${grant.caller} longest=${60}/>${grant.session && " in one session"}, by <${Text} value=${grant.made_by} longest=${60}/>, used ${count(grant.used, "time")}</small></div>
    <span class="number">ends <${Since} moment=${grant.expires_at}/></span><button type="button" class="danger" onClick=${revoke(grant)}>Take back</button></li>`)}</ul><//>`;
}
