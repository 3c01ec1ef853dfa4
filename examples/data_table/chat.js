/**
 * A box in which a person asks the model of the host, and sees its calls and its answer as they are made.
 */

import { Conversation, explained, readEvents } from "./conversation.js";

const LONGEST = 20_000;
const INSTRUCTIONS = "You work with the table of a web page by its tools. Answer in short sentences of plain text: Markdown is not drawn.";
const IMAGE = /^image\/(png|jpeg|gif|webp)$/;
const MARKS = { running: "…", done: "✓", failed: "✗", stopped: "–" };

/** An element; texts from elsewhere are only ever given as children or as `textContent`. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...children);
  return made;
}

/**
 * Make a chat of a form with a text area, a list and a status line. `connection()` returns `{host, apiKey, session}`, of
 * which the session is missing until there is one.
 */
export function startChat({ form, list, status, connection }) {
  const [field, button] = [form.querySelector("textarea"), form.querySelector("button")];
  const items = new Map();
  let frame = 0;

  const talk = new Conversation(answering, () => {
    frame ||= requestAnimationFrame(show);
  });

  async function* answering(request, signal) {
    const response = await send("POST", "v1/responses", request, signal);
    for await (const { data } of readEvents(response)) yield data;
  }

  async function send(method, path, body, signal) {
    const { host, apiKey } = connection();
    const headers = { ...(apiKey && { Authorization: `Bearer ${apiKey}` }), ...(body && { "Content-Type": "application/json" }) };
    const response = await fetch(`${host}/${path}`, { method, headers, body: body && JSON.stringify(body), signal }).catch((error) => {
      throw error.name === "AbortError" ? error : { status: 0 };
    });
    if (response.ok) return response;
    const { error = {} } = await response.json().catch(() => ({}));
    throw { status: response.status, ...error, retryAfterS: Number(response.headers.get("Retry-After")) };
  }

  function show() {
    frame = 0;
    for (const entry of talk.entries) {
      const old = items.get(entry.key);
      if (old?.version === entry.version) continue;
      const item = drawn(entry, talk);
      if (old) old.item.replaceWith(item);
      else list.append(item);
      items.set(entry.key, { item, version: entry.version });
    }
    for (const retry of list.querySelectorAll(".retry")) retry.hidden = talk.busy || retry.closest("li") !== list.lastChild;
    list.ariaBusy = `${talk.busy}`;
    list.scrollTop = list.scrollHeight;
    button.textContent = talk.busy ? "Stop" : "Send";
    button.disabled = !talk.busy && !connection().session;
    status.textContent = talk.status;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (talk.busy) {
      talk.stop();
    } else if (text && connection().session) {
      field.value = "";
      talk.send(text, { session: connection().session, instructions: INSTRUCTIONS });
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") talk.stop();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!talk.busy) form.requestSubmit();
  });

  return {
    /** Look whether the host has a model, once there is a session. */
    async look() {
      show();
      const found = await send("GET", "v1/models").catch((error) => error);
      const lacks = found.code === "not_configured";
      list.querySelector(".lacking")?.remove();
      if (lacks) list.prepend(problemItem(explained(found), "lacking"));
    },
  };
}

function drawn(entry, talk) {
  if (entry.kind === "call") return callItem(entry);
  if (entry.kind === "approval") return approvalItem(entry, talk);
  if (entry.kind === "problem") {
    const retry = element("button", { type: "button", className: "retry", textContent: "Try again" });
    retry.addEventListener("click", () => talk.retry());
    return problemItem(entry, "", retry);
  }
  const who = { user: "You: ", text: "Model: " }[entry.kind] ?? "";
  const unseen = element("span", { className: "unseen", textContent: who });
  return element("li", { className: entry.kind }, unseen, element("p", { dir: "auto", textContent: cut(entry.text) }));
}

function callItem({ name, state, took, arguments: given, output, parts = [] }) {
  const time = took === undefined ? state : took < 0.001 ? "< 1 ms" : `${Math.round(took * 1000)} ms`;
  const summary = element(
    "summary",
    {},
    element("span", { className: "mark", textContent: MARKS[state], ariaHidden: "true" }),
    element("strong", { dir: "auto", textContent: name }),
    element("span", { className: "given", dir: "auto", textContent: given }),
    element("span", { textContent: state === "failed" ? `failed, ${time}` : time }),
  );
  const details = element("details", { open: state === "failed" }, summary, code(given, "Arguments"));
  if (output !== undefined) details.append(code(output, "Result"));
  const images = parts.filter(({ type, mimeType }) => type === "image" && IMAGE.test(mimeType));
  const shown = images.map(({ data, mimeType }) => element("img", { src: `data:${mimeType};base64,${data}`, alt: "Image of the result" }));
  return element("li", { className: `call ${state}` }, details, ...shown);
}

function approvalItem(entry, talk) {
  const item = element("li", { className: "approval" }, element("p", {}, element("strong", { dir: "auto", textContent: entry.name })));
  item.querySelector("p").append(entry.decision ? ` was ${entry.decision}.` : " needs approval.");
  if (entry.decision) return item;
  const actions = element("p", { className: "actions" });
  for (const [text, approve] of [["Approve", true], ["Deny", false]]) {
    const button = element("button", { type: "button", textContent: text });
    button.addEventListener("click", () => talk.decide(entry, approve));
    actions.append(button);
  }
  if (entry.again) item.append(element("p", { textContent: "It is not decided yet: someone with the scope approvals:write does that. Approve then continues." }));
  item.append(code(entry.arguments, "Arguments"), actions);
  return item;
}

function problemItem({ title, text = "", lines }, className, ...more) {
  const item = element("li", { className: `problem ${className}` }, element("strong", { textContent: title }), element("p", { dir: "auto", textContent: text }));
  if (lines) item.append(code(lines, "Lines of providers.yaml"));
  item.append(...more);
  return item;
}

const code = (text, ariaLabel) => element("pre", { tabIndex: 0, role: "region", ariaLabel, dir: "auto", textContent: cut(text) });

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);
