/**
 * A web page lends its functions to a language model as tools, or follows the tools that an application lends.
 *
 *     import { connect } from "http://127.0.0.1:8080/toolplug.js";
 *
 *     const app = await connect({ pluginType: "data_analysis" });
 *     app.tool({ name: "add_row", description: "Adds a row.", inputSchema }, ({ row }) => table.add(row));
 *
 * An ES module without dependencies, for browsers of 2024 and later. Nothing is lent that the page does not name,
 * nothing is kept unless `storage` is given, and credentials travel in headers only.
 * @module toolplug
 */

/**
 * @typedef {object} ToolDefinition
 * @property {string} name 1 to 128 of the characters `A-Z a-z 0-9 _ . - /`
 * @property {string} [description] what a model reads before it calls
 * @property {Record<string, unknown>} [inputSchema] JSON Schema of the arguments; any object where absent
 * @property {Record<string, unknown>} [outputSchema]
 * @property {Record<string, unknown>} [annotations] `readOnlyHint`, `idempotentHint`, `destructiveHint`
 * @property {unknown[]} [requires] capabilities without which the host does not take it
 */
/**
 * @typedef {object} Call What a handler may use beside its arguments.
 * @property {string} id the host's own id of the request
 * @property {string} callId the caller's id of the call, for the page's own log
 * @property {string} hostRequestId the id of the request in the host's log
 * @property {string} [traceparent] the caller's W3C trace context, for the page's own tracing
 * @property {string} [tracestate]
 * @property {number} attempt more than 1: it was sent before, to a page that went away without answering
 * @property {Date} deadline from then on nobody waits for the answer; by the host's clock
 * @property {AbortSignal} signal aborted when nobody waits any more
 * @property {(progress: number, total?: number, message?: string) => void} progress tells the caller; never waits
 */
/** @typedef {(args: any, call: Call) => unknown} Handler What it returns or resolves to is the result, as JSON. */
/** @typedef {ToolDefinition & { handler: Handler }} Tool */
/** @typedef {"connecting" | "connected" | "waiting" | "closed"} State */
/** @typedef {{ name: string, error: string }} Refused */
/** @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem">} KeyStore */

/** @typedef {{ code: string, token: string }} Credentials */
/** @typedef {{ definition: ToolDefinition, handler: Handler, text: string }} Lent `text`: to compare definitions by */
/** @typedef {{ added: ToolDefinition[], modified: ToolDefinition[], removed: string[] }} Updates */
/** @typedef {{ all: boolean, added: Lent[], modified: Lent[], removed: string[] }} Change `all`: register `added` */
/** @typedef {{ revision: number, registered: boolean, tools: ToolDefinition[], resumed?: boolean }} Snapshot */
/** @typedef {{ error?: ToolplugError, retryInMs?: number }} Why */
/**
 * @typedef {object} Events What `detail` is, by the type of the event.
 * @property {{ state: State } & Why} state
 * @property {{ lent: string[], refused: Refused[] }} tools
 * @property {{ id: string, name: string, phase: "started" | "answered" | "failed" | "cancelled", error?: Error }} call
 */
/** @typedef {{ bearer?: string, body?: object, headers?: Record<string, string>, signal?: AbortSignal }} Sending */
/** @typedef {(method: string, path: string, sending?: Sending) => Promise<any>} Ask a route of one session */

const SILENCE_MS = 45_000; // three heartbeats
const ANSWER_WITHIN_MS = 30_000;
const MAX_PAUSE_MS = 30_000;
const FOREVER_MS = 2 ** 31 - 1;
const MAX_TRIES = 8;
const KEPT_IDS = 1000;
const MAX_REASON = 1000;
const MAX_MESSAGE = 1000;
const FIELDS = ["name", "description", "inputSchema", "outputSchema", "annotations", "requires"];
const LEVELS = ["basic", "advanced", "enterprise"]; // in rising order
const TEMPORARY = ["unreachable", "bad_event"];
const RETRIED = [408, 425, 429];
const OUTDATED = ["revision_mismatch", "not_registered", "tool_exists", "tool_not_found"];
const ENDED = [401, 403, 404, 410]; // statuses of a session that is no longer this page's
const TOO_LATE = [...ENDED, 409]; // statuses of an answer that nobody waits for

/** What went wrong, and in its message what to do about it. */
export class ToolplugError extends Error {
  /**
   * @param {string} code the host's, or of this module: `unreachable`, `bad_event`, `invalid_host`, `token_required`
   * @param {string} message
   * @param {{ status?: number, param?: string, retryAfterMs?: number, cause?: unknown,
   *           failedTools?: { toolName: string, error: string }[] }} [details] `status` 0: no answer came; `param`: the
   *   part to blame; `retryAfterMs`: how long the host asks to wait
   */
  constructor(code, message, { status = 0, param, retryAfterMs, failedTools = [], cause } = {}) {
    super(message, { cause });
    this.name = "ToolplugError";
    this.code = code;
    this.status = status;
    this.param = param;
    this.retryAfterMs = retryAfterMs;
    this.failedTools = failedTools;
    /** Whether the same may succeed later. */
    this.temporary = status ? RETRIED.includes(status) || status >= 500 : TEMPORARY.includes(code);
  }
}

