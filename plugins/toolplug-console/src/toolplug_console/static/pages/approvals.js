// Approvals: calls that wait for a person, with their arguments; and a notification of the browser for new ones.
import { ask, decisionHeaders, useAnswer } from "../api.js";
import { Badge, Card, Code, count, Empty, html, Loading, Problem, Since, Text, useEffect, useRef, useState } from "../ui.js";

const PATH = "/v1/approvals";
const EVERY_MS = 3_000;

const waitingOf = (data) => (data?.approvals ?? []).filter((each) => each.state === "waiting" && new Date(each.expires_at) > new Date());

/** How many calls wait, for the navigation; it also notifies of new ones. */
export function WaitingCount() {
  const { data } = useAnswer(PATH, { every: EVERY_MS });
  const waiting = waitingOf(data);
  const known = useRef(null);
  useEffect(() => {
    if (!data) return;
    const fresh = known.current ? waiting.filter((each) => !known.current.has(each.id)) : [];
    known.current = new Set(waiting.map((each) => each.id));
    if (fresh.length && "Notification" in window && Notification.permission === "granted") {
      const note = new Notification("A call waits for you", { body: `${fresh[0].subject} wants to call ${fresh[0].tool}.`.slice(0, 200), tag: fresh[0].id });
      note.onclick = () => { window.focus(); location.hash = "#/approvals"; };
    }
  }, [data]);
  return waiting.length > 0 && html`<b class="pill"><span class="unseen">waiting: </span>${waiting.length > 99 ? "99+" : waiting.length}</b>`;
}

export function Approvals() {
  const { data, error, reload } = useAnswer(PATH, { every: EVERY_MS });
  const waiting = waitingOf(data);
  const decided = (data?.approvals ?? []).filter((each) => !waiting.includes(each));
  return html`<header class="page"><div><h1>Approvals</h1><p class="quiet">Calls of your tenant whose policy is ask. A decision holds for this call with these arguments.</p></div><${Notify}/></header>
    <${Problem} error=${error} retry=${reload}/>
    ${!data && !error && html`<${Card}><${Loading}/><//>`}
    ${data && !waiting.length && html`<${Card}><${Empty} title="Nothing waits for you">A call that needs a person appears here by itself.<//><//>`}
    <div class="stack" aria-live="polite">${waiting.map((each) => html`<${Waiting} key=${each.id} ticket=${each} done=${reload}/>`)}</div>
    ${decided.length > 0 && html`<${Card} title="Decided" note=${count(decided.length, "call")}><ul class="rows">${decided.slice(0, 100).map((each) => html`<li key=${each.id}>
      <div><strong class="mono"><${Text} value=${each.tool} longest=${120}/></strong><small class="quiet">by <${Text} value=${each.subject} longest=${60}/>${each.decided_by && html`, decided by <${Text} value=${each.decided_by} longest=${60}/>`}</small></div>
      <span class="number">${each.decided_at ? html`<${Since} moment=${each.decided_at}/>` : html`expired <${Since} moment=${each.expires_at}/>`}</span><${Badge} value=${each.state} tone=${each.state === "denied" ? "bad" : each.state === "approved" || each.state === "used" ? "good" : "wait"}/></li>`)}</ul><//>`}`;
}

function Waiting({ ticket, done }) {
  const [state, setState] = useState({});
  const decide = async (decision) => {
    setState({ busy: decision });
    try {
      await ask("POST", `${PATH}/${encodeURIComponent(ticket.id)}`, { body: { decision }, headers: decisionHeaders() });
      setState({ decided: decision });
    } catch (error) {
      setState({ error });
    }
    done();
  };
  const busy = Boolean(state.busy || state.decided);
  return html`<${Card} class="approval" label="A call that waits" title=${html`<span class="mono"><${Text} value=${ticket.tool} longest=${120}/></span>`} note=${html`expires <${Since} moment=${ticket.expires_at}/>`}>
    <p><strong><${Text} value=${ticket.subject} longest=${80}/></strong> wants to call it${ticket.agent && html` as agent <strong><${Text} value=${ticket.agent} longest=${80}/></strong>`}${ticket.session && " in a session"}.</p>
    <${Code} value=${ticket.arguments} label="Arguments"/>
    <${Problem} error=${state.error}/>
    <div class="actions"><button type="button" class="primary" disabled=${busy} onClick=${() => decide("approve")}>${state.busy === "approve" ? "Approving …" : "Approve"}</button>
      <button type="button" class="danger" disabled=${busy} onClick=${() => decide("deny")}>${state.busy === "deny" ? "Denying …" : "Deny"}</button></div><//>`;
}

function Notify() {
  const [permission, setPermission] = useState("Notification" in window ? Notification.permission : "unsupported");
  if (permission === "granted") return html`<p class="quiet">Notifications are on.</p>`;
  if (permission !== "default") return null;
  return html`<button type="button" onClick=${async () => setPermission(await Notification.requestPermission())}>Notify me of new ones</button>`;
}
