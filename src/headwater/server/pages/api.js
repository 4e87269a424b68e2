// Asking the server. The key lives as long as this tab, in sessionStorage, and goes nowhere else.

const PLACE = "headwater-key";

/** What the server said was wrong, in its own sentence. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let key = "";
let ahead = 0; // of this machine's clock, in seconds
if (taken() === null) key = stored();

/** The server's clock, in seconds since 1970, whatever this machine's says. */
export const serverNow = () => Date.now() / 1000 + ahead;

export const currentKey = () => key;

export function useKey(given) {
  key = given.trim();
  try {
    if (key) sessionStorage.setItem(PLACE, key);
    else sessionStorage.removeItem(PLACE);
  } catch {
    // A browser that stores nothing: the key lasts until the page is loaded again.
  }
}

function stored() {
  try {
    return sessionStorage.getItem(PLACE) ?? "";
  } catch {
    return "";
  }
}

/** A key given as `#key=...`, which no server ever sees; it leaves the address bar at once. */
export function taken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given === null) return null;
  history.replaceState(null, "", location.pathname + location.search);
  useKey(given);
  return key;
}

export async function getJson(path) {
  return (await ask(path)).json();
}

export async function getText(path) {
  return (await ask(path)).text();
}

export async function postJson(path, body) {
  return (await ask(path, posted(body))).json();
}

/** The objects of a stream of events, as they come. Raises Refused; aborting raises AbortError. */
export async function* stream(path, body, signal) {
  const answer = await ask(path, { ...posted(body), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: "));
      const text = data.map((line) => line.slice(6)).join("\n");
      if (text === "" || text === "[DONE]") continue;
      const found = JSON.parse(text);
      if (found.error) throw new Refused(found.error.message, 500);
      yield found;
    }
  }
}

function posted(body) {
  return {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  };
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (/[^\x20-\x7e]/.test(key)) throw new Refused("This key has characters that no key has.", 401);
    throw new Refused("The server does not answer.", 0);
  }
  const date = Date.parse(answer.headers.get("date"));
  if (!Number.isNaN(date)) {
    const found = date / 1000 - Date.now() / 1000; // whole seconds, rounded down
    if (found > ahead || found < ahead - 1.5) ahead = found;
  }
  if (!answer.ok) throw new Refused(await sentence(answer), answer.status);
  return answer;
}

async function sentence(answer) {
  try {
    const body = await answer.json();
    return body.error?.message ?? body.reason ?? `The server answered ${answer.status}.`;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}
