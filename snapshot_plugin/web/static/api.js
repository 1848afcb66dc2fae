// The API, with the token that came in the address. It is kept in the storage of this origin: this host and this port alone.

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
  try { body = await response.json(); } catch { /* no JSON: the status has to do */ }
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

// What the page asks first is asked for while its other modules are still on their way.
const early = new Map();

export const SESSIONS = {limit: 2000};
export const PAGE = 100;
export const pageOf = (number) => Math.floor((number - 1) / PAGE) * PAGE + 1;

function begin() {
  const asked = new URL(location.href);
  const first = ["about", `sessions?limit=${SESSIONS.limit}`];
  if (asked.pathname.startsWith("/s/")) {
    const at = Number(asked.searchParams.get("at")), number = Number(asked.searchParams.get("m")) || 1;
    first.splice(1, 0, `sessions/${asked.pathname.slice(3)}/messages?${at ? `at=${at}&` : ""}from=${pageOf(number)}&limit=${PAGE}`);
  }
  for (const path of first) {
    const answer = answered(path).then((response) => response.json());
    answer.catch(() => {}); // told where it is taken
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

// Calls `heard` with each event; tries again when the server was away.
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
