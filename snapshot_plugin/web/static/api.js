// The API, with the token that came in the address. It is kept in the storage of this origin: this host and this port alone.

const KEY = "asnap-token";

export function takeToken() {
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
  return (await answered(tail ? `${path}?${tail}` : path, {signal})).json();
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
