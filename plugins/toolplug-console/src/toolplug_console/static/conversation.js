// A conversation with the model of a host: its answers as they arrive, and the tool calls in them. It draws nothing.
// The console and the example of a data table have the same copy.

/** The lines of a configuration that give a host a model, as `toolplug chat` prints them. */
export const BACKEND = `responses:
  backend:
    base_url: http://127.0.0.1:11434/v1   # any server with the Chat Completions API
    model: small
    api_key: \${MODEL_KEY:-none}`;

const INCLUDE = ["mcp_call.parts", "code_interpreter_call.parts"];
const OUTCOMES = ["response.completed", "response.incomplete", "response.failed"];
const REASONS = {
  max_turns: "The model reached the limit of turns of this host before it had an answer.",
  max_output_tokens: "The answer reached the limit of its length.",
  content_filter: "The model's server withheld the rest of the answer.",
};

/** Yield the events of a stream as `{event, data, id}`, where data is parsed JSON. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = { event: "message", data: "", id: "" };
        for (const line of block.split("\n")) {
          const at = line.indexOf(":");
          const name = line.slice(0, at);
          const text = line.slice(at + 1).replace(/^ /, "");
          if (name === "event") found.event = text;
          else if (name === "data" || name === "id") found[name] += text;
        }
        if (found.data && found.data !== "[DONE]") yield { ...found, data: JSON.parse(found.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** An error of the host in words for the visitor: `{title, text, lines}`; `lines` are to be added to its configuration. */
export function explained(error, { session } = {}) {
  const { status, code = "", message } = error;
  const wait = error.retryAfterS ? ` Try again in ${error.retryAfterS} s.` : "";
  if (code === "not_configured") {
    return { title: "This host has no model.", text: "Add these lines to its configuration and reload it:", lines: BACKEND };
  }
  if (code === "session_not_found" || code === "invalid_session_code" || status === 410) {
    return { title: `There is no session ${session || "of this code"}.`, text: "It was ended or has expired. Choose another one, or none." };
  }
  if (code === "previous_response_not_found") return { title: "The host no longer has this conversation.", text: "The next message begins a new one." };
  if (status === 401) return { title: "The host does not accept this key.", text: "It may be wrong, revoked or expired." };
  if (status === 403) return { title: "This key may not do that.", text: message };
  if (status === 429) return { title: "Too many requests.", text: `${message}.${wait}`.replace("..", ".") };
  if (status === 0) return { title: "The host does not answer.", text: "Try again when it is back." };
  if (code.startsWith("backend_")) return { title: "The model's server did not answer.", text: message };
  return { title: "There is no answer.", text: message };
}

const ticketOf = (id) => id.slice(id.lastIndexOf("_") + 1);

/**
 * One conversation. `entries` are what it shows, each with a `kind` (user, text, call, approval, problem, note) and a
 * `version` that grows with each change. Every message continues the last complete answer.
 */
export class Conversation {
  /** `open(request, signal)` returns the events of a new response; `changed()` is called after each change. */
  constructor(open, changed) {
    this.entries = [];
    this.status = "";
    this.open = open;
    this.changed = changed;
    this.previous = null;
    this.control = null;
    this.choice = {};
    this.sent = "";
  }

  get busy() {
    return this.control !== null;
  }

  /** Answer a message, with the tools of `choice`: `{agent, session, model, instructions}`, all optional. */
  send(text, choice = {}) {
    this.choice = choice;
    this.#add({ kind: "user", text });
    return this.#answer(text);
  }

  /** Send the last message, or the last decisions, once more. */
  retry() {
    return this.#answer(this.sent);
  }

  /** Cancel the answer. */
  stop() {
    this.control?.abort();
  }

  /** Decide a call that waits; when all of an answer are decided, the model goes on. */
  decide(entry, approve) {
    this.#change(entry, { decision: approve ? "approved" : "denied" });
    const all = this.entries.filter((each) => each.kind === "approval" && each.response === entry.response);
    if (this.busy || !all.every((each) => each.decision)) return undefined;
    return this.#answer(all.map((each) => ({ type: "mcp_approval_response", approval_request_id: each.id, approve: each.decision === "approved" })));
  }

