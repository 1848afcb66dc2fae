// A conversation of any length: only messages near the screen are in the page. Unknown heights are estimated;
// visible messages do not move when estimates are replaced by measurements.

import {PAGE, get, named, pageOf} from "./api.js";
import {h, fill, icon, clock, count, copy, several} from "./dom.js";
import {markdown, codeBlock} from "./markdown.js";

const GUESS = 140;
const NEAR = 900;
const MOST = 60;

export class Transcript {
  constructor(scroller, {id, at, onvisible, onfork, failed}) {
    Object.assign(this, {scroller, id, at, onvisible, onfork, failed});
    this.total = 0;
    this.pages = new Map();
    this.heights = [];
    this.rows = new Map();
    this.opened = new Set();
    this.near = NEAR;
    this.box = h("div", {class: "messages", role: "feed", "aria-label": "Conversation"});
    this.top = h("div", {class: "spacer"});
    this.bottom = h("div", {class: "spacer"});
    this.wheel = () => { this.held = null; };
    scroller.addEventListener("scroll", () => { if (!this.moving) requestAnimationFrame(() => this.draw()); });
    for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) scroller.addEventListener(kind, this.wheel, {passive: true});
    this.observer = new ResizeObserver(() => this.measure());
    new ResizeObserver(() => { if (this.held) this.draw(); }).observe(scroller); // the header above it may have grown
  }

  async open(number) {
    const wanted = number || 1;
    await this.load(Math.max(1, pageOf(wanted)));
    fill(this.scroller, this.top, this.box, this.bottom);
    this.held = number ? {number: Math.min(number, this.total), offset: 8} : null;
    this.near = 0; // draw the visible part first, the rest in the next frame
    this.draw();
    this.near = NEAR;
    if (number) this.mark(number);
    requestAnimationFrame(() => setTimeout(() => this.draw()));
  }

  // Called when the session grew; keeps the scroll position, or follows the end.
  async refresh() {
    const atEnd = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 80;
    const before = this.total;
    const shown = [...this.pages.keys()].filter((first) => first + PAGE > this.total);
    for (const first of shown.length ? shown : [pageOf(Math.max(1, this.total))]) this.pages.delete(first);
    await this.load(pageOf(Math.max(1, before)));
    if (this.total > before) await this.load(pageOf(this.total));
    for (const [number, row] of this.rows) if (number >= Math.min(before, this.total)) { this.observer.unobserve(row); row.remove(); this.rows.delete(number); }
    if (atEnd && this.total) this.held = {number: this.total, end: true};
    this.draw();
  }

  async load(first) {
    if (this.pages.has(first)) return this.pages.get(first);
    const loading = get(`sessions/${named(this.id)}/messages`, {at: this.at, from: first, limit: PAGE});
    this.pages.set(first, loading);
    try {
      const page = await loading;
      this.pages.set(first, page.messages);
      this.total = page.total;
      this.saved = page.saved;
      this.heights.length = Math.max(this.heights.length, page.total);
      return page.messages;
    } catch (error) {
      this.pages.delete(first);
      throw error;
    }
  }

  message(number) {
    const page = this.pages.get(pageOf(number));
    if (Array.isArray(page)) return page[(number - 1) % PAGE];
    if (!page) this.load(pageOf(number)).then(() => this.draw(), (error) => this.failed(error));
    return null;
  }

  height(number) { return this.heights[number - 1] || this.guess || GUESS; }
  offset(number) { let sum = 0; for (let n = 1; n < number; n += 1) sum += this.height(n); return sum; }

  at_offset(pixels) {
    let sum = 0;
    for (let n = 1; n <= this.total; n += 1) {
      const next = sum + this.height(n);
      if (next > pixels) return [n, pixels - sum];
      sum = next;
    }
    return [Math.max(1, this.total), 0];
  }

  // Renders the messages near the screen. `held` is a message that keeps its position until the user scrolls.
  draw() {
    if (!this.total) { fill(this.box, h("p", {class: "empty"}, "Nothing was said yet.")); return; }
    const view = this.scroller.clientHeight || 600;
    let top = this.scroller.scrollTop; // computed for a held message, as there may be nothing to scroll yet
    if (this.held?.end) top = Math.max(0, this.offset(this.total + 1) - view);
    else if (this.held) top = Math.max(0, this.offset(this.held.number) - this.held.offset);
    const [first, into] = this.at_offset(top);
    const keep = this.held && !this.held.end ? {number: this.held.number, offset: this.held.offset} : {number: first, offset: -into};
    let start = first;
    for (let room = this.near; start > 1 && room > 0; start -= 1) room -= this.height(start - 1);
    let end = first;
    for (let room = view + this.near; end < this.total && room > 0 && end - start < MOST; end += 1) room -= this.height(end);
    this.show(start, end);
    this.measureRows();
    this.top.style.height = `${this.offset(start)}px`;
    this.bottom.style.height = `${this.offset(this.total + 1) - this.offset(end + 1)}px`;
    if (this.held?.end) this.scrollTo(this.scroller.scrollHeight);
    else {
      const wanted = this.offset(keep.number) - keep.offset;
      if (Math.abs(wanted - this.scroller.scrollTop) > 1) this.scrollTo(wanted);
    }
    this.onvisible?.(this.at_offset(this.scroller.scrollTop + 10)[0]);
  }

  scrollTo(pixels) {
    this.moving = true;
    this.scroller.scrollTop = pixels;
    requestAnimationFrame(() => { this.moving = false; });
  }

  show(start, end) {
    for (const [number, row] of this.rows) {
      if (number < start || number > end) { this.observer.unobserve(row); row.remove(); this.rows.delete(number); }
    }
    let after = null;
    for (let number = start; number <= end; number += 1) {
      let row = this.rows.get(number);
      const message = this.message(number);
      if (row && row.classList.contains("loading") && message) { this.observer.unobserve(row); row.remove(); row = null; }
      if (!row) {
        row = message ? this.row(message) : h("article", {class: "message loading", "aria-busy": "true"}, `#${number}`);
        if (!message) row.style.height = `${this.height(number) - 18}px`;
        this.rows.set(number, row);
        if (after) after.after(row); else this.box.prepend(row);
        this.observer.observe(row);
      }
      after = row;
    }
  }

  measureRows() {
    let sum = 0, known = 0;
    for (const [number, row] of this.rows) {
      if (row.classList.contains("loading")) continue;
      const height = row.getBoundingClientRect().height + 18;
      this.heights[number - 1] = height;
      sum += height; known += 1;
    }
    if (known > 5 && !this.guess) this.guess = sum / known;
  }

  measure() {
    let changed = false;
    for (const [number, row] of this.rows) {
      if (!row.classList.contains("loading") && Math.abs((this.heights[number - 1] || 0) - row.getBoundingClientRect().height - 18) > 1) changed = true;
    }
    if (changed) this.draw();
  }

  async jump(number) {
    const wanted = Math.min(Math.max(1, number), this.total);
    await this.load(pageOf(wanted));
    this.held = {number: wanted, offset: 8};
    this.draw();
    this.mark(wanted);
  }

  mark(number) {
    this.marked = number;
    for (const [each, row] of this.rows) row.classList.toggle("marked", each === number);
    this.rows.get(number)?.focus({preventScroll: true});
  }

  current() { return this.marked && this.rows.has(this.marked) ? this.marked : this.at_offset(this.scroller.scrollTop + 10)[0]; }

  // The next or previous message of the user.
  async prompt(step) {
    for (let number = this.current() + step; number >= 1 && number <= this.total; number += step) {
      const page = await this.load(pageOf(number));
      if (page[(number - 1) % PAGE]?.role === "user") return this.jump(number);
    }
    return this.jump(step > 0 ? this.total : 1);
  }

  row(message) {
    const link = h("a", {class: "number", href: `?${new URLSearchParams({...(this.at ? {at: this.at} : {}), m: message.number})}`, onclick: (event) => { event.preventDefault(); this.onlink?.(message.number); }}, `#${count(message.number)}`);
    const fork = this.onfork && h("button", {class: "quiet fork-here", onclick: () => this.onfork(message.number)}, icon("fork"), "Fork here");
    const head = h("header", {}, h("strong", {}, message.role), h("time", {datetime: message.at || ""}, clock(message.at)), message.spooled && h("span", {class: "chip live"}, "not in a snapshot yet"), h("span", {class: "grow"}), fork, link);
    const row = h("article", {class: `message role-${message.role.replace(/\W/g, "")}`, tabindex: "-1", "aria-posinset": String(message.number), "aria-setsize": String(this.total), "aria-label": `${message.role}, message ${message.number}`, dataset: {number: message.number}}, head, message.content.map((each, place) => this.piece(message, each, place)));
    if (message.number === this.marked) row.classList.add("marked");
    if (message.whole && message.content.some((each) => each.length)) row.append(h("p", {class: "other"}, "It is longer than a page can show; asnap show has all of it."));
    else if (message.content.some((each) => each.length)) row.append(h("button", {class: "whole", onclick: () => this.whole(message.number)}, `Show all ${several(Math.max(...message.content.map((each) => each.length || 0)), "character")}`));
    return row;
  }

  async whole(number) {
    try {
      const {messages} = await get(`sessions/${named(this.id)}/messages/${number}`, {at: this.at});
      const page = this.pages.get(pageOf(number));
      messages[0].whole = true;
      page[(number - 1) % PAGE] = messages[0];
      const row = this.rows.get(number);
      this.observer.unobserve(row);
      const fresh = this.row(messages[0]);
      row.replaceWith(fresh);
      this.rows.set(number, fresh);
      this.observer.observe(fresh);
      this.draw();
    } catch (error) { this.failed(error); }
  }

  piece(message, content, place) {
    const key = `${message.number}.${place}`;
    if (content.kind === "text") return h("div", {class: "prose"}, markdown(content.text));
    if (content.kind === "thought") return this.folded(key, "thought", ["Thought"], () => h("div", {class: "prose"}, markdown(content.text)));
    if (content.kind === "tool") return this.tool(key, content);
    if (content.kind === "image" && content.data) return picture(content);
    return h("p", {class: "other"}, `[${content.kind}${content.text ? ` ${content.text}` : ""}]`);
  }

  tool(key, content) {
    const status = {completed: ["check", "done"], failed: ["cross", "failed"]}[content.status] || ["dots", content.status || "not finished"];
    const title = [h("span", {class: `status status-${status[1].replace(/\W/g, "-")}`}, icon(status[0], status[1])), content.tool && h("span", {class: "tool-kind"}, content.tool), h("span", {class: "tool-title"}, content.text)];
    if (content.changes.length) title.push(h("span", {class: "counts"}, changed(content.changes)));
    return this.folded(key, "tool", title, () => [
      content.permission && h("p", {class: "permission"}, icon("lock"), content.permission),
      content.places.length > 0 && h("p", {class: "places"}, content.places.join("  ")),
      content.changes.map(diffOf),
      content.input && [h("p", {class: "label"}, "input"), codeBlock(content.input)],
      content.output && [h("p", {class: "label"}, content.tool === "execute" ? "terminal" : "output"), codeBlock(content.output)],
    ]);
  }

  folded(key, kind, title, inside) {
    const open = this.opened.has(key);
    const summary = h("summary", {}, title);
    const details = h("details", {class: kind, open}, summary);
    if (open) add_to(details, inside());
    details.addEventListener("toggle", () => {
      if (details.open) { this.opened.add(key); if (details.children.length === 1) add_to(details, inside()); }
      else this.opened.delete(key);
      this.measure();
    });
    return details;
  }
}