/** A handler throws it to tell the model what went wrong; the text of any other exception stays in the page. */
export class ToolError extends Error {
  name = "ToolError";
}

/**
 * Lends tools: joins the session of `code` and `token`, or the one that `storage` keeps, or creates one.
 * Rejects with `ToolplugError`. Afterwards it reconnects by itself, and is closed only by what cannot be helped.
 * @param {object} [options]
 * @param {string | URL} [options.host] where this module was loaded from, when absent
 * @param {string} [options.apiKey] needed to create or end a session, where the host asks for it
 * @param {string} [options.code]
 * @param {string} [options.token] the plugin token that creating the session gave
 * @param {string} [options.pluginType] the kind of application
 * @param {{ type: string, level: string, resources?: unknown[] }[]} [options.capabilities]
 * @param {Record<string, unknown>} [options.environment] `version`, `features`, …: shown to clients as it is
 * @param {number} [options.ttlSeconds] how long a new session outlives this page
 * @param {KeyStore} [options.storage] keeps code and token:
 *   `sessionStorage` lets a tab that is loaded or opened again go on with its session
 * @returns {Promise<Application>}
 */
export async function connect(options = {}) {
  const { code, token, pluginType = "web_page", capabilities = [], environment = {}, storage, ttlSeconds } = options;
  const host = new Host(options.host, options.apiKey);
  const key = `toolplug ${host.url} ${pluginType}`;
  let joined;
  if (code || token) {
    if (!code || !token) throw new ToolplugError("token_required", "joining takes both the code and the plugin token");
    joined = await join(host, { code, token });
  } else {
    joined = (await rejoin(host, key, storage)) ?? (await create(host, { pluginType, ttlSeconds }));
  }
  storage?.setItem(key, JSON.stringify({ code: joined.code, token: joined.token }));
  const registration = { pluginType, capabilities, environment };
  return new Application(host, joined, registration, () => storage?.removeItem(key));
}

/**
 * Follows the tools of a session from the model's side. `onChange` gets a frozen view, first at once, then after every
 * change; `error` is set where it ended for good.
 * @param {object} options
 * @param {string} options.code
 * @param {string | URL} [options.host]
 * @param {string} [options.apiKey]
 * @param {(view: View) => void} onChange
 * @returns {{ close(): void }}
 *
 * @typedef {object} View
 * @property {State} state
 * @property {ToolDefinition[]} tools with `available: false` and a `reason` where one cannot be called now
 * @property {number} revision
 * @property {"attached" | "waiting" | "detached" | null} pluginStatus
 * @property {string | null} reason why the tools changed last, in the application's words
 * @property {ToolplugError} [error]
 * @property {number} [retryInMs]
 */
export function follow({ host: url, code, apiKey }, onChange) {
  const host = new Host(url, apiKey);
  /** @type {Map<string, ToolDefinition>} */
  let tools = new Map();
  /** @type {View} */
  let view = { state: "connecting", tools: [], revision: 0, pluginStatus: null, reason: null };
  const show = (/** @type {Partial<View>} */ change) => {
    view = Object.freeze({ ...view, ...change, tools: [...tools.values()] });
    try {
      onChange(view);
    } catch (error) {
      reportError(error); // as of a listener: the page's own, and no fault of the connection
    }
  };
  const stream = new Stream(host, code, apiKey, {
    state: (state, why) => show({ state, error: undefined, retryInMs: undefined, ...why }),
    event: (event, data) => {
      if (event === "connected") {
        if (!data.resumed) tools = new Map(data.tools.map((/** @type {ToolDefinition} */ tool) => [tool.name, tool]));
        show({ revision: data.revision, pluginStatus: data.pluginStatus });
      } else if (event === "tool-availability-update") {
        for (const name of data.updates.removed) tools.delete(name);
        for (const tool of [...data.updates.modified, ...data.updates.added]) tools.set(tool.name, tool);
        show({ revision: data.revision, reason: data.reason });
      } else if (event === "plugin-status") {
        show({ pluginStatus: data.status });
      }
    },
  });
  show({});
  stream.read().then(() => show({ state: "closed" }), (error) => show({ state: "closed", error }));
  return { close: () => stream.close() };
}

/**
 * The difference between two lists of tools, as `POST …/update-tools` takes it: for a page that sends its own requests.
 * The order of tools and of keys does not matter.
 * @param {ToolDefinition[]} before
 * @param {ToolDefinition[]} after
 * @returns {Updates}
 */
export function compareTools(before, after) {
  const texts = (/** @type {ToolDefinition[]} */ tools) => new Map(tools.map((tool) => [tool.name, canonical(tool)]));
  const { added, modified, removed } = difference(texts(before), texts(after));
  const named = (/** @type {string[]} */ names) => after.filter((tool) => names.includes(tool.name));
  return { added: named(added), modified: named(modified), removed };
}

/**
 * The capabilities that the tools require, each with the highest level that one of them needs: what an application
 * that offers these tools declares.
 * @param {ToolDefinition[]} tools
 * @returns {{ type: string, level: string, resources: unknown[] }[]}
 */