  async #answer(input) {
    const { agent, session, model, instructions } = this.choice;
    const metadata = { toolplug_approvals: "items", ...(agent && { toolplug_agent: agent }), ...(session && { toolplug_session: session }) };
    const request = { input, stream: true, include: INCLUDE, metadata, ...(model && { model }), ...(instructions && { instructions }), ...(this.previous && { previous_response_id: this.previous }) };
    const control = new AbortController();
    const items = new Map();
    this.control = control;
    this.sent = input;
    this.#say("Waiting for the model");
    const before = this.entries.length;
    let outcome = null;
    try {
      for await (const event of this.open(request, control.signal)) {
        this.#take(event, items);
        if (OUTCOMES.includes(event.type)) outcome = event.response;
      }
      if (!outcome) throw { title: "The answer broke off.", message: "The connection was closed before its end." };
      this.#end(outcome, before);
    } catch (error) {
      if (error.code === "previous_response_not_found") this.previous = null;
      if (control.signal.aborted) this.#add({ kind: "note", text: "Stopped. This message and its answer are not part of the conversation." });
      else this.#add({ kind: "problem", ...(error.title ? { title: error.title, text: error.message } : explained(error, this.choice)) });
    } finally {
      for (const entry of items.values()) if (entry.kind === "call" && entry.state === "running") this.#change(entry, { state: "stopped" });
      this.control = null;
      const last = this.entries.at(-1);
      this.#say([last.title, last.text].filter(Boolean).join(" ") || (last.kind === "approval" ? `${last.inner?.tool ?? last.name} waits for your approval` : "Answered"));
    }
  }

  #take(event, items) {
    const index = event.output_index;
    const known = items.get(index);
    const { type, item } = event;
    if (type === "response.output_text.delta" || type === "response.refusal.delta") {
      if (known) this.#change(known, { text: known.text + event.delta });
      else items.set(index, this.#add({ kind: "text", text: event.delta }));
    } else if (type === "response.output_item.added" && "name" in item && item.type !== "mcp_approval_request") {
      items.set(index, this.#add({ kind: "call", name: item.name, server: item.server_label, arguments: item.arguments || "", state: "running", since: performance.now() }));
      this.#say(`Calling ${item.name}`);
    } else if (type.endsWith("_arguments.delta") && known) {
      this.#change(known, { arguments: known.arguments + event.delta });
    } else if (type === "response.output_item.done" && item.type === "mcp_approval_request") {
      const again = this.entries.some((each) => each.kind === "approval" && ticketOf(each.id) === ticketOf(item.id));
      items.set(index, this.#add({ kind: "approval", id: item.id, name: item.name, arguments: item.arguments, inner: item.waiting_call, again, decision: "", response: items }));
    } else if (type === "response.output_item.done" && known?.kind === "call") {
      const failed = item.status === "failed";
      const took = (performance.now() - known.since) / 1000;
      this.#change(known, { arguments: item.arguments || known.arguments, output: item.output ?? "", parts: item.parts ?? [], state: failed ? "failed" : "done", took });
      this.#say(`${known.name} ${failed ? "failed" : "answered"}`);
    }
  }

  #end(response, before) {
    if (response.status !== "failed") this.previous = response.id;
    if (response.status === "incomplete") {
      const reason = response.incomplete_details?.reason;
      this.#add({ kind: "note", text: REASONS[reason] ?? `The answer is incomplete: ${reason}.` });
    } else if (response.status === "failed") {
      const { code, message } = response.error ?? {};
      this.#add({ kind: "problem", ...explained({ code: `backend_${code}`, message }) });
    } else if (this.entries.length === before) {
      this.#add({ kind: "note", text: "The answer is empty." });
    }
  }

  #add(entry) {
    const added = { ...entry, key: this.entries.length, version: 0 };
    this.entries.push(added);
    this.changed();
    return added;
  }

  #change(entry, changes) {
    Object.assign(entry, changes, { version: entry.version + 1 });
    this.changed();
  }

  /** Set what a screen reader reads out. */
  #say(status) {
    this.status = status;
    this.changed();
  }
}
