// The sidebar list: filters, search, states; only the rows that the screen needs are rendered.

import {SESSIONS, get, named, send} from "./api.js";
import {ago, clock, count, fill, h, icon, nameOf, several} from "./dom.js";
import {app, failed, go} from "./app.js";
import {confirmForget} from "./dialogs.js";

const SHOWN = 40;

export const address = (id, query = {}) => {
  const asked = new URLSearchParams(query).toString();
  return `/s/${named(id)}${asked ? `?${asked}` : ""}`;
};

export class Sessions {
  constructor(side) {
    this.rows = [];
    this.drawn = new Map();
    this.shown = SHOWN;
    this.chosen = new Set();
    this.search = h("input", {type: "search", placeholder: "Search everything", "aria-label": "Search all sessions", autocomplete: "off", spellcheck: "false", oninput: () => this.typed(), onkeydown: (event) => this.key(event)});
    this.selects = Object.fromEntries(["agent", "project", "tag"].map((name) => [name, h("select", {"aria-label": `Filter by ${name}`, onchange: () => this.draw()})]));
    this.state = h("select", {"aria-label": "Filter by state", onchange: () => this.draw()}, [["", "any state"], ["live", "live"], ["pinned", "pinned"], ["fork", "forks"], ["trouble", "with a problem"]].map(([value, label]) => h("option", {value}, label)));
    this.info = h("p", {class: "info"});
    this.notice = h("p", {class: "away", role: "alert", hidden: true});
    this.bulk = h("div", {class: "bulk", hidden: true});
    this.list = h("ul", {class: "rows"});
    this.list.addEventListener("scroll", () => { if (this.list.scrollTop + this.list.clientHeight > this.list.scrollHeight - 300 && this.shown < this.visible.length) { this.shown += SHOWN; this.paint(); } });
    this.top = h("nav", {class: "top", "aria-label": "Pages"});
    fill(side, this.top, h("div", {class: "find"}, this.search, h("kbd", {"aria-hidden": "true"}, "/")), h("div", {class: "filters"}, Object.values(this.selects), this.state), this.notice, this.bulk, this.info, this.list);
    this.head();
  }

  head() {
    const about = app?.about;
    fill(this.top, h("a", {href: "/", class: "brand", "aria-label": "asnap, start"}, "asnap"), about?.read_only && h("span", {class: "chip"}, "read-only"), about?.encrypted && h("span", {class: "chip", title: "The store is encrypted"}, icon("lock", "encrypted store")), h("span", {class: "grow"}), h("a", {href: "/stats"}, icon("chart"), "Stats"), h("a", {href: "/trash"}, icon("bin"), "Trash"));
  }

  async load() {
    const found = await get("sessions", SESSIONS);
    this.rows = found.sessions;
    this.total = found.total;
    this.update();
  }

  // Handles a change in the store: the event has the new rows, unless very many changed.
  heard(event) {
    if (this.total === undefined) return; // the list is still loading
    if (event.type === "changed" && !event.rows) { this.load().catch(failed); return; }
    const fresh = new Map((event.rows || []).map((row) => [row.session_id, row])), named = new Set(event.sessions);
    const others = this.rows.filter((row) => !named.has(row.session_id));
    this.total += others.length + fresh.size - this.rows.length;
    this.rows = [...fresh.values(), ...others].sort((one, other) => (one.seq > 0) - (other.seq > 0) || Date.parse(other.changed_at) - Date.parse(one.changed_at));
    this.update();
  }

  find(id) { return this.rows.find((row) => row.session_id === id); }

  update() {
    for (const [name, value] of [["agent", (row) => [row.agent]], ["project", (row) => [row.cwd]], ["tag", (row) => [...row.tags, ...row.snapshot_tags]]]) this.options(name, value);
    this.draw();
  }

  options(name, value) {
    const select = this.selects[name], was = select.value;
    const known = [...new Set(this.rows.flatMap(value).filter(Boolean))].sort();
    fill(select, h("option", {value: ""}, `any ${name}`), known.map((each) => h("option", {value: each, title: each}, name === "project" ? each.split("/").pop() || each : each)));
    if (known.includes(was)) select.value = was;
  }