function add_to(element, inside) {
  element.append(h("div", {class: "inside"}, inside));
}

function picture(content) {
  const image = h("img", {alt: content.text || "a picture from the conversation", src: `data:${content.mime_type};base64,${content.data}`});
  image.addEventListener("error", () => image.replaceWith(h("p", {class: "other"}, `[a broken ${content.mime_type}]`)));
  return image;
}

function changed(changes) {
  let plus = 0, minus = 0;
  for (const change of changes) for (const [mark] of lineDiff(change.before ?? "", change.after)) { plus += mark === "+"; minus += mark === "-"; }
  return [h("ins", {}, `+${plus}`), " ", h("del", {}, `\u2212${minus}`)];
}

export function diffOf(change) {
  const lines = lineDiff(change.before ?? "", change.after);
  const shown = near(lines, 3);
  return h("div", {class: "diff"}, h("p", {class: "path"}, change.path, h("button", {class: "copy quiet", "aria-label": "Copy the path", onclick: () => copy(change.path)}, icon("copy"))), h("pre", {tabindex: "0"}, shown.map(([mark, line]) => h("span", {class: mark === "+" ? "plus" : mark === "-" ? "minus" : mark === "@" ? "skipped" : "same"}, mark === "@" ? `\u22ef ${line}\n` : `${mark} ${line}\n`))));
}