export function neededCapabilities(tools) {
  /** @type {Map<string, string>} */
  const levels = new Map();
  for (const item of tools.flatMap(({ requires }) => requires ?? [])) {
    const { type, level } = typeof item === "string" ? { type: item } : /** @type {any} */ (item);
    const least = level ?? LEVELS[0];
    if (LEVELS.indexOf(least) >= LEVELS.indexOf(levels.get(type) ?? "")) levels.set(type, least);
  }
  return [...levels].map(([type, level]) => ({ type, level, resources: [] }));
}

/**
 * The events of a `text/event-stream`, wherever its chunks are cut; one that the end cuts off is left out.
 * @param {ReadableStream<Uint8Array>} body
 * @param {() => void} [onChunk] hears of every chunk, also of one that completes no event
 * @returns {AsyncGenerator<{ event: string, data: string, id: string }, void, void>}
 */
export async function* readEvents(body, onChunk = () => {}) {
  const decoder = new TextDecoder(); // joins characters that a chunk cuts, drops a byte order mark
  const reader = body.getReader();
  let [rest, event, id] = ["", "", ""];
  let afterCr = false;
  /** @type {string[]} */
  let data = [];
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      onChunk();
      let text = decoder.decode(chunk.value, { stream: true });
      if (!text) continue;
      if (afterCr && text[0] === "\n") text = text.slice(1);
      afterCr = text.endsWith("\r");
      const lines = text.split(/\r\n?|\n/);
      lines[0] = rest + lines[0];
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event: event || "message", data: data.join("\n"), id };
          [event, data] = ["", []];
          continue;
        }
        const [field = "", value = ""] = line.split(/: ?(.*)/s);
        if (field === "data") data.push(value);
        else if (field === "event") event = value;
        else if (field === "id" && !value.includes("\0")) id = value;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/**
 * A page that lends tools. Events, each with a `detail`: `state {state, error?, retryInMs?}`; `tools {lent, refused}`
 * when the host has taken a change; `call {id, name, phase: started|answered|failed|cancelled, error?}`.
 */
export class Application extends EventTarget {
  /** @type {State} */
  state = "connecting";
  #host;
  #token;
  #forget;
  #ending = false;
  #alarm = new Alarm();
  #lending;
  #calls;
  #stream;

