// One session: its header, its timeline, its conversation.

import {get, named, send} from "./api.js";
import {ago, clock, copy, count, fill, h, icon, money, nameOf, several, size, toast} from "./dom.js";
import {app, failed, go} from "./app.js";
import {address} from "./list.js";
import {Transcript} from "./transcript.js";
import {ask, confirmForget, exportDialog, undoToast} from "./dialogs.js";

const GRADES = {
  "native-load": "The agent loads it itself; what it shows is compared with the record.",
  "native-resume": "The agent resumes it itself.",
  context: "The agent starts a new session and is told the conversation.",
};

// What is wrong with a session, and what to do about it.
const STATES = {
  damaged: ["bad", "Damaged", "", " says what is lost."],
  encrypted: ["warn", "Locked", "No key that asnap ui has opens it. ", " says which keys the store knows; start asnap ui again with the right one."],
  too_new: ["warn", "Too new", "A newer release wrote it; this one does not touch it. ", " brings you one that reads it."],
};

// A command as the user has to type it: with --store if the store is not the default.
const inStore = (command) => command?.startsWith("asnap ") ? command + app.about.option : command;

let scrubbing = false; // whether the slider had the focus when another snapshot was requested

export class SessionView {
  constructor(main, id, at) {
    Object.assign(this, {main, id, at});
    this.headbox = h("header", {class: "session"});
    this.scroller = h("div", {class: "scroller", tabindex: "0", role: "region", "aria-label": "Conversation"});
    this.failed = failed;
    this.shown = new Promise((resolve) => { this.conversation = resolve; });
  }

  shows(at) { return this.at === at; }
  close() { this.closed = true; this.conversation(); }

  // Shows what the list knows about the session until its details are loaded.
  sketch() {
    const session = app.sessions.find(this.id);
    if (!session || this.closed) return;
    this.info = {about: null, ...this.info, session};
    if (!this.headbox.contains(document.activeElement)) this.draw();
  }

  async load() {
    const path = `sessions/${named(this.id)}`;
    const [info, history] = await Promise.all([get(path, {at: this.at}), get(`${path}/history`).then((past) => past.history, () => [])]);
    Object.assign(this, {info, history});
  }

  open(number) { this.ready = this.begin(number); return this.ready; }

  async begin(number) {
    this.transcript = new Transcript(this.scroller, {id: this.id, at: this.at, failed, onvisible: (seen) => this.seen(seen), onfork: app.about.read_only ? null : (message) => this.fork(message)});
    this.transcript.onlink = (message) => go(address(this.id, {...(this.at ? {at: this.at} : {}), m: message}));
    fill(this.main, this.headbox, this.scroller);
    this.history = [];
    this.sketch();
    const wrong = await this.transcript.open(number).catch((error) => error); // load the conversation first
    this.conversation();
    if (this.closed) return;
    await this.load();
    if (this.closed) return;
    this.known0 = this.known;
    this.fresh = this.known0 && !this.at ? this.transcript.total - this.known0 : 0;
    this.draw();
    if (scrubbing) this.headbox.querySelector("input[type=range]")?.focus();
    scrubbing = false;
    this.seen(1);
    if (wrong instanceof Error) fill(this.scroller, h("div", {class: "empty"}, h("p", {}, "Its conversation cannot be shown."), this.info.session.state === "ok" && h("p", {}, wrong.message), wrong.next && h("p", {}, "Next: ", h("code", {}, wrong.next))));
    document.title = `${nameOf(this.info.session)} \u2013 asnap`;
  }

  // "New since you looked": where the conversation ended when its end was last on the screen.
  get known() { return Number(localStorage.getItem(`seen ${this.id}`)) || 0; }

  seen(number) {
    const last = this.transcript.total;
    if (!this.at && number && this.info && this.scroller.scrollTop + this.scroller.clientHeight > this.scroller.scrollHeight - 60) localStorage.setItem(`seen ${this.id}`, String(last));
  }

