// A conversation with the model, and what the cache did for each turn of it.

import { postJson, stream } from "./api.js";
import { byId, element, say, setBar } from "./dom.js";
import { count, percent, span } from "./format.js";
import { around } from "./requests.js";

export class Chat {
  #messages = [];
  #running = null; // what stops the answer that is coming
  #forecasts = 0;

  /** ended: called after each turn. */
  constructor(ended) {
    this.ended = ended;
    byId("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    byId("chat-message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    byId("chat-stop").addEventListener("click", () => this.#running?.abort());
    byId("chat-new").addEventListener("click", () => this.clear());
    byId("chat-explain").addEventListener("click", () => this.#explain());
  }

  clear() {
    this.#running?.abort();
    this.#messages = [];
    byId("chat-log").replaceChildren();
    this.#forget();
  }

  async #send() {
    const text = byId("chat-message").value;
    if (text.trim() === "" || this.#running !== null) return;
    const messages = this.#messages;
    messages.push({ role: "user", content: text });
    byId("chat-message").value = "";
    this.#forget();
    byId("chat-log").append(turn("user", text));
    const answer = turn("assistant", "");
    byId("chat-log").append(answer);
    const said = await this.#answer(answer);
    if (said !== "") messages.push({ role: "assistant", content: said });
    else messages.pop(); // it was not answered: the next message takes its place
    this.ended();
  }

  /** Stream an answer into its place; the text that came, whatever ended it. */
  async #answer(place) {
    const [, body, foot] = place.children;
    const began = performance.now();
    let said = "";
    let first = null;
    let last = {};
    this.#setRunning(new AbortController());
    try {
      for await (const chunk of stream("v1/chat/completions", this.#body(), this.#running.signal)) {
        const piece = chunk.choices[0]?.delta?.content ?? "";
        if (piece !== "") first ??= performance.now() - began;
        said += piece;
        body.append(piece);
        last = { ...last, ...(chunk.usage && { usage: chunk.usage }), ...(chunk.headwater && { report: chunk.headwater }) };
        follow(byId("chat-log"));
      }
      foot.append(...account(last, first, performance.now() - began));
    } catch (error) {
      const stopped = error.name === "AbortError";
      foot.append(element("span", { class: stopped ? "" : "wrong" }, stopped ? "Stopped." : error.message));
    } finally {
      this.#setRunning(null);
      follow(byId("chat-log"));
    }
    return said;
  }

  #body() {
    return {
      messages: this.#conversation(),
      max_tokens: Number(byId("chat-most").value) || 256,
      stream: true,
      stream_options: { include_usage: true },
      headwater: { report: true, read: byId("chat-read").checked },
    };
  }

  #conversation() {
    const system = byId("chat-system").value;
    return [...(system.trim() === "" ? [] : [{ role: "system", content: system }]), ...this.#messages];
  }

  #setRunning(stopper) {
    this.#running = stopper;
    byId("chat-send").hidden = stopper !== null;
    byId("chat-stop").hidden = stopper === null;
    if (stopper === null && document.activeElement === document.body) byId("chat-message").focus();
  }

  /** Say what the message would reuse if it were sent now. */
  async #explain() {
    const place = byId("chat-forecast");
    const mine = ++this.#forecasts;
    const text = byId("chat-message").value;
    const messages = [...this.#conversation(), ...(text.trim() === "" ? [] : [{ role: "user", content: text }])];
    if (messages.length === 0) {
      place.replaceChildren(element("p", {}, "Write a message first."));
      return;
    }
    let told;
    try {
      told = forecast(await postJson("v1/cache/explain", { messages }));
    } catch (error) {
      told = [element("p", { class: "wrong" }, error.message)];
    }
    if (mine === this.#forecasts) place.replaceChildren(...told);
  }

  #forget() {
    this.#forecasts += 1;
    byId("chat-forecast").replaceChildren();
  }
}

function turn(role, text) {
  const whose = role === "user" ? "You" : "Model";
  return element("li", { class: role }, element("span", { class: "unseen" }, `${whose}: `), element("div", { class: "said" }, text), element("div", { class: "foot quiet" }));
}

/** What a turn cost. first, whole: milliseconds, as they passed here. */
function account({ usage, report }, first, whole) {
  if (usage === undefined) return [element("span", {}, "No usage came with the answer.")];
  const cached = usage.prompt_tokens_details.cached_tokens;
  const share = cached / usage.prompt_tokens;
  const bar = element("div", { class: "bar" });
  setBar(bar, [["reused", share], ["computed", 1 - share]]);
  const told = [
    `${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens cached (${percent(share)})`,
    first === null ? null : `first token after ${span(first / 1000)}`,
    `${count(usage.completion_tokens)} tokens in ${span(whole / 1000)}`,
  ];
  const why = report?.cache[0].why;
  return [
    bar,
    element("span", { class: "numbers" }, told.filter((each) => each !== null).join(" · ")),
    why && element("p", {}, why.sentence),
  ].filter(Boolean);
}

function forecast(found) {
  const share = (tokens) => tokens / found.prompt_tokens;
  const bar = element("div", { class: "bar" });
  const promised = found.promised_tokens - found.cached_tokens;
  setBar(bar, [["reused", share(found.cached_tokens)], ["promised", share(promised)], ["computed", share(found.prompt_tokens - found.promised_tokens)]]);
  const coming = promised > 0 ? `, ${count(promised)} more are being computed` : "";
  return [
    element("p", {}, `Of ${count(found.prompt_tokens)} tokens ${count(found.cached_tokens)} are cached${coming}.`),
    bar,
    element("p", { class: "quiet" }, found.why.sentence),
    ...(found.why.at > 0 ? [element("p", { class: "quiet" }, around(found.why))] : []),
  ];
}

/** Keep the end of a log in sight, unless somebody reads further up. */
function follow(log) {
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}
