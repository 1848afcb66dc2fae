// The API client. The token comes from the address and is kept in this origin's storage: this host and port only.

const KEY = "asnap-token";

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export class Failure extends Error {
  constructor(status, body) {
    super(body.message || `the server answered ${status}`);
    Object.assign(this, {status, code: body.code, hint: body.hint, next: body.next});
  }
}

export const named = (id) => encodeURIComponent(encodeURIComponent(id));
const headers = () => ({authorization: `Bearer ${localStorage.getItem(KEY) || ""}`});

async function answered(path, options = {}) {
  let response;
  try {
    response = await fetch(`/api/v1/${path}`, {...options, headers: {...headers(), ...options.headers}, cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, {code: "gone", message: "asnap ui does not answer: it was ended", next: "asnap ui"});
  }
  if (response.ok) return response;
  let body = {};
  try { body = await response.json(); } catch { /* not JSON: only the status is known */ }
  throw new Failure(response.status, body);
}

export async function get(path, query = {}, signal) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") asked.append(name, each);
    }
  }
  const tail = asked.toString();
  const whole = tail ? `${path}?${tail}` : path;
  const begun = early.get(whole);
  early.delete(whole);
  return begun ?? (await answered(whole, {signal})).json();
}

// The first requests of the page are sent while its other modules are still loading.
const early = new Map();

export const SESSIONS = {limit: 2000};
export const PAGE = 50;
export const pageOf = (number) => Math.floor((number - 1) / PAGE) * PAGE + 1;

function begin() {
  const asked = new URL(location.href);
  const first = ["about", `sessions?limit=${SESSIONS.limit}`]; // in the order in which they are shown
  if (asked.pathname.startsWith("/s/")) {
    const at = Number(asked.searchParams.get("at")), number = Number(asked.searchParams.get("m")) || 1;
    first.unshift(`sessions/${asked.pathname.slice(3)}/messages?${at ? `at=${at}&` : ""}from=${pageOf(number)}&limit=${PAGE}`);
  }
  for (const path of first) {
    const answer = answered(path).then((response) => response.json());
    answer.catch(() => {}); // reported by the caller of `get`
    early.set(path, answer);
  }
}

export async function send(method, path, body = {}) {
  const options = {method, body: JSON.stringify(body), headers: {"content-type": "application/json"}};
  return (await answered(path, options)).json();
}

export async function download(path, name) {
  const blob = await (await answered(path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Calls `heard` with each event; reconnects when the connection is lost.
export async function listen(heard) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    try {
      const reader = (await answered("events")).body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (pause = 500; ;) {
        const {done, value} = await reader.read();
        if (done) break;
        const lines = (rest + decoder.decode(value, {stream: true})).split("\n");
        rest = lines.pop();
        for (const line of lines) heard(JSON.parse(line));
      }
    } catch (error) {
      if (error.status === 401) return;
    }
    heard({type: "away"});
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

takeToken();
begin();
