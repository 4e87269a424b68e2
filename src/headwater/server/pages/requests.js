// The last requests, each with the account of its tokens.

import { byId, element, say, setBar, show } from "./dom.js";
import { clock, count, percent, span } from "./format.js";
import { tokensOf } from "./overview.js";

export const REASONS = {
  all_reused: "all reused",
  never_seen: "never seen",
  diverged: "diverged",
  evicted: "evicted",
  unfinished: "still being computed",
  new_suffix: "new behind it",
  not_shared: "not read, as asked",
  not_looked_up: "not looked up",
};

export class Requests {
  #opened = new Set();
  #last = { requests: [], admin: false };

  /** Show requests, newest first. admin: they are of all tenants. */
  show(requests, admin) {
    this.#last = { requests, admin };
    byId("requests").hidden = requests.length === 0;
    byId("requests").classList.toggle("whose", admin);
    say(byId("requests-note"), requests.length === 0 ? "No request has ended yet." : "");
    const longest = Math.max(1, ...requests.map((each) => sum(tokensOf(each))));
    show(byId("requests"), requests, keyOf, (item) => this.#group(keyOf(item)), (group, item) => this.#update(group, item, longest));
  }

  #group(key) {
    const button = element("button", { type: "button", class: "fold", onclick: () => this.#fold(key) });
    const bar = element("td", { class: "axis" }, element("div", { class: "bar" }));
    const numbers = Array.from({ length: 5 }, () => element("td", { class: "number" }));
    const row = element("tr", {}, element("td", {}, button), element("td"), element("td", { class: "for-admin" }), bar, ...numbers, element("td"));
    return element("tbody", {}, row);
  }

  #fold(key) {
    if (!this.#opened.delete(key)) this.#opened.add(key);
    this.show(this.#last.requests, this.#last.admin);
  }

  #update(group, request, longest) {
    const open = this.#opened.has(keyOf(request));
    updateRow(group.rows[0], request, longest, open);
    if (open && group.rows.length === 1) group.append(account(request));
    if (!open && group.rows.length === 2) group.lastChild.remove();
  }
}

const keyOf = (request) => `${request.at} ${request.tenant}`;
const sum = ({ reused, computed }) => reused + computed;

function updateRow(row, request, longest, open) {
  const [fold, at, tenant, bar, share, answer, waited, first, whole, why] = row.cells;
  const { cache, timing } = request;
  const tokens = tokensOf(request);
  const all = sum(tokens);
  fold.firstChild.setAttribute("aria-expanded", open);
  fold.firstChild.setAttribute("aria-label", `Account of the request that ended at ${clock(request.at)}`);
  say(at, clock(request.at));
  say(tenant, request.tenant);
  setBar(bar.firstChild, [["reused", tokens.reused / longest], ["computed", tokens.computed / longest]]);
  bar.firstChild.title = `${count(tokens.reused)} reused, ${count(tokens.computed)} computed`;
  say(share, all > 0 ? percent(tokens.reused / all) : "–");
  say(answer, count(cache.generated));
  say(waited, span(waits(cache)));
  say(first, cache.generated > 0 ? span(timing.first_token) : "–");
  say(whole, span(timing.total));
  say(why, request.outcome === "complete" ? reason(cache.why) : request.outcome);
}

const waits = ({ waits }) => waits.queue + waits.promise + waits.load;

function reason(why) {
  const words = REASONS[why.kind] ?? why.kind;
  return why.at > 0 && why.kind !== "all_reused" ? `${words} at ${count(why.at)}` : words;
}

/** All of what is known of a request. */
function account({ cache, outcome }) {
  const { sources, waits, why } = cache;
  const list = (numbers, format) =>
    Object.entries(numbers).filter(([, value]) => value > 0).map(([name, value]) => `${name} ${format(value)}`).join(", ") || "none";
  const lines = [
    ["Outcome", outcome],
    ["Prompt tokens", list(sources, count)],
    ["Waits", list(waits, span)],
    ["Computed again", cache.recomputed > 0 ? `${count(cache.recomputed)} tokens, ${count(cache.preemptions)} preemptions` : null],
    ["Load failure", cache.load_failure],
    ["Reuse ended", why.sentence ?? reason(why)],
    ["Around it", why.sentence && why.at > 0 ? around(why) : null],
  ];
  const told = lines.filter(([, text]) => text !== null).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
  return element("tr", { class: "account" }, element("td", { colspan: 10 }, element("dl", {}, ...told)));
}

/** The prompt's text on both sides of the point where reuse ended. */
export function around(why) {
  return element("span", { class: "around" }, element("span", { class: "kept" }, why.before.trimStart()), element("span", { class: "new" }, why.after));
}