  // A key may come before the conversation is there: it counts then.
  async jump(number) { await this.shown; await this.transcript.jump(number || 1); }
  async end() { await this.shown; await this.transcript.jump(this.transcript.total); this.transcript.held = {number: this.transcript.total, end: true}; this.transcript.draw(); }

  async step(by) {
    await this.ready;
    const seqs = this.history.map((row) => row.seq).reverse();
    const at = seqs.indexOf(this.at ?? seqs[seqs.length - 1]);
    const next = seqs[Math.min(seqs.length - 1, Math.max(0, at + by))];
    if (next !== undefined) return this.look(next);
    return null;
  }

  async look(seq) {
    await this.ready;
    return go(address(this.id, seq === this.history[0]?.seq ? {} : {at: seq}));
  }

  async changed(whole, gone) {
    if (this.closed) return;
    if (gone) { fill(this.main, h("div", {class: "empty"}, h("p", {}, "This session is in the trash."), h("p", {}, h("a", {href: "/trash"}, "Open the trash")))); return; }
    try {
      if (whole) this.sketch();
      await Promise.all([whole && this.renew(), !this.at && this.transcript.refresh()]);
    } catch (error) { failed(error); }
  }

  async renew() {
    await this.load();
    if (!this.closed && !this.headbox.contains(document.activeElement)) this.draw();
  }

  // The head -----------------------------------------------------------------------------------------------

  draw() {
    const {session, about} = this.info;
    const readOnly = app.about.read_only, spent = this.at ? about ?? {} : session; // an older snapshot has its own numbers
    const facts = [about?.agent || session.agent, about?.agent_version, about?.model, about?.mode && `mode ${about.mode}`, session.cwd, (session.state === "ok" || about) && several(this.at ? about?.messages ?? 0 : Math.max(session.messages, this.transcript.total), "message"), spent.tokens ? `${count(spent.tokens)} tokens` : "", money(spent.cost, about?.currency)].filter(Boolean).join(" \u00b7 ");
    const title = h("h1", {title: nameOf(session)}, session.pinned && [icon("pin", "pinned"), " "], nameOf(session));
    const rename = !readOnly && session.state === "ok" && h("button", {class: "quiet", onclick: () => this.rename()}, "Rename");
    fill(this.headbox, this.notes(session, about), h("div", {class: "titleline"}, title, rename, h("span", {class: "grow"}), this.tags(session)), h("p", {class: "facts"}, facts), session.parent && h("p", {class: "facts"}, icon("fork"), "forked from ", h("a", {href: address(session.parent)}, session.parent), about?.forked_at !== null && ` at message ${about?.forked_at} \u00b7 `, h("a", {href: `/compare?${new URLSearchParams({a: session.parent, b: this.id})}`}, "compare")), about?.note && h("p", {class: "note"}, about.note), this.buttons(session), about && this.more(about, session), this.timeline());
  }

  notes(session, about) {
    const told = [];
    const state = STATES[session.state];
    if (state) told.push([state[0], `${state[1]}: ${session.problem || ""}. ${state[2]}`, inStore(session.next), state[3]]);
    for (const each of about?.skipped || []) told.push(["bad", `Skipped: ${each}.`]);
    if (session.live) told.push(["live", `Live: process ${session.live.pid} on ${session.live.host} has it, since ${clock(session.live.since)}. Changes made here go through that process.`]);
    if (session.ended_unexpectedly) told.push(["warn", `Its process died${session.last_sign ? ` ${ago(session.last_sign)} ago` : ""}. What was said last is shown from its log; `, inStore("asnap recover"), " makes it a snapshot."]);
    if (this.at) told.push(["past", `This is snapshot ${this.at}, as it was then. `]);
    return told.map(([kind, before, command, after]) => h("p", {class: `banner ${kind}`, role: "status"}, h("span", {}, before, command && h("code", {}, command), after), kind === "past" && h("button", {onclick: () => go(address(this.id))}, "Back to now")));
  }

