// Who looks, and what is asked for them every two seconds.

import { currentKey, getJson, getText, serverNow, taken, useKey } from "./api.js";
import { Chat } from "./chat.js";
import { byId, say } from "./dom.js";
import { count } from "./format.js";
import { Overview } from "./overview.js";
import { parse } from "./prometheus.js";
import { Requests } from "./requests.js";
import { Tree, showPins } from "./tree.js";

const EVERY = 2000; // milliseconds
const NODES = 200;

const overview = new Overview();
const tree = new Tree();
const requests = new Requests();
const chat = new Chat(() => look());

let caller = null; // who the server takes this page for
let looking = null; // the look that is under way
let paused = false;

/** Ask once and show it all. What fails says why in its own place. */
function look() {
  looking ??= lookNow().finally(() => {
    looking = null;
  });
  return looking;
}

async function lookNow() {
  try {
    const asked = currentKey();
    if (caller === null) {
      caller = await getJson("v1/caller");
      if (caller.tenant !== null) showServer(await getJson("v1/models"));
    }
    showCaller();
    showState(await readiness());
    if (caller.tenant !== null) {
      const found = await everything();
      if (asked !== currentKey()) return; // somebody else looks now
      showAll(found);
    }
    notice(whatIsWrong(asked));
  } catch (error) {
    caller = null;
    if (error.status === 0) showState("unreachable");
    notice(error.message);
  }
}

/** All that this caller may know. */
async function everything() {
  const [listed, metrics, nodes, pins] = await Promise.all([
    getJson(caller.admin ? "v1/admin/requests" : "v1/cache/requests"),
    caller.admin || caller.open ? getText("metrics") : null,
    caller.admin ? getJson(`v1/admin/tree?limit=${NODES}&text=${byId("show-text").checked}`) : null,
    caller.admin ? null : getJson("v1/cache/pin"),
  ]);
  return { listed, metrics, nodes, pins };
}

function showAll({ listed, metrics, nodes, pins }) {
  const now = serverNow();
  if (metrics === null) overview.showOwn(listed.requests, now);
  else overview.showAll(parse(metrics), listed.requests, now);
  requests.show(listed.requests, caller.admin);
  if (nodes !== null) tree.show(nodes.nodes);
  else showPins(pins.pins, whyNoTree());
}

function whyNoTree() {
  if (caller.has_admin) return "The whole tree is shown to an admin's key, which this is not.";
  return "The whole tree is shown to an admin's key; this server has no tenant with admin = true.";
}

async function readiness() {
  try {
    return (await getJson("readyz")).status;
  } catch (error) {
    return error.message;
  }
}

function showState(state) {
  byId("state").className = `pill ${state === "ready" ? "good" : "bad"}`;
  say(byId("state"), state);
}

function showServer({ data: [model] }) {
  say(byId("model"), `${model.id}, context ${count(model.max_model_len)} tokens`);
  document.title = `${model.id} – Headwater`;
}

function showCaller() {
  byId("main").hidden = caller.tenant === null;
  byId("text-choice").hidden = !caller.admin;
  say(byId("who"), caller.tenant === null ? "" : `${caller.tenant}${caller.admin ? ", admin" : ""}`);
}

function whatIsWrong(key) {
  if (caller.tenant !== null) return "";
  if (key === "") return "This server answers to an API key. Enter yours above.";
  return "This API key is unknown. Enter another one above.";
}

function notice(text) {
  byId("notice").hidden = text === "";
  say(byId("notice"), text);
}

async function begin() {
  caller = null;
  overview.clear();
  chat.clear();
  byId("key").value = currentKey();
  await looking; // with the key that was
  await look();
}

function listen() {
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(byId("key").value);
    begin();
  });
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", paused);
  });
  byId("show-text").addEventListener("change", look);
  addEventListener("hashchange", () => {
    if (taken() !== null) begin();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) look();
  });
}

async function watch() {
  while (true) {
    await new Promise((done) => setTimeout(done, EVERY));
    if (!paused && !document.hidden) await look();
  }
}

listen();
await begin();
await watch();
