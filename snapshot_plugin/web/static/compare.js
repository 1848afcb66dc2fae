// Two sessions or snapshots side by side: what was removed, what was added, what is common.

import {get} from "./api.js";
import {count, fill, h, icon, money, nameOf, several} from "./dom.js";
import {app, go, problem} from "./app.js";
import {address} from "./list.js";
import {markdown} from "./markdown.js";

const MOST = 200;

export async function showCompare(main, a, b) {
  document.title = "Compare \u2013 asnap";
  const left = picker("A", a), right = picker("B", b);
  const body = h("div", {class: "page compare"});
  const form = h("form", {class: "pick", onsubmit: (event) => { event.preventDefault(); go(`/compare?${new URLSearchParams({a: left.value, ...(right.value ? {b: right.value} : {})})}`); }}, left, h("button", {type: "button", class: "quiet", "aria-label": "Swap", title: "Swap", onclick: () => go(`/compare?${new URLSearchParams({a: right.value, b: left.value})}`)}, icon("compare")), right, h("button", {class: "main"}, "Compare"));
  fill(main, h("header", {class: "session"}, h("h1", {}, "Compare"), h("p", {class: "facts"}, "A session by its id, or one of its snapshots as id@3."), form), h("div", {class: "scroller", tabindex: "0", role: "region", "aria-label": "Differences"}, body));
  if (!a) return;
  fill(body, h("p", {class: "empty"}, "comparing\u2026"));
  try { fill(body, shown(await get("diff", {a, b}))); } catch (error) { fill(body, problem(error)); }
}

function picker(label, value) {
  const id = `known-${label}`;
  const known = h("datalist", {id}, (app.sessions?.rows || []).slice(0, 300).map((row) => h("option", {value: row.session_id}, nameOf(row))));
  const input = h("input", {"aria-label": label, list: id, value: value || "", placeholder: label, autocomplete: "off", spellcheck: "false"});
  input.append(known);
  document.getElementById(id)?.remove();
  document.body.append(known);
  return input;
}

function shown(found) {
  const side = (each) => h("div", {class: "side"}, h("a", {href: address(each.session_id, {at: each.seq})}, each.title || nameOf(app.sessions?.find(each.session_id) || each)), h("p", {class: "facts"}, `${each.session_id} \u00b7 snapshot ${each.seq} \u00b7 ${several(each.messages, "message")}`));
  const spent = [found.spent.turns && `${found.spent.turns > 0 ? "+" : ""}${several(found.spent.turns, "turn")}`, found.spent.total_tokens && `${found.spent.total_tokens > 0 ? "+" : ""}${count(found.spent.total_tokens)} tokens`, found.spent.cost && money(found.spent.cost)].filter(Boolean).join(" \u00b7 ");
  const section = (title, items) => items.length > 0 && h("section", {}, h("h2", {}, title), h("ul", {}, items.map((item) => h("li", {}, item))));
  return [
    h("div", {class: "sides"}, side(found.before), side(found.after)),
    h("p", {class: "summary"}, found.equal ? "They are the same." : found.summary, spent && ` \u00b7 ${spent}`),
    section("Files", found.files.map((path) => h("code", {}, path))),
    section("Plan", found.plan.map((step) => `${step.content}: ${step.before ?? "new"} \u2192 ${step.after ?? "gone"}`)),
    section("Settings", found.settings.map((each) => [h("code", {}, each.path), ` ${JSON.stringify(each.before)} \u2192 ${JSON.stringify(each.after)}`])),
    section("Tools", found.tools.slice(0, 50).map((tool) => `${tool.title || tool.tool_call_id} ${tool.status || ""}`)),
    h("h2", {}, "Messages"),
    found.common_prefix > 0 && h("p", {class: "facts"}, `${several(found.common_prefix, "message")} the same at the beginning`),
    h("div", {class: found.edited.length || (found.removed.length && found.added.length) ? "sides branches" : "branches"}, column(found.removed, found.edited.map((each) => each.before), "minus", found.before), column(found.added, found.edited.map((each) => each.after), "plus", found.after)),
  ];
}

function column(said, edited, kind, side) {
  const all = [...said, ...edited].sort((one, other) => one.number - other.number);
  return h("div", {}, all.slice(0, MOST).map((each) => card(each, kind, side)), all.length > MOST && h("p", {class: "facts"}, `${count(all.length - MOST)} more`));
}

function card(said, kind, side) {
  const link = address(side.session_id, {at: side.seq, m: said.number});
  return h("article", {class: `card ${kind}`}, h("header", {}, h("strong", {}, said.role), h("span", {class: "grow"}), h("a", {href: link}, `#${said.number}`)), said.pieces.map((piece) => h("div", {class: piece.kind}, piece.kind === "tool" ? [icon(piece.status === "completed" ? "check" : "dots", piece.status || ""), " ", piece.text] : h("div", {class: "prose"}, markdown(piece.text.slice(0, 1500)), piece.text.length > 1500 && "\u2026"))));
}
