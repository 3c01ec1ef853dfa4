// Requests to the host, with the visitor's key, which stays in this tab.
import { readEvents } from "./conversation.js";
import { useCallback, useLayoutEffect, useRef, useState } from "./ui.js";

export const ROOT = new URL("../../", import.meta.url);
const KEY = "toolplug-console-key";
const LONGEST_WAIT_MS = 10_000;

/** What the host refused, or why it could not be asked; `status` is 0 where no answer came. */
export class ApiProblem extends Error {
  constructor(status, body = {}, retryAfterS = 0) {
    super(body.message || (status ? `The host answered ${status}.` : "The host does not answer."));
    this.status = status;
    this.code = body.code || "";
    this.problems = body.problems || [];
    this.requestId = body.request_id || "";
    this.retryAfterS = retryAfterS;
  }
}

/** The connection to the host: `state` is connecting, online, away or refused. Listeners hear of each change. */
export const connection = {
  state: "connecting", epoch: 0, listeners: new Set(), wait: 0,
  set(state) {
    if (state === this.state) return;
    if (state === "online" && this.state !== "refused") this.epoch += 1;
    this.state = state;
    for (const each of [...this.listeners]) each();
  },
};

const DECISION_KEY = "toolplug-console-decide";

/** Keep the decision key of the link that the host printed for this tab, and take it out of the address. */
export function takeDecisionKey() {
  const found = /^#decide=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(DECISION_KEY, found[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

/** The header of a decision; none where the link had no key. */
export function decisionHeaders() {
  const key = sessionStorage.getItem(DECISION_KEY);
  return key ? { "x-toolplug-decide": key } : {};
}

export const storedKey = () => sessionStorage.getItem(KEY) || "";

export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

async function send(method, path, { body, query, headers, signal } = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query || {})) if (value) url.searchParams.set(name, value);
  const key = storedKey();
  const given = { ...(key && { authorization: `Bearer ${key}` }), ...(body !== undefined && { "content-type": "application/json" }), ...headers };
  let answer;
  try {
    answer = await fetch(url, { method, headers: given, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    away();
    throw new ApiProblem(0);
  }
  if (answer.ok) return answer;
  const problem = new ApiProblem(answer.status, (await answer.json().catch(() => ({}))).error, Number(answer.headers.get("retry-after")) || 0);
  if (answer.status === 401) connection.set("refused");
  else if (answer.status === 503 && problem.code === "not_started") away();
  throw problem;
}

/** The JSON of an answer; null for one without a body. */
export async function ask(method, path, options) {
  const answer = await send(method, path, options);
  connection.set("online");
  return answer.status === 204 ? null : answer.json();
}

export async function askText(path, options) {
  return (await send("GET", path, options)).text();
}

/** Yield the events of a stream as `{event, data, id}` until it ends. */
export async function* events(method, path, options = {}) {
  const answer = await send(method, path, { ...options, headers: { accept: "text/event-stream", ...options.headers } });
  options.onAnswer?.(answer);
  if (!(answer.headers.get("content-type") || "").startsWith("text/event-stream")) {
    yield { event: "result", data: await answer.json(), id: "" };
    return;
  }
  try {
    yield* readEvents(answer);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem(0);
  }
}

let looking = false;

/** Note that the host does not answer, and look for it until it does. */
async function away() {
  connection.set("away");
  if (looking) return;
  looking = true;
  for (let wait = 500; connection.state === "away"; wait = Math.min(wait * 1.7, LONGEST_WAIT_MS)) {
    await new Promise((done) => setTimeout(done, wait));
    const found = await fetch(new URL("readyz", ROOT), { cache: "no-store" }).catch(() => null);
    if (found && found.status !== 503) connection.set("online");
  }
  looking = false;
}

/** What a path answers: `{data, error, reload}`. Asked again after `every` ms, and when the host comes back. */
export function useAnswer(path, { query, every, skip } = {}) {
  const [found, setFound] = useState({ data: null, error: null });
  const [round, setRound] = useState(0);
  const asked = JSON.stringify([path, query]);
  const last = useRef(asked);
  useLayoutEffect(() => {
    if (skip) return undefined;
    if (last.current !== asked) setFound({ data: null, error: null });
    last.current = asked;
    const control = new AbortController();
    let timer;
    const look = async () => {
      if (!document.hidden || round === 0) {
        try {
          const data = await ask("GET", path, { query, signal: control.signal });
          setFound({ data, error: null });
        } catch (error) {
          if (error.name === "AbortError") return;
          setFound((before) => ({ data: error.status ? null : before.data, error: error.status ? error : null }));
        }
      }
      if (every && !control.signal.aborted) timer = setTimeout(look, every);
    };
    look();
    return () => { control.abort(); clearTimeout(timer); };
  }, [asked, every, skip, round, connection.epoch]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  return { ...found, reload };
}

/** Follow a stream for as long as the component is there; it is opened again after every end. */
export function useEvents(path, onEvent, { query, skip } = {}) {
  const handler = useRef(onEvent);
  handler.current = onEvent;
  const [state, setState] = useState("connecting");
  useLayoutEffect(() => {
    if (skip) return undefined;
    const control = new AbortController();
    (async () => {
      let last = "";
      let wait = 300;
      while (!control.signal.aborted) {
        try {
          for await (const event of events("GET", path, { query, signal: control.signal, headers: last ? { "last-event-id": last } : {} })) {
            wait = 300;
            setState("live");
            if (event.id) last = event.id;
            handler.current(event);
          }
        } catch (error) {
          if (error.name === "AbortError") return;
          if (error.status === 401 || error.status === 403) { setState("refused"); return; }
        }
        setState("connecting");
        await new Promise((done) => setTimeout(done, wait));
        wait = Math.min(wait * 1.7, LONGEST_WAIT_MS);
      }
    })();
    return () => control.abort();
  }, [path, JSON.stringify(query), skip]);
  return state;
}