  tags(session) {
    const readOnly = app.about.read_only;
    return h("span", {class: "chips"}, [...session.tags].map((tag) => h("span", {class: "chip tag"}, tag, !readOnly && h("button", {class: "quiet", "aria-label": `Remove the tag ${tag}`, onclick: () => this.change({remove_tags: [tag]})}, icon("cross")))), session.snapshot_tags.filter((tag) => !session.tags.includes(tag)).map((tag) => h("span", {class: "chip"}, tag)), !readOnly && session.state === "ok" && h("button", {class: "quiet", onclick: async () => { const tag = await ask("Tag this session", "A tag"); if (tag) this.change({add_tags: [tag]}); }}, "+ tag"));
  }

  buttons(session) {
    const write = (label, act, name, extra = "") => app.about.read_only ? null : h("button", {class: extra, onclick: () => Promise.resolve(act()).catch(failed)}, name && icon(name), label);
    if (session.state !== "ok" && !this.info.about) return h("div", {class: "buttons"}, write("Forget", () => confirmForget([this.id]).then((done) => done && go("/")), "bin", "danger"));
    return h("div", {class: "buttons"},
      h("button", {class: "main", onclick: () => this.resume()}, icon("copy"), "Copy resume command"),
      this.fresh > 0 && h("button", {onclick: () => this.transcript.jump(this.known0 + 1).catch(failed)}, `${several(this.fresh, "new message")} since you looked`),
      write("Fork", () => this.fork(), "fork"),
      write(session.pinned ? "Unpin" : "Pin", () => this.change({pinned: !session.pinned}), "pin"),
      write("Note", () => this.note()),
      h("button", {onclick: () => this.compare()}, icon("compare"), "What changed"),
      h("button", {onclick: () => exportDialog(this.id, this.at)}, "Export"),
      session.live && write("Save now", async () => { const done = await send("POST", `sessions/${named(this.id)}/snapshot`); toast(done.problem || "Saved."); }),
      write("Forget", () => confirmForget([this.id]).then((done) => done && go("/")), "bin", "danger"));
  }

  more(about, session) {
    const rows = [];
    const row = (name, ...value) => value.some(Boolean) && rows.push(h("dt", {}, name), h("dd", {}, value));
    row("id", h("code", {}, session.session_id));
    row("restores as", about.expected_grade && [h("strong", {}, about.expected_grade), `: ${GRADES[about.expected_grade] || ""}`]);
    if (about.last_restore) row("last restore", h("strong", {}, about.last_restore.grade), `, ${several(about.last_restore.messages, "message")}`, [...about.last_restore.notices, ...about.last_restore.differences].map((each) => h("div", {}, each)));
    row("context", `${about.context_is_estimate ? "about " : ""}${count(about.context_tokens)}${about.context_size ? ` of ${count(about.context_size)}` : ""} tokens`);
    row("command", about.agent_command.length > 0 && h("code", {}, about.agent_command.join(" ")));
    row("servers", about.mcp_servers.join(", "));
    row("task", about.task);
    row("repair", about.notices.join("; "));
    row("not kept", about.withheld.length > 0 && `${about.withheld.join(", ")} (may be secrets)`);
    row("begun", clock(session.created_at));
    row("on disk", `${size(session.size_bytes)}, snapshot ${session.seq} (${session.trigger})`);
    const plan = about.plan.length > 0 && h("div", {class: "plan"}, h("h2", {}, `Plan, ${about.plan_done} of ${about.plan_total} done`), h("ol", {}, about.plan.map((step) => h("li", {class: `step-${step.status}`}, icon(step.status === "completed" ? "check" : "dots", step.status), step.content))));
    const kept = localStorage.getItem("details") === "1";
    const box = h("details", {class: "details", open: kept}, h("summary", {}, "Details", about.expected_grade && h("span", {class: "chip"}, about.expected_grade), about.plan_total > 0 && h("span", {class: "chip"}, `plan ${about.plan_done}/${about.plan_total}`), about.last_restore && h("span", {class: "chip"}, icon("rewind"), `restored: ${about.last_restore.grade}`)), h("div", {class: "columns"}, h("dl", {}, rows), plan));
    box.addEventListener("toggle", () => localStorage.setItem("details", box.open ? "1" : "0"));
    return box;
  }

