// Connections: where the visitor acts as itself, and the links with which it signs in there.
import { ask, ROOT, useAnswer } from "./api.js";
import { Badge, Card, html, Problem, Since, Text, useState } from "./ui.js";

const ASKED = /who has to sign in to (\S{1,64}) first: (https?:\/\/\S+\/connect\/[\w-]{43})(?![\w-])/;

/** What a text of a call asks to sign in to, `{server, url}`; a link to elsewhere is none, as a tool may have written it. */
export function askedSignIn(text) {
  const [, server, url] = ASKED.exec(text ?? "") ?? [];
  return url && new URL(url).origin === ROOT.origin ? { server, url } : null;
}

/** The link to sign in of a call that needs it. */
export function SignIn({ asked }) {
  if (!asked || !/^https?:$/.test(URL.canParse(asked.url) && new URL(asked.url).protocol)) return null;
  return html`<a class="button primary" href=${asked.url} target="_blank" rel="noopener noreferrer">Sign in at <${Text} value=${asked.server} longest=${64}/></a>`;
}

/** The visitor's own connections, which it can make and cut; nothing where no entry has `user_auth`. */
export function Connections() {
  const { data, reload } = useAnswer("/v1/connections", { every: 4_000 });
  const connections = data?.connections ?? [];
  if (!connections.length) return null;
  return html`<${Card} title="Your connections" note=${`${connections.filter((each) => each.connected).length} of ${connections.length} connected`}>
    <p class="quiet">Your calls act as you there.</p>
    <ul class="rows connections">${connections.slice(0, 200).map((each) => html`<${Connection} key=${`${each.kind} ${each.server}`} connection=${each} done=${reload}/>`)}</ul><//>`;
}

function Connection({ connection, done }) {
  const { server, connected, header, connected_at: since, scopes } = connection;
  const [state, setState] = useState({});
  const act = async (method) => {
    setState({ busy: true });
    try {
      const answer = await ask(method, `/v1/connections/${encodeURIComponent(server)}`);
      setState(method === "POST" ? { asked: answer } : {});
    } catch (error) {
      setState({ error });
    }
    done();
  };
  return html`<li><div><strong><${Text} value=${server} longest=${64}/></strong></div><${Badge} tone=${connected ? "good" : "fact"}>${connected ? "connected" : "not connected"}<//>${
      header ? html`<span></span>` : connected ? html`<button type="button" class="danger" disabled=${state.busy} aria-label=${`Disconnect from ${server}`} onClick=${() => act("DELETE")}>Disconnect</button>`
      : state.asked ? html`<${SignIn} asked=${state.asked}/>` : html`<button type="button" disabled=${state.busy} aria-label=${`Connect to ${server}`} onClick=${() => act("POST")}>Connect</button>`}
    <div class="reason">${header ? html`what the header <span class="mono">${header}</span> brings` : since ? html`since <${Since} moment=${since}/>${scopes.length > 0 && html`, for <${Text} value=${scopes.join(" ")} longest=${200}/>`}` : "a call that needs it gives the link, too"}<${Problem} error=${state.error}/></div></li>`;
}