  get visible() {
    const {agent, project, tag} = Object.fromEntries(Object.entries(this.selects).map(([name, select]) => [name, select.value]));
    const fits = {live: (row) => row.live, pinned: (row) => row.pinned, fork: (row) => row.parent, trouble: (row) => row.state !== "ok" || row.ended_unexpectedly}[this.state.value] || (() => true);
    return this.rows.filter((row) => (!agent || row.agent === agent) && (!project || row.cwd === project) && (!tag || row.tags.includes(tag) || row.snapshot_tags.includes(tag)) && fits(row));
  }

  draw() {
    if (this.found) return;
    const rows = this.visible;
    this.info.textContent = rows.length === this.total ? several(rows.length, "session") : `${count(rows.length)} of ${several(this.total, "session")}`;
    this.paint();
  }

  paint() {
    const rows = this.visible;
    if (rows.length === 0) {
      fill(this.list, this.rows.length ? h("li", {class: "empty"}, "No session fits these filters.") : h("li", {class: "empty"}, "No sessions yet. Begin with ", h("code", {}, "asnap run -- your-agent"), " or ", h("code", {}, "asnap demo"), "."));
      return;
    }
    this.shown = Math.max(this.shown, rows.findIndex((row) => row.session_id === this.current) + 1);
    const items = rows.slice(0, this.shown).map((row) => this.item(row));
    items.forEach((item, n) => { if (this.list.children[n] !== item) this.list.insertBefore(item, this.list.children[n] ?? null); });
    while (this.list.children.length > items.length) this.list.lastChild.remove();
    this.mark(this.current, location.pathname);
  }

  // Reuses the element that is already in the page, unless the session changed.
  item(row) {
    const now = JSON.stringify(row);
    const drawn = this.drawn.get(row.session_id);
    const item = drawn?.was === now ? drawn.item : this.row(row);
    this.drawn.set(row.session_id, {was: now, item});
    item.querySelector("time").textContent = ago(row.changed_at);
    const box = item.querySelector(".choose");
    if (box) box.checked = this.chosen.has(row.session_id);
    return item;
  }

  row(row) {
    const marks = [];
    const state = {damaged: ["bad", "warn", "damaged"], encrypted: ["warn", "lock", "no key"], too_new: ["warn", "warn", "too new"]}[row.state];
    if (state) marks.push(h("span", {class: `chip ${state[0]}`}, icon(state[1]), state[2]));
    if (row.live) marks.push(h("span", {class: "chip live"}, icon("live"), "live"));
    if (row.ended_unexpectedly) marks.push(h("span", {class: "chip warn"}, icon("warn"), "recoverable"));
    if (row.restored && !row.recovered) marks.push(h("span", {class: "chip", title: `Restored in its agent as ${row.restored}`}, icon("rewind"), "restored"));
    if (row.recovered) marks.push(h("span", {class: "chip"}, icon("rewind"), "recovered"));
    const about = [row.agent, row.cwd?.split("/").pop(), (row.messages > 0 || row.state === "ok") && several(row.messages, "message")].filter(Boolean).join(" \u00b7 ");
    const box = !app?.about?.read_only && h("input", {type: "checkbox", class: "choose", "aria-label": `Choose ${nameOf(row)}`, onchange: (event) => { this.chosen[event.target.checked ? "add" : "delete"](row.session_id); this.bulkBar(); }});
    return h("li", {class: row.state === "ok" ? "" : "bad"}, box, h("a", {href: address(row.session_id), dataset: {id: row.session_id}}, h("span", {class: "line"}, h("span", {class: "title"}, row.pinned && icon("pin", "pinned"), row.parent && icon("fork", "fork"), nameOf(row)), h("time", {datetime: row.changed_at, title: clock(row.changed_at)})), h("span", {class: "line"}, h("span", {class: "about"}, about)), (marks.length || row.tags.length) ? h("span", {class: "line chips"}, marks, row.tags.map((tag) => h("span", {class: "chip tag"}, tag))) : null));
  }