  timeline() {
    const past = [...this.history].reverse();
    if (past.length < 2) return null;
    const at = Math.max(0, past.findIndex((row) => row.seq === (this.at ?? past[past.length - 1].seq)));
    const most = Math.max(...past.map((row) => row.messages), 1);
    const step = Math.max(1, Math.ceil(past.length / 240));
    const bars = h("div", {class: "bars", "aria-hidden": "true"});
    for (let n = 0; n < past.length; n += step) {
      const row = past[Math.min(n + step - 1, past.length - 1)];
      const bar = h("span", {class: `${n <= at ? "on" : ""} ${past.slice(n, n + step).some((each) => each.tags.length) ? "tagged" : ""} ${row.state !== "ok" ? "bad" : ""}`});
      bar.style.height = `${Math.max(8, Math.round((row.messages / most) * 100))}%`;
      bars.append(bar);
    }
    const words = h("output", {});
    const tell = (n) => { const row = past[n]; fill(words, `snapshot ${row.seq} (${n + 1} of ${past.length}) \u00b7 ${clock(row.saved_at)} \u00b7 ${row.trigger} \u00b7 ${several(row.messages, "message")}${row.state !== "ok" ? ` \u00b7 ${row.state}` : ""}`, row.tags.map((tag) => h("span", {class: "chip"}, tag))); };
    const slider = h("input", {type: "range", min: "0", max: String(past.length - 1), value: String(at), "aria-label": "Snapshot", oninput: () => { tell(Number(slider.value)); [...bars.children].forEach((bar, n) => bar.classList.toggle("on", n * step <= Number(slider.value))); }, onchange: () => {
      clearTimeout(this.timer); // coalesce several key presses
      this.timer = setTimeout(() => { scrubbing = document.activeElement === slider; this.look(past[Number(slider.value)].seq); }, 250);
    }});
    tell(at);
    return h("div", {class: "timeline"}, bars, slider, words);
  }

  // What it does -------------------------------------------------------------------------------------------

  async resume() {
    try { await copy((await get(`sessions/${named(this.id)}/resume`)).command); } catch (error) { failed(error); }
  }

  async change(wish) {
    try {
      const done = await send("PATCH", `sessions/${named(this.id)}`, wish);
      await this.reload();
      if (done.changed) undoToast(done.told, done.operation, () => this.reload());
    } catch (error) { failed(error); }
  }

  async reload() {
    await this.load();
    this.draw();
    await app.sessions.load();
  }

  async rename() {
    const name = await ask("Rename this session", "Its name; leave it empty to remove the name", this.info.session.title || "");
    if (name !== null) await this.change({title: name});
  }

  async note() {
    const words = await ask("A note on this session", "The note; leave it empty to remove it", this.info.about?.note || "", {long: true});
    if (words !== null) await this.change({note: words});
  }

  async fork(messages) {
    try {
      const done = await send("POST", `sessions/${named(this.id)}/fork`, {...(messages ? {messages} : {}), ...(this.at ? {at: this.at} : {})});
      await app.sessions.load();
      await go(address(done.session_id));
      undoToast(done.warning || `Forked ${several(done.messages, "message")}.`, done.operation, () => go(address(done.parent_session_id)));
    } catch (error) { failed(error); }
  }

  compare() {
    const seq = this.at ?? this.history[0]?.seq;
    const before = this.history.map((row) => row.seq).find((each) => each < seq);
    go(`/compare?${new URLSearchParams({a: before ? `${this.id}@${before}` : this.id, b: `${this.id}@${seq}`})}`);
  }
}
