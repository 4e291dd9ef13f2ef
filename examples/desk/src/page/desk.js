// The page of the desk: a chat with the agent about one customer. All text of the model, of customers and of tools goes into the
// page by `textContent`, so no markup in it counts.

const $ = (id) => document.getElementById(id);
const customer = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const path = `/customers/${encodeURIComponent(customer)}`;

/** An element with a text or children, and attributes. */
function make(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

function tell(text, failed = false) {
  $("status").textContent = text;
  $("status").className = failed ? "failed" : "";
}

/** Sends a request. An error is told to the person as the service says it. */
async function request(url, options) {
  try {
    const response = await fetch(url, options);
    const body = await response.json().catch(() => ({}));
    if (response.ok) return body;
    if (response.status === 401) tell("You are logged out: open your login link again.", true);
    else tell(body.detail ?? "The service did not answer.", true);
  } catch {
    tell("The service cannot be reached.", true);
  }
  return null;
}

const post = (url, body) =>
  request(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

// Turns, in the order of their prompts. One of them is followed at a time: the first that has no outcome.

const turns = [];
let followed = null;

const states = {
  queued: "waiting", running: "running", begun: "running", parked: "waits for a person", completed: "done", interrupted: "stopped", failed: "failed", unsent: "not sent",
};

class Turn {
  constructor({ id, text, state }) {
    // `null`: the prompt is not kept any more.
    text ??= "…";
    this.id = id;
    this.article = make("article", { id: `turn-${id}`, "aria-label": `Turn: ${text.slice(0, 60)}`, tabindex: "-1" });
    this.article.append(make("p", { class: "said mine" }, text));
    this.chip = make("span", { class: "state" });
    const show = make("button", { type: "button" }, make("span", { class: "what" }, text), this.chip);
    show.addEventListener("click", () => this.show());
    this.entry = make("li", {}, show);
    this.calls = new Map();
    this.questions = new Map();
    this.read = false;
    this.set(state);
  }

  set(state) {
    this.state = state;
    this.chip.textContent = states[state] ?? state;
    this.chip.classList.toggle("failed", state === "failed");
    this.article.setAttribute("aria-busy", String(!this.ended));
  }

  get ended() {
    return !["queued", "begun", "running", "parked"].includes(this.state);
  }

  /** Scrolls to the turn, and reads it if its end is all that is shown. */
  show() {
    this.article.scrollIntoView();
    this.article.focus({ preventScroll: true });
    if (!this.read && this.ended) this.follow(() => {});
  }

  /** Reads the turn's events to its outcome. A connection that is cut off goes on after the last event with an id. */
  follow(done) {
    this.read = true;
    this.article.replaceChildren(this.article.firstChild);
    const source = new EventSource(`/turns/${this.id}/events`);
    const on = (name, handle) =>
      source.addEventListener(name, ({ data }) => atBottom(() => handle(JSON.parse(data))));
    on("delta", ({ text, starts }) => {
      // A text that was begun and is not finished is written anew.
      if (starts) this.drop();
      this.write(text);
    });
    on("text", ({ text }) => this.finish(text));
    on("tool_call", (call) => this.called(call));
    on("tool_result", (result) => this.returned(result));
    on("asked", ({ question }) => this.asked(question));
    on("decided", ({ question }) => this.decided(question));
    on("usage", (usage) => this.article.append(make("p", { class: "end" }, spent(usage))));
    on("gap", () => this.article.append(make("p", { class: "end" }, "A part of this turn was not kept.")));
    on("outcome", (outcome) => {
      source.close();
      tell(this.end(outcome), outcome.outcome === "failed");
      done();
      openQuestions();
    });
    source.addEventListener("error", () => {
      // Pieces were missed, so the text is shown when it is whole. The browser connects again, unless it says that it has closed.
      this.drop();
      if (source.readyState !== EventSource.CLOSED) return;
      tell("This turn cannot be read any more.", true);
      done();
    });
  }

  write(text) {
    this.set("running");
    if (!this.writing) this.article.append((this.writing = make("p", { class: "said writing" })));
    this.writing.append(text);
  }

  /** The whole text takes the place of its pieces. */
  finish(text) {
    this.write("");
    this.writing.textContent = text;
    this.writing.classList.remove("writing");
    this.writing = null;
    this.last = text;
  }

  /** Removes pieces without a whole text. */
  drop() {
    this.writing?.remove();
    this.writing = null;
  }

  called({ call: id, name, input }) {
    this.set("running");
    const state = make("span", {}, "runs …");
    const summary = make("summary", {}, make("code", {}, shortName(name)), " – ", state);
    const call = make("details", { class: "call" }, summary, make("pre", { tabindex: "0" }, pretty(input)));
    this.calls.set(id, { call, state });
    this.article.append(call);
  }

  returned({ call: id, text, is_error }) {
    const known = this.calls.get(id);
    if (!known) return;
    known.state.textContent = is_error ? "failed" : "done";
    if (text) known.call.append(make("pre", { tabindex: "0" }, text));
  }

  asked(question) {
    this.set(question.parked ? "parked" : "running");
    // It comes again after each reconnect, and when the turn is parked.
    if (this.questions.has(question.id)) return;
    const shown = askedQuestion(question);
    this.questions.set(question.id, shown);
    this.article.append(shown);
    tell(`A question waits for you: ${shown.firstChild.textContent}`);
  }

  decided(question) {
    this.asked(question);
    const shown = this.questions.get(question.id);
    if (shown.dataset.decided) return;
    shown.dataset.decided = "yes";
    this.close(shown, decisionText(question.decision));
  }

  /** Puts a text in the place of a question's buttons. The person who pressed one of them goes on at the message. */
  close(shown, text) {
    if (shown.contains(document.activeElement)) $("text").focus({ preventScroll: true });
    shown.querySelectorAll(".buttons").forEach((one) => one.remove());
    shown.append(make("p", { class: "detail" }, text));
    shown.ariaBusy = "false";
  }

  end({ outcome, text, why }) {
    // A text that was cut off stays.
    this.writing?.classList.remove("writing");
    this.set(outcome);
    for (const { state } of this.calls.values()) if (state.textContent === "runs …") state.textContent = "cut off";
    for (const shown of this.questions.values()) if (!shown.dataset.decided) this.close(shown, "The question has ended with its turn.");
    if (text && text !== this.last) this.article.append(make("p", { class: "said" }, text));
    const ends = {
      interrupted: "The turn was stopped.",
      failed: `The agent could not answer${why ? ` (${why})` : ""}.`,
      unsent: "The message was not sent to the agent.",
    };
    const said = ends[outcome];
    if (said) this.article.append(make("p", { class: `end ${outcome}` }, said));
    return said ?? "The agent has answered.";
  }
}

/** `mcp__orders__cancel` is `orders: cancel` for a person. */
const shortName = (name) => name.replace(/^mcp__(.+?)__/, "$1: ");
/** What a turn has used, its subagents included. */
const spent = (usage) => {
  const read = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
  const tokens = `${read.toLocaleString()} tokens read, ${usage.output_tokens.toLocaleString()} written`;
  return usage.cost_usd === undefined ? tokens : `${tokens}, $${usage.cost_usd.toFixed(4)}`;
};
const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** The decision in words: by whom, and how. */
function decisionText(decision) {
  if (decision?.is === "expired") return "Nobody answered in time.";
  const { answer, by } = decision?.answer ?? {};
  if (!answer) return "The question has ended with its turn.";
  const said = { allowed: "Allowed", denied: "Denied", accepted: "Answered" }[answer.kind];
  const words = said ?? Object.values(answer.answers ?? {}).join("; ");
  return by ? `${words} – ${by}` : words;
}

/** Keeps the chat at its end if it is there. */
function atBottom(change) {
  const chat = $("chat");
  const stay = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 80;
  change();
  if (stay) chat.scrollTop = chat.scrollHeight;
}

function askedQuestion({ id, body: inquiry }) {
  const group = make("fieldset", { class: "ask" });
  // Buttons that are disabled would lose the focus.
  const answer = async (choice) => {
    if (group.ariaBusy === "true") return;
    group.ariaBusy = "true";
    if (!(await post(`/questions/${id}`, choice))) group.ariaBusy = "false";
  };
  const button = (text, attributes, pressed) => {
    const made = make("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", () => pressed(made));
    return made;
  };
  const refuse = (text) => button(text, {}, () => answer({ choice: "deny" }));
  if (inquiry.kind === "permission") {
    const { tool_name, input, title, description } = inquiry.request;
    group.append(make("legend", {}, title ?? `May the agent run ${shortName(tool_name)}?`));
    if (description) group.append(make("p", { class: "detail" }, description));
    if (Object.keys(input ?? {}).length) group.append(make("pre", { tabindex: "0" }, pretty(input)));
    const allow = button("Allow", { class: "yes" }, () => answer({ choice: "allow" }));
    group.append(make("div", { class: "buttons" }, allow, refuse("Deny")));
  } else if (inquiry.kind === "questions") {
    const at_once = inquiry.questions.length === 1 && !inquiry.questions[0].multiSelect;
    const chosen = new Map(inquiry.questions.map(({ question }) => [question, new Set()]));
    const send = () =>
      answer({ choice: "answer", answers: Object.fromEntries([...chosen].map(([question, all]) => [question, [...all].join(", ")])) });
    group.append(make("legend", {}, at_once ? inquiry.questions[0].question : "The agent asks"));
    for (const { question, options, multiSelect } of inquiry.questions) {
      const row = make("div", { class: "buttons", role: "group", "aria-label": question });
      if (!at_once) group.append(make("p", {}, question));
      for (const { label, description } of options) {
        const option = button(label, at_once ? {} : { "aria-pressed": "false" }, () => {
          const all = chosen.get(question);
          const on = !all.has(label);
          if (!multiSelect) {
            all.clear();
            row.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", "false"));
          }
          if (on) all.add(label);
          else all.delete(label);
          if (at_once) send();
          else option.setAttribute("aria-pressed", String(on));
        });
        if (description) option.append(make("small", {}, description));
        row.append(option);
      }
      group.append(row);
    }
    const last = make("div", { class: "buttons" }, refuse("Skip"));
    if (!at_once) last.prepend(button("Send answers", { class: "yes" }, send));
    group.append(last);
  } else {
    group.append(make("legend", {}, inquiry.request?.message ?? "The agent asks something that this page cannot show."));
    group.append(make("div", { class: "buttons" }, refuse("Dismiss")));
  }
  return group;
}

/** Shows which customers of the tenant have questions that wait for a person. */
async function openQuestions() {
  const open = await request("/questions");
  // A name is `TENANT/CUSTOMER`.
  const waiting = new Set((open ?? []).map(({ name }) => name.slice(name.indexOf("/") + 1)));
  const link = (name) => make("li", {}, make("a", { href: `/desk/${encodeURIComponent(name)}` }, `${name} has a question`));
  waiting.delete(customer);
  $("open-questions").replaceChildren(...[...waiting].map(link));
}

/** Follows the first turn without an outcome. */
function next() {
  followed = turns.find((turn) => !turn.ended && !turn.read) ?? null;
  $("stop").hidden = !followed;
  followed?.follow(next);
}

function add(known) {
  const turn = new Turn(known);
  turns.push(turn);
  $("chat").append(turn.article);
  $("turns").prepend(turn.entry);
  $("none").hidden = true;
  if (turn.ended) turn.end({ outcome: known.state, text: known.answer });
}

$("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text || $("go").disabled) return;
  $("go").disabled = true;
  // A message that is sent again after an error is one message.
  $("send").dataset.key ||= crypto.randomUUID();
  tell("");
  const headers = { "content-type": "text/plain; charset=utf-8", "idempotency-key": $("send").dataset.key };
  const sent = await request(`${path}/prompts`, { method: "POST", headers, body: text });
  $("go").disabled = false;
  if (!sent) return;
  delete $("send").dataset.key;
  $("text").value = "";
  add({ id: sent.turn, text, state: "queued" });
  $("chat").scrollTop = $("chat").scrollHeight;
  if (!followed) next();
});

$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("send").requestSubmit();
});
$("text").addEventListener("input", () => delete $("send").dataset.key);
$("stop").addEventListener("click", () => followed && post(`${path}/turns/${followed.id}/interrupt`, {}));
$("open").addEventListener("submit", (event) => {
  event.preventDefault();
  location.href = `/desk/${encodeURIComponent($("customer").value.trim())}`;
});

async function start() {
  $("customer").value = customer;
  $("send").hidden = !customer;
  const login = await request("/me");
  if (!login) return;
  $("who").textContent = `${login.user} at ${login.tenant}`;
  $("hint").hidden = customer !== "";
  openQuestions();
  window.addEventListener("focus", openQuestions);
  if (!customer) return;
  document.title = `${customer} – Support desk`;
  const past = await request(`${path}/turns`);
  if (!past) return;
  // The newest come first.
  past.turns.reverse().forEach(add);
  $("chat").scrollTop = $("chat").scrollHeight;
  next();
}

start();