  /**
   * @param {Host} host
   * @param {Credentials & Snapshot} joined
   * @param {object} registration
   * @param {() => void} forget
   */
  constructor(host, joined, registration, forget) {
    super();
    this.#host = host;
    this.#token = joined.token;
    this.#forget = forget;
    /** The session's code: an address to give to whoever calls the tools. */
    this.code = joined.code;
    /** @type {Ask} */
    const session = (method, path, sending) =>
      host.request(method, `/api/sessions/${joined.code}/${path}`, { bearer: joined.token, ...sending });
    this.#lending = new Lending(session, registration, joined, this.#alarm, {
      taken: (detail) => this.#tell("tools", detail),
      ended: (error) => this.#end(error),
    });
    this.#calls = new Calls(session, this.#alarm, {
      find: (name) => this.#lending.find(name),
      told: (detail) => this.#tell("call", detail),
    });
    this.#stream = new Stream(host, joined.code, joined.token, {
      state: (state, why) => this.#enter(state, why),
      event: (event, data) => this.#hear(event, data),
    });
    this.#stream.read().then(() => this.#end(), (error) => this.#end(error));
  }

  /**
   * @template {keyof Events} Name
   * @overload
   * @param {Name} type
   * @param {(event: CustomEvent<Events[Name]>) => void} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @overload
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * The browser's own; it is here for the types of `detail`.
   * @param {string} type
   * @param {any} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
  }

  /** The names of the tools that the host has. */
  get tools() {
    return this.#lending.names;
  }

  /**
   * Lend a tool, or put another in the place of the one of its name. What is changed in one go is sent as one update.
   * @param {ToolDefinition} definition
   * @param {Handler} handler
   * @param {string} [reason] shown to clients
   */
  tool(definition, handler, reason) {
    const lent = lend(definition, handler);
    this.#lending.own.set(definition.name, lent);
    this.#lending.changed(reason ?? `${definition.name} is there`);
  }

  /** @param {string} name @param {string} [reason] */
  remove(name, reason) {
    if (this.#lending.own.delete(name)) this.#lending.changed(reason ?? `${name} is gone`);
  }

  /**
   * Lend these tools and no others.
   * @param {Tool[]} tools
   * @param {string} [reason]
   */
  replace(tools, reason) {
    replaceAll(this.#lending.own, tools.map(({ handler, ...definition }) => lend(definition, handler)));
    this.#lending.changed(reason ?? "the page offers other tools");
  }

  /**
   * Resolves when the host has answered to everything changed so far. Rejects where the application is closed.
   * @returns {Promise<{ lent: string[], refused: Refused[] }>}
   */
  settled() {
    return this.#lending.settled();
  }

  /**
   * The session in words, for a person to give to a model: the page, its tools, and how MCP clients connect to it.
   * Rejects with `ToolplugError`.
   * @param {"text/markdown" | "text/plain"} [type]
   */
  async prompt(type = "text/markdown") {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const sending = { bearer: this.#token, headers: { Accept: type }, signal };
    return (await this.#host.send("GET", `/api/sessions/${this.code}/prompt`, sending)).text();
  }

  /** Stop lending; the session goes on without its tools after its grace time, and may be joined again. */
  close() {
    this.#stream.close();
  }

  /** End the session, for everybody and for good; takes the API key where the host asks for one. */
  async end() {
    this.#ending = true;
    try {
      await this.#host.request("DELETE", `/api/sessions/${this.code}`);
    } catch (error) {
      this.#ending = false;
      throw error;
    }
    this.#forget();
    this.close();
  }

  /**
   * Lend also what the page registers with the browser's model context, while it is registered: WebMCP, the proposal
   * as Chromium 156 has it. Where there is none, or an earlier draft without `getTools`, nothing is lent.
   * @param {any} [context]
   */
  async lendModelContext(context = /** @type {any} */ (document).modelContext) {
    if (!context?.getTools || !context.executeTool) return;
    const read = async () => {
      /** @type {any[]} */
      const all = await context.getTools();
      const registered = all.filter(({ window, annotations }) => window === self && !annotations?.debugging);
      replaceAll(this.#lending.borrowed, registered.map((tool) => borrowed(context, tool)));
      this.#lending.changed("the page's model context has changed");
    };
    context.addEventListener("toolchange", () => this.state === "closed" || read().catch(reportError));
    await read();
  }

  /** @param {State} state @param {Why} [why] */
  #enter(state, why) {
    this.state = state;
    if (state === "connected") this.#alarm.ring();
    this.#tell("state", { state, ...why });
  }

  /** @param {string} event @param {any} data */
  #hear(event, data) {
    if (event === "connected") this.#lending.snapshot(data);
    else if (event === "tool-availability-update") this.#lending.update(data);
    else if (event === "tool-request") (this.#lending.asked(), this.#calls.take(data));
    else if (event === "tool-cancelled") this.#calls.cancel(data);
  }

  /** @param {ToolplugError} [error] */
  #end(error) {
    if (this.state === "closed") return;
    this.#stream.close();
    this.#lending.close(error);
    this.#calls.close();
    if (error) this.#forget();
    this.#enter("closed", { error: this.#ending ? undefined : error });
  }

  /** @param {string} type @param {object} detail */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The tools that the page lends, and what the host has of them. One request at a time carries the difference. */
class Lending {
  /** @type {Map<string, Lent>} */
  own = new Map();
  /** @type {Map<string, Lent>} */
  borrowed = new Map();
  /** @type {Map<string, string> | null} name → text; null: nothing is registered */
  #held = null;
  /** @type {Map<string, { text: string, error: string }>} definitions that are not sent again as they are */
  #refused = new Map();
  /** @type {Set<string>} why, as the next update will say */
  #reasons = new Set();
  #revision = 0;
  #outdated = false; // the host has something else than `#held` says
  #whole = false; // register everything: the answer says tool by tool what is wrong
  /** @type {ToolplugError | null} why the last change was refused as a whole; the next one is tried with it */
  #givenUp = null;
  /** @type {Promise<{ lent: string[], refused: Refused[] }> | null} */
  #settling = null;
  /** @type {ToolplugError | null} */
  #closed = null;
  #patience = new Alarm(); // for pauses that the host asks for
  #session;
  #registration;
  #alarm;
  #heard;

  /**
   * @param {Ask} session
   * @param {object} registration what a registration says beside the tools
   * @param {Snapshot} joined
   * @param {Alarm} alarm rings when the host may be there again
   * @param {{ taken: (detail: object) => void, ended: (error: ToolplugError) => void }} heard
   */
  constructor(session, registration, joined, alarm, heard) {
    this.#session = session;
    this.#registration = registration;
    this.#alarm = alarm;
    this.#heard = heard;
    this.#read(joined);
  }

  get names() {
    return [...(this.#held?.keys() ?? [])];
  }

  /** @param {string} name */
  find(name) {
    return this.own.get(name) ?? this.borrowed.get(name);
  }

  /** What `own` and `borrowed` now say is to be sent. @param {string} reason */
  changed(reason) {
    this.#reasons.add(reason);
    this.#start();
  }

  settled() {
    if (this.#closed) return Promise.reject(this.#closed);
    return this.#settling ?? Promise.resolve(this.#report());
  }

  /** @param {ToolplugError} [error] */
  close(error) {
    this.#closed ??= error ?? new ToolplugError("closed", "the application is closed; connect again");
    this.#alarm.ring();
    this.#patience.ring();
  }

  /** What the stream says first; older news than an answer that overtook it. @param {Snapshot} data */
  snapshot(data) {
    if (!data.resumed && data.revision > this.#revision) this.#read(data);
    this.#start();
  }

  /** Calls come to the page that connected last: what another page of the session said before it went is put right. */
  asked() {
    if (!this.#givenUp && this.#change()) this.#start();
  }

  /** @param {{ revision: number, updates: Updates }} data */
  update({ revision, updates }) {
    if (revision <= this.#revision) return;
    const held = (this.#held ??= new Map());
    this.#revision = revision;
    updates.removed.forEach((name) => held.delete(name));
    [...updates.added, ...updates.modified].forEach((tool) => held.set(tool.name, canonical(tool)));
  }

  /** @param {Snapshot} snapshot */
  #read({ revision, registered, tools }) {
    this.#revision = revision;
    this.#held = registered ? new Map(tools.map((tool) => [tool.name, canonical(tool)])) : null;
  }

  #start() {
    if (this.#settling || this.#closed) return;
    this.#settling = this.#settle();
    this.#settling.catch((error) => this.#heard.ended(error));
  }

  async #settle() {
    try {
      await null; // everything that the page does in one go
      this.#givenUp = null;
      for (const name of this.#refused.keys()) if (!this.find(name)) this.#refused.delete(name);
      let tries = 0;
      for (let change = this.#change(); change; change = this.#change()) {
        if (this.#closed) throw this.#closed;
        try {
          tries += 1;
          if (await this.#send(change)) tries = 0;
        } catch (error) {
          await this.#recover(error, change, tries);
          if (this.#givenUp) break;
        }
      }
      this.#reasons.clear();
      return this.#report();
    } finally {
      this.#settling = null;
    }
  }

  #wanted() {
    return [...new Map([...this.borrowed, ...this.own]).values()].filter((lent) => !this.#isRefused(lent));
  }

  /** What the host must be told; null where it has everything. `all`: register it, else tell the difference. */
  #change() {
    const wanted = this.#wanted();
    const held = this.#held;
    if (!held) return wanted.length ? { all: true, added: wanted, modified: [], removed: [] } : null;
    const byName = new Map(wanted.map((lent) => [lent.definition.name, lent]));
    const found = difference(held, new Map(wanted.map(({ definition, text }) => [definition.name, text])));
    if (!found.added.length && !found.modified.length && !found.removed.length) return null;
    if (this.#whole) return { all: true, added: wanted, modified: [], removed: [] };
    const lent = (/** @type {string[]} */ names) => names.flatMap((name) => byName.get(name) ?? []);
    return { all: false, added: lent(found.added), modified: lent(found.modified), removed: found.removed };
  }

  /** Whether the host was told, and not only asked. @param {Change} change */
  async #send({ all, added, modified, removed }) {
    if (this.#outdated) {
      this.#read(await this.#session("GET", "metadata"));
      this.#outdated = false;
      return false;
    }
    const reasons = [...this.#reasons];
    if (all) {
      const body = { ...this.#registration, tools: definitions(added) };
      const { revision, failedTools } = await this.#session("POST", "register-tools", { body });
      this.#refuse(failedTools);
      this.#read({ revision, registered: true, tools: definitions(added.filter((lent) => !this.#isRefused(lent))) });
      this.#whole = false;
    } else {
      const toolUpdates = { added: definitions(added), modified: definitions(modified), removed };
      const body = { toolUpdates, reason: reasons.join("; ").slice(0, MAX_REASON) };
      const headers = { "If-Match": String(this.#revision) };
      const { revision } = await this.#session("POST", "update-tools", { body, headers });
      this.update({ revision, updates: toolUpdates });
    }
    reasons.forEach((reason) => this.#reasons.delete(reason));
    this.#heard.taken(this.#report());
    return true;
  }

  /**
   * Make the next try another one, or a later one; throws what cannot be helped.
   * @param {unknown} error
   * @param {Change} change
   * @param {number} tries
   */
  async #recover(error, change, tries) {
    if (!(error instanceof ToolplugError) || ENDED.includes(error.status)) throw error;
    if (error.temporary) {
      const retryInMs = error.retryAfterMs ?? backoff(tries);
      this.#heard.taken({ ...this.#report(), error, retryInMs });
      await (error.retryAfterMs === undefined ? this.#alarm : this.#patience).wait(retryInMs);
    } else if (OUTDATED.includes(error.code) && tries < 3) {
      this.#outdated = true;
    } else if (!change.all && change.added.length + change.modified.length) {
      this.#whole = true;
    } else {
      if (!error.failedTools.length) this.#givenUp = error;
      else if (!this.#refuse(error.failedTools)) throw error;
      this.#whole = false;
      this.#heard.taken(this.#report());
    }
  }

  /** How many of them the page still lends as they were sent. @param {{ toolName: string, error: string }[]} failed */
  #refuse(failed) {
    const known = failed.filter(({ toolName }) => this.find(toolName));
    for (const { toolName, error } of known) {
      this.#refused.set(toolName, { text: this.find(toolName)?.text ?? "", error });
    }
    return known.length;
  }

  /** @param {Lent} lent */
  #isRefused({ definition, text }) {
    return this.#refused.get(definition.name)?.text === text;
  }

  #report() {
    const refused = [...this.#refused].filter(([name, { text }]) => this.find(name)?.text === text);
    const named = refused.map(([name, { error }]) => ({ name, error }));
    const error = this.#givenUp?.message;
    if (error === undefined) return { lent: this.names, refused: named };
    const kept = this.#wanted().filter(({ definition, text }) => this.#held?.get(definition.name) !== text);
    return { lent: this.names, refused: [...named, ...kept.map(({ definition }) => ({ name: definition.name, error }))] };
  }
}

/** The requests that the host sends, each run once and answered once, also when it is sent again. */
class Calls {
  /** @type {Map<string, AbortController>} */
  #running = new Map();
  /** @type {Set<string>} ids of the last ones */
  #ended = new Set();
  #session;
  #alarm;
  #page;

  /**
   * @param {Ask} session
   * @param {Alarm} alarm rings when the host may be there again
   * @param {{ find: (name: string) => Lent | undefined, told: (detail: object) => void }} page
   */
  constructor(session, alarm, page) {
    this.#session = session;
    this.#alarm = alarm;
    this.#page = page;
  }

  /**
   * @param {{ id: string, tool: string, arguments: object, deadline: string, attempt: number, callId: string,
   *   hostRequestId: string, traceparent?: string, tracestate?: string }} request
   */
  async take({ id, tool: name, arguments: args, deadline, attempt, callId, hostRequestId, traceparent, tracestate }) {
    if (this.#running.has(id) || this.#ended.has(id)) return;
    const controller = new AbortController();
    const { signal } = controller;
    this.#running.set(id, controller);
    this.#page.told({ id, name, phase: "started" });
    const report = new Report(this.#session, id);
    const ids = { id, callId, hostRequestId, traceparent, tracestate };
    const call = { ...ids, attempt, deadline: new Date(deadline), signal, progress: report.progress };
    const { answer, error } = await this.#run(name, args, call);
    await report.sent();
    if (!signal.aborted) await this.#answer({ id, ...answer }, name);
    this.#end(id);
    const phase = signal.aborted ? "cancelled" : error ? "failed" : "answered";
    this.#page.told({ id, name, phase, error });
  }

  /** @param {{ id: string, reason: string }} request */
  cancel({ id, reason }) {
    this.#running.get(id)?.abort(new DOMException(reason, "AbortError"));
  }

  close() {
    for (const id of this.#running.keys()) this.cancel({ id, reason: "the application is closed" });
  }

  /** @param {string} name @param {object} args @param {Call} call */
  async #run(name, args, call) {
    try {
      const lent = this.#page.find(name);
      if (!lent) throw new ToolError(`this page has no tool "${name}"`);
      const value = await lent.handler(args, call);
      return { answer: { result: checked(value === undefined ? null : value, name) } };
    } catch (error) {
      if (error instanceof ToolError) return { answer: { error: error.message }, error };
      if (!call.signal.aborted) console.error(`toolplug: tool "${name}" failed`, error);
      return { answer: { error: `internal error: tool "${name}" failed` }, error };
    }
  }

  /** @param {{ id: string, result?: unknown, error?: string }} body @param {string} name */
  async #answer(body, name) {
    for (let tries = 1; tries <= MAX_TRIES && this.#running.has(body.id); tries += 1) {
      try {
        return await this.#session("POST", "tool-results", { body });
      } catch (error) {
        if (!(error instanceof ToolplugError) || TOO_LATE.includes(error.status)) return;
        if (error.temporary) await this.#alarm.wait(error.retryAfterMs ?? backoff(tries));
        else body = { id: body.id, error: `the result of tool "${name}" was refused: ${error.message}` };
      }
    }
  }

  /** @param {string} id */
  #end(id) {
    this.#running.delete(id);
    this.#ended.add(id);
    for (const oldest of this.#ended) {
      if (this.#ended.size <= KEPT_IDS) break;
      this.#ended.delete(oldest);
    }
  }
}

/** The progress of one call: the newest is sent, what it overtook is not. */
class Report {
  /** @type {object | null} */
  #next = null;
  /** @type {Promise<void> | null} */
  #sending = null;
  #session;
  #id;

  /** @param {Ask} session @param {string} id */
  constructor(session, id) {
    this.#session = session;
    this.#id = id;
  }

  /** @type {Call["progress"]} */
  progress = (progress, total, message) => {
    this.#next = { id: this.#id, progress, total, message: message && `${message}`.slice(0, MAX_MESSAGE) };
    this.#sending ??= this.#send();
  };

  /** Resolves when nothing is on its way: an answer must not overtake it. */
  async sent() {
    await this.#sending;
  }

  async #send() {
    for (let body = this.#next; body; body = this.#next) {
      this.#next = null;
      await this.#session("POST", "tool-results", { body }).catch(() => {}); // nobody waits for progress
    }
    this.#sending = null;
  }
}

/** One event stream of a session, read for ever: opened again where it left off, whatever ends it. */
class Stream {
  #attempt = new AbortController();
  #alarm = new Alarm();
  #closed = false;
  #asleep = false;
  #heardAt = 0;
  #lastId = "";
  #host;
  #path;
  #bearer;
  #heard;

  /**
   * @param {Host} host
   * @param {string} code
   * @param {string | undefined} bearer
   * @param {{ state: (state: State, why?: Why) => void, event: (event: string, data: any) => void }} heard
   */
  constructor(host, code, bearer, heard) {
    this.#host = host;
    this.#path = `/api/sessions/${encodeURIComponent(code)}/stream`;
    this.#bearer = bearer;
    this.#heard = heard;
  }

  close() {
    this.#closed = true;
    this.#attempt.abort();
    this.#alarm.ring();
  }

  /** Ends when it is closed. Rejects with the `ToolplugError` that no further try could help. */
  async read() {
    const away = this.#watchPage();
    try {
      for (let failures = 0; !this.#closed; ) {
        let openedAt = Infinity;
        const error = await this.#readOnce(() => (openedAt = performance.now()));
        if (this.#closed) return;
        if (!error.temporary) throw error;
        // one that breaks off as soon as it is open is no better than one that cannot be opened
        if (performance.now() - openedAt >= pause(failures)) failures = 0;
        const retryInMs = Math.max(backoff((failures += 1)), error.retryAfterMs ?? 0);
        this.#heard.state("waiting", { error, retryInMs });
        await this.#alarm.wait(retryInMs);
        while (this.#asleep && !this.#closed) await this.#alarm.wait(FOREVER_MS);
      }
    } finally {
      away.abort();
    }
  }

  /** Why it ended. @param {() => void} opened */
  async #readOnce(opened) {
    this.#heard.state("connecting");
    this.#attempt = new AbortController();
    this.#heardAt = performance.now();
    const watchdog = setInterval(() => this.#wake(), SILENCE_MS / 3);
    const { signal } = this.#attempt;
    const headers = { Accept: "text/event-stream", ...(this.#lastId && { "Last-Event-ID": this.#lastId }) };
    try {
      const response = await this.#host.send("GET", this.#path, { bearer: this.#bearer, headers, signal });
      const body = /** @type {ReadableStream<Uint8Array>} */ (response.body);
      for await (const { event, data, id } of readEvents(body, () => (this.#heardAt = performance.now()))) {
        this.#take(event, data, opened);
        this.#lastId = event === "resync" ? "" : id;
      }
      return new ToolplugError("unreachable", `${this.#host.url} ended the stream`);
    } catch (cause) {
      if (cause instanceof ToolplugError) return cause;
      return new ToolplugError("unreachable", `the connection to ${this.#host.url} broke off`, { cause });
    } finally {
      clearInterval(watchdog);
    }
  }

  /** @param {string} event @param {string} text @param {() => void} opened */
  #take(event, text, opened) {
    try {
      const data = JSON.parse(text);
      if (event === "error") throw new ToolplugError(data.code, data.message);
      this.#heard.event(event, data);
    } catch (cause) {
      if (cause instanceof ToolplugError) throw cause;
      this.#lastId = ""; // a new snapshot makes up for what could not be read
      throw new ToolplugError("bad_event", `${this.#host.url} sent an event "${event}" that cannot be read`, { cause });
    }
    if (event !== "connected") return;
    opened();
    this.#heard.state("connected");
  }

  /** Try now, if it waits; try again, if it has heard nothing for too long (a frozen page hears nothing either). */
  #wake() {
    if (performance.now() - this.#heardAt > SILENCE_MS) this.#attempt.abort();
    this.#alarm.ring();
  }

  #watchPage() {
    const away = new AbortController();
    const { signal } = away;
    addEventListener("pagehide", () => this.#sleep(true), { signal });
    addEventListener("pageshow", () => this.#sleep(false), { signal });
    addEventListener("online", () => (this.#attempt.abort(), this.#alarm.ring()), { signal });
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake(), { signal });
    return away;
  }

  /** A page that is left lends nothing, also while the browser keeps it for the way back. @param {boolean} asleep */
  #sleep(asleep) {
    this.#asleep = asleep;
    if (asleep) this.#attempt.abort();
    else this.#alarm.ring();
  }
}

/** A host's routes, and the API key with which they are called where nothing else is said. */
class Host {
  /** @param {string | URL | undefined} url @param {string | undefined} apiKey */
  constructor(url, apiKey) {
    const given = url ?? new URL(".", import.meta.url);
    if (!/^https?:/.test(`${given}`) || !URL.canParse(given)) {
      throw new ToolplugError("invalid_host", `"${given}" is no host; give one like http://127.0.0.1:8080`);
    }
    this.url = new URL(given).href.replace(/\/+$/, "");
    this.apiKey = apiKey;
  }

  /**
   * The answer's JSON. Rejects with `ToolplugError`.
   * @param {string} method
   * @param {string} path
   * @param {Sending} [sending]
   */
  async request(method, path, sending) {
    const response = await this.send(method, path, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS), ...sending });
    if (response.status === 204) return null;
    return await response.json().catch((cause) => Promise.reject(this.#unreachable(cause)));
  }

  /**
   * A good answer, its body unread. Rejects with `ToolplugError`.
   * @param {string} method
   * @param {string} path
   * @param {Sending} sending
   */
  async send(method, path, { bearer = this.apiKey, body, headers, signal }) {
    const response = await fetch(this.url + path, {
      method,
      signal,
      body: body && JSON.stringify(body),
      headers: {
        ...(bearer && { Authorization: `Bearer ${bearer}` }),
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
    }).catch((cause) => Promise.reject(this.#unreachable(cause)));
    if (response.ok) return response;
    const said = await response.json().catch(() => null);
    const { error, failedTools } = said ?? {};
    const seconds = Number.parseFloat(response.headers.get("Retry-After") ?? "");
    throw new ToolplugError(error?.code ?? "unknown", error?.message ?? `the host answered ${response.status}`, {
      status: response.status,
      param: error?.param,
      retryAfterMs: seconds >= 0 ? seconds * 1000 : undefined,
      failedTools,
    });
  }

  /** What answers as no host would. */
  stranger() {
    return new ToolplugError("invalid_host", `what answers at ${this.url} is no toolplug host`);
  }

  /** @param {unknown} cause */
  #unreachable(cause) {
    const hint = `is the host running, and does its http.allowed_origins list ${location.origin}?`;
    return new ToolplugError("unreachable", `cannot reach ${this.url}: ${hint}`, { cause });
  }
}

/** Pauses that end early when it rings. */
class Alarm {
  /** @type {Set<() => void>} */
  #pauses = new Set();

  /** @param {number} ms @returns {Promise<void>} */
  wait(ms) {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#pauses.delete(end);
        resolve();
      };
      const timer = setTimeout(end, Math.min(ms, FOREVER_MS));
      this.#pauses.add(end);
    });
  }

  ring() {
    this.#pauses.forEach((end) => end());
  }
}

/** @typedef {Credentials & Snapshot} Joined */
/** @param {Host} host @param {{ pluginType: string, ttlSeconds?: number }} body @returns {Promise<Joined>} */
async function create(host, body) {
  const { code, pluginToken } = (await host.request("POST", "/api/sessions", { body })) ?? {};
  if (!code || !pluginToken) throw host.stranger();
  return { code, token: pluginToken, revision: 0, registered: false, tools: [] };
}

/** @param {Host} host @param {Credentials} credentials @returns {Promise<Joined>} */
async function join(host, { code, token }) {
  const path = `/api/sessions/${encodeURIComponent(code)}/metadata`;
  const found = await host.request("GET", path, { bearer: token });
  if (!found?.tools) throw host.stranger();
  return { ...found, code, token };
}

/**
 * The session that the storage keeps; null where it keeps none, or it is over.
 * @param {Host} host
 * @param {string} key
 * @param {KeyStore} [storage]
 */
async function rejoin(host, key, storage) {
  try {
    const kept = storage?.getItem(key);
    return kept ? await join(host, JSON.parse(kept)) : null;
  } catch (error) {
    if (error instanceof ToolplugError && error.temporary) throw error;
    return null;
  }
}

/** @param {ToolDefinition} definition @param {Handler} handler @returns {Lent} */
function lend(definition, handler) {
  const unknown = Object.keys(definition).find((key) => !FIELDS.includes(key));
  if (unknown) throw new TypeError(`a tool has no "${unknown}"; it has ${FIELDS.join(", ")}`);
  if (typeof definition.name !== "string") throw new TypeError("a tool must have a name");
  if (typeof handler !== "function") throw new TypeError(`tool "${definition.name}" needs a function as its handler`);
  const text = canonical({ inputSchema: { type: "object", properties: {} }, ...definition });
  return { definition: JSON.parse(text), handler, text };
}

/**
 * A tool of the browser's model context; its own exceptions do not come out of there.
 * @param {any} context
 * @param {any} tool
 * @returns {Lent}
 */
function borrowed(context, tool) {
  const { name, title, description, annotations } = tool;
  // Versions of Chromium that list the schema as text (150) take arguments as text, too.
  const isText = typeof tool.inputSchema === "string";
  const inputSchema = isText ? JSON.parse(tool.inputSchema || "null") : tool.inputSchema;
  const { readOnlyHint, consequentialHint: destructiveHint } = annotations ?? {};
  const hints = { ...(title && { title }), readOnlyHint, destructiveHint };
  const definition = { name, description, annotations: hints, ...(inputSchema && { inputSchema }) };
  return lend(definition, async (args, { signal }) => {
    const given = isText ? JSON.stringify(args) : args;
    const text = await context.executeTool(tool, given, { signal }).catch((/** @type {unknown} */ cause) => {
      throw new ToolError(`tool "${name}" failed in its page`, { cause });
    });
    return text ? JSON.parse(text) : null;
  });
}

/** A definition as text, the same for the same definition. @param {Record<string, any>} definition */
function canonical(definition) {
  const given = FIELDS.filter((key) => definition[key] !== undefined && definition[key] !== null);
  const known = Object.fromEntries(given.map((key) => [key, definition[key]]));
  return JSON.stringify(known, (_, value) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );
}

/** @param {unknown} value @param {string} name */
function checked(value, name) {
  try {
    if (JSON.stringify(value, finite) !== undefined) return value;
  } catch {
    // a cycle, a BigInt, or no number
  }
  throw new ToolError(`result of tool "${name}" is not JSON`);
}

/** What `JSON.stringify` would write as null is no result. @param {string} _ @param {unknown} part */
function finite(_, part) {
  if (typeof part === "number" && !Number.isFinite(part)) throw new RangeError(`${part} is not JSON`);
  return part;
}

/**
 * Names by what happened to them between two sets of definitions, which are texts by name.
 * @param {Map<string, string>} before
 * @param {Map<string, string>} after
 */
function difference(before, after) {
  return {
    added: [...after.keys()].filter((name) => !before.has(name)),
    modified: [...after.keys()].filter((name) => before.has(name) && before.get(name) !== after.get(name)),
    removed: [...before.keys()].filter((name) => !after.has(name)),
  };
}

/** @param {Lent[]} lent */
const definitions = (lent) => lent.map(({ definition }) => definition);

/** Half a second, twice as long each time. @param {number} tries */
const pause = (tries) => Math.min(MAX_PAUSE_MS, 500 * 2 ** (tries - 1));

/** The same, spread, so that pages do not come back as one. @param {number} tries */
const backoff = (tries) => pause(tries) * (0.5 + Math.random() / 2);

/** @param {Map<string, Lent>} map @param {Lent[]} lent */
function replaceAll(map, lent) {
  map.clear();
  for (const one of lent) map.set(one.definition.name, one);
}
