// Builds the page from elements and text nodes only. Session content is never parsed as HTML.

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key === "dataset") Object.assign(element.dataset, value);
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : text(String(child)));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Characters that change the writing direction, are invisible, or control a terminal are shown as code points.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;

export function text(words) {
  if (words.search(HIDDEN) < 0) return document.createTextNode(words);
  const parts = document.createDocumentFragment();
  let from = 0;
  for (const match of words.matchAll(HIDDEN)) {
    parts.append(words.slice(from, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const mark = document.createElement("span");
    mark.className = "hidden-char";
    mark.textContent = `U+${code}`;
    parts.append(mark);
    from = match.index + match[0].length;
  }
  parts.append(words.slice(from));
  return parts;
}

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  pin: "M6 1.5h4l-.6 4.2 2.6 2.3v1.5H4V8l2.6-2.3L6 1.5zM8 9.5v5",
  fork: "M4.5 3v4a3 3 0 0 0 3 3h1a3 3 0 0 1 3 3M4.5 3v10M3 3h3M3 13h3M10 13h3",
  live: "M8 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7z",
  warn: "M8 2 1.5 13.5h13L8 2zM8 6.5v3.5M8 12v.1",
  lock: "M4 7h8v6.5H4zM5.5 7V5a2.5 2.5 0 0 1 5 0v2",
  check: "m3.5 8.5 3 3 6-7",
  cross: "m4 4 8 8M12 4l-8 8",
  dots: "M4 8h.1M8 8h.1M12 8h.1",
  back: "M8 3 3 8l5 5M3 8h10",
  rewind: "M3 8a5 5 0 1 0 1.6-3.7M3 3v3h3",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  chart: "M2.5 13.5h11M4.5 11V7M8 11V3M11.5 11V5.5",
  bin: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 9h6l.5-9",
  list: "M3 4h10M3 8h10M3 12h10",
  compare: "M5 2.5v11M11 2.5v11M2.5 5 5 2.5 7.5 5M8.5 11l2.5 2.5 2.5-2.5",
};

export function icon(name, label) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `icon icon-${name}`);
  if (label) { svg.setAttribute("role", "img"); svg.setAttribute("aria-label", label); }
  else svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  for (const child of children.flat()) element.append(child);
  return element;
}

const UNITS = [[60, "s"], [60, "min"], [24, "h"], [7, "d"], [52, "w"], [Infinity, "y"]];

export function ago(moment, now = Date.now()) {
  if (!(Date.parse(moment) > 0)) return ""; // unknown
  let number = Math.max(0, Math.floor((now - Date.parse(moment)) / 1000));
  for (const [step, unit] of UNITS) {
    if (number < step) return number === 0 && unit === "s" ? "now" : `${number} ${unit}`;
    number = Math.floor(number / step);
  }
  return "";
}

// The display name of a session: its title, or the beginning of its first prompt.
export const nameOf = (session) => session.title || session.opening || (session.state && session.state !== "ok" ? session.session_id : "(untitled)");

// Numbers and times without Intl, because its first use takes longer than everything else on the page.
export const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
const two = (number) => String(number).padStart(2, "0");

export function clock(moment) {
  const at = new Date(moment);
  if (!moment || Number.isNaN(at.getTime())) return "";
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const several = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
export const money = (cost, currency) => cost === null || cost === undefined ? "" : currency && currency !== "USD" ? `${cost.toFixed(2)} ${currency}` : `$${cost.toFixed(2)}`;

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  while (value >= 999.5 && units.length > 1) { value /= 1024; units.shift(); }
  return `${value.toFixed(units[0] !== "B" && value < 9.95 ? 1 : 0)} ${units[0]}`;
}

export function toast(words, action) {
  const box = h("div", {class: "toast"}, h("span", {}, words));
  const close = () => box.remove();
  if (action) box.append(h("button", {onclick: async () => { close(); await action.run(); }}, action.label));
  box.append(h("button", {class: "quiet", "aria-label": "Close", onclick: close}, icon("cross")));
  document.getElementById("toasts").append(box);
  setTimeout(close, action ? 20000 : 6000);
}

export async function copy(words) {
  try { await navigator.clipboard.writeText(words); toast("Copied."); }
  catch { toast(`Copy this yourself: ${words}`); }
}