  bulkBar() {
    this.bulk.hidden = this.chosen.size === 0;
    const again = async (work) => { try { for (const id of this.chosen) await work(id); this.chosen.clear(); this.bulkBar(); await this.load(); } catch (error) { failed(error); } };
    fill(this.bulk, h("span", {}, `${this.chosen.size} chosen`), this.chosen.size === 2 && h("button", {onclick: () => { const [a, b] = this.chosen; go(`/compare?${new URLSearchParams({a, b})}`); }}, "Compare"), h("button", {onclick: () => again((id) => send("PATCH", `sessions/${named(id)}`, {pinned: true}))}, "Pin"), h("button", {class: "danger", onclick: () => confirmForget([...this.chosen]).then((done) => { if (done) { this.chosen.clear(); this.bulkBar(); this.load(); } }, failed)}, "Forget"), h("button", {class: "quiet", "aria-label": "Choose none", onclick: () => { this.chosen.clear(); this.bulkBar(); this.paint(); }}, icon("cross")));
  }

  link(id) { return [...this.list.querySelectorAll("a[data-id]")].find((each) => each.dataset.id === id); }

  mark(id, path) {
    const another = this.current !== id;
    this.current = id;
    for (const link of this.list.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
    const link = id && !this.found ? this.link(id) : null;
    link?.setAttribute("aria-current", "page");
    if (another) link?.scrollIntoView({block: "nearest"});
    for (const link of this.top.querySelectorAll("a")) link.pathname === path && path !== "/" ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }

  move(step) {
    const links = [...this.list.querySelectorAll("a[href]")];
    const at = links.indexOf(document.activeElement);
    const from = at >= 0 ? at : links.findIndex((link) => link.hasAttribute("aria-current"));
    links[Math.min(links.length - 1, Math.max(0, from + step))]?.focus();
  }

  focus() {
    if (!this.search.offsetParent) go("/"); // a narrow screen shows either the list or a session
    this.search.focus();
    this.search.select();
  }

  say(words) { this.notice.hidden = !words; this.notice.textContent = words; }

  clear() {
    this.search.value = "";
    this.found = null;
    this.asking?.abort();
    this.draw();
  }

  key(event) {
    if (event.key === "Enter") this.list.querySelector("a")?.click();
    if (event.key === "ArrowDown") { event.preventDefault(); this.move(1); }
  }

  typed() {
    clearTimeout(this.timer);
    if (!this.search.value.trim()) { this.clear(); return; }
    this.timer = setTimeout(() => this.ask(), 150);
  }

  async ask() {
    this.asking?.abort();
    this.asking = new AbortController();
    this.info.textContent = "searching\u2026";
    try {
      const found = await get("search", {q: this.search.value, agent: this.selects.agent.value, project: this.selects.project.value, tag: this.selects.tag.value}, this.asking.signal);
      this.found = found;
      const partly = found.unindexed ? ` \u00b7 ${several(found.unindexed, "session")} not indexed yet` : "";
      this.info.textContent = `${several(found.total_hits, "hit")} in ${several(found.total_sessions, "session")}${partly}`;
      if (found.unindexed) this.timer = setTimeout(() => this.search.value.trim() && this.ask(), 1500);
      fill(this.list, found.sessions.length || found.unindexed ? found.sessions.map((session) => this.hits(session, found)) : h("li", {class: "empty"}, "Nothing found."));
      this.list.scrollTop = 0;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.info.textContent = error.message;
    }
  }

  hits(session, found) {
    const hits = found.hits.filter((hit) => hit.session_id === session.session_id && hit.snapshot === session.snapshot);
    return h("li", {class: "found"}, h("span", {class: "line"}, h("span", {class: "title"}, session.title || "(untitled)"), h("time", {datetime: session.changed_at}, ago(session.changed_at))), hits.map((hit) => h("a", {class: "hit", href: address(hit.session_id, {...(hit.snapshot ? {at: hit.snapshot} : {}), ...(hit.message ? {m: hit.message} : {})})}, h("span", {class: "about"}, hit.message ? `#${hit.message} ${hit.role}` : "session"), h("span", {class: "snippet"}, marked(hit)))), session.hits > hits.length && h("span", {class: "about"}, `${session.hits - hits.length} more`));
  }
}

function marked(hit) {
  const parts = [];
  let from = 0;
  for (const [start, end] of hit.matches) { parts.push(hit.snippet.slice(from, start), h("mark", {}, hit.snippet.slice(start, end))); from = end; }
  return [...parts, hit.snippet.slice(from)];
}