// A line diff: strips the common head and tail, then uses the longest common subsequence if the rest is small.
function lineDiff(before, after) {
  const a = before === "" ? [] : before.replace(/\n$/, "").split("\n"), b = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const midA = a.slice(head, a.length - tail), midB = b.slice(head, b.length - tail);
  return [...a.slice(0, head).map((line) => [" ", line]), ...middle(midA, midB), ...a.slice(a.length - tail).map((line) => [" ", line])];
}

function middle(a, b) {
  if (a.length * b.length > 250000 || !a.length || !b.length) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const best = Array.from({length: a.length + 1}, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const lines = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push([" ", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j >= b.length || best[i + 1][j] >= best[i][j + 1])) { lines.push(["-", a[i]]); i += 1; }
    else { lines.push(["+", b[j]]); j += 1; }
  }
  return lines;
}

function near(lines, around) {
  const keep = new Set();
  lines.forEach(([mark], n) => { if (mark !== " ") for (let k = n - around; k <= n + around; k += 1) keep.add(k); });
  const shown = [];
  let skipped = 0;
  lines.forEach((line, n) => {
    if (keep.has(n)) { if (skipped) shown.push(["@", `${several(skipped, "line")} the same`]); skipped = 0; shown.push(line); }
    else skipped += 1;
  });
  if (skipped && shown.length) shown.push(["@", `${several(skipped, "line")} the same`]);
  return shown.slice(0, 2000);
}
