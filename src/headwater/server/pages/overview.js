// How much is reused, where the KV memory is, how long answers take: now and over the last minutes.

import { Chart } from "./chart.js";
import { byId, element, say, setBar, show } from "./dom.js";
import { bytes, count, percent, short, span } from "./format.js";
import { BINS, History, WIDTH } from "./history.js";
import { total } from "./prometheus.js";

const MINUTES = (BINS * WIDTH) / 60;

export class Overview {
  #reuse = new History();
  #pages = new History();
  #counted = null; // the counters at the last look
  #until = 0; // requests that ended before this are in the chart

  constructor() {
    this.reuseChart = new Chart(
      byId("reuse-chart"),
      `Prompt tokens in ${WIDTH} s`,
      [["reused", "reused", "reused"], ["computed", "computed", "computed"]],
      short,
    );
    this.pagesChart = new Chart(
      byId("pages-chart"),
      "Pages of KV memory",
      [["cached", "cached", "reused"], ["private", "private", "private"], ["in_io", "in I/O", "io"], ["free", "free", "free"]],
      short,
    );
  }

  /** Forget everything: somebody else looks now. */
  clear() {
    this.#reuse.clear();
    this.#pages.clear();
    this.#counted = null;
    this.#until = 0;
  }

  /** Show a server's own counters. requests: the last ones, for what was before this page came. */
  showAll(samples, requests, now) {
    const counted = {
      reused: total(samples, "headwater_prompt_tokens_total", (labels) => labels.source !== "computed"),
      computed: total(samples, "headwater_prompt_tokens_total", (labels) => labels.source === "computed"),
    };
    if (this.#counted === null) this.#addRequests(requests);
    else this.#reuse.add(now, since(this.#counted, counted));
    this.#counted = counted;
    const pages = {};
    for (const { labels, value } of samples.get("headwater_kv_pages") ?? []) pages[labels.state] = value;
    const all = Object.values(pages).reduce((sum, each) => sum + each, 0);
    if (all > 0) this.#pages.set(now, pages);
    this.#draw(now, all);
    const page = total(samples, "headwater_kv_page_bytes");
    const unfinished = total(samples, "headwater_requests_unfinished");
    tiles([
      reusedTile("Reused so far", counted),
      this.#latelyTile(now),
      firstTokenTile(requests, now),
      ["Requests", short(total(samples, "headwater_requests_total")), `${count(unfinished)} unfinished`],
      memoryTile(pages, all, page, total(samples, "headwater_kv_evicted_pages_total")),
    ]);
  }

  /** Show what a tenant may know: its own requests. */
  showOwn(requests, now) {
    this.#addRequests(requests);
    this.#draw(now, 0);
    const counted = { reused: 0, computed: 0 };
    for (const request of requests) add(counted, tokensOf(request));
    tiles([
      reusedTile(`Reused in your last ${count(requests.length)}`, counted),
      this.#latelyTile(now),
      firstTokenTile(requests, now),
    ]);
  }

  #addRequests(requests) {
    const until = this.#until;
    for (const request of requests.filter((each) => each.at > until)) {
      this.#reuse.add(request.at, tokensOf(request));
      this.#until = Math.max(this.#until, request.at);
    }
  }

  #draw(now, pages) {
    byId("pages-chart").hidden = pages === 0;
    this.reuseChart.draw(this.#reuse.upTo(now));
    this.pagesChart.draw(this.#pages.upTo(now), pages);
  }

  #latelyTile(now) {
    const counted = { reused: 0, computed: 0 };
    for (const bin of this.#reuse.upTo(now)) if (bin !== null) add(counted, bin);
    return reusedTile(`Reused in ${MINUTES} min`, counted);
  }
}

/** Prompt tokens of a request. */
export function tokensOf({ cache: { sources } }) {
  const { computed, ...reused } = sources;
  return { reused: Object.values(reused).reduce((sum, each) => sum + each, 0), computed };
}

function add(sums, numbers) {
  sums.reused += numbers.reused ?? 0;
  sums.computed += numbers.computed ?? 0;
}

/** What was counted between two looks; a server that was started anew counts from zero. */
function since(before, now) {
  const anew = now.reused < before.reused || now.computed < before.computed;
  return anew ? now : { reused: now.reused - before.reused, computed: now.computed - before.computed };
}

function reusedTile(label, { reused, computed }) {
  const all = reused + computed;
  if (all === 0) return [label, "–", "no prompts"];
  const parts = [["reused", reused / all], ["computed", computed / all]];
  return [label, percent(reused / all), `${short(reused)} of ${short(all)} prompt tokens`, parts];
}

function firstTokenTile(requests, now) {
  const complete = requests.filter((each) => each.outcome === "complete" && each.cache.generated > 0);
  const lately = complete.filter((each) => each.at > now - 60 * MINUTES);
  const times = (lately.length > 0 ? lately : complete).map((each) => each.timing.first_token).sort((a, b) => a - b);
  if (times.length === 0) return ["First token", "–", "no requests yet"];
  const longest = times[Math.ceil(0.95 * times.length) - 1];
  return ["First token", span(times[Math.floor((times.length - 1) / 2)]), `median of ${times.length}; 95 % within ${span(longest)}`];
}

function memoryTile(pages, all, page, evicted) {
  if (all === 0) return ["KV memory", "–", "the engine does not answer"];
  const used = all - (pages.free ?? 0);
  const parts = [["reused", pages.cached / all], ["private", pages.private / all], ["io", (pages.in_io ?? 0) / all]];
  return ["KV memory", percent(used / all), `of ${bytes(all * page)}; ${short(evicted)} pages evicted`, parts];
}

function tiles(wanted) {
  show(
    byId("tiles"),
    wanted.map(([label, value, note, parts], index) => ({ index, label, value, note, parts })),
    ({ index }) => index,
    () => element("div", {}, element("dt"), element("dd", { class: "value" }), element("dd", { class: "quiet" }), element("dd", { class: "bar" })),
    (tile, { label, value, note, parts }) => {
      const [name, number, small, bar] = tile.children;
      say(name, label);
      say(number, value);
      say(small, note);
      bar.hidden = parts === undefined;
      setBar(bar, parts ?? []);
    },
  );
}
