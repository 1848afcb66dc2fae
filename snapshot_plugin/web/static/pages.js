// The pages for usage statistics, the trash, and the log of operations.

import {get, send} from "./api.js";
import {ago, clock, count, fill, h, money, several, size, svg, toast} from "./dom.js";
import {app, failed, go} from "./app.js";

export async function showStats(main, by) {
  document.title = "Stats \u2013 asnap";
  const body = h("div", {class: "page"}, h("p", {class: "empty"}, "counting\u2026"));
  const tabs = ["day", "week", "agent", "project"].map((name) => h("a", {href: `/stats?by=${name}`, class: "tab", "aria-current": name === by ? "page" : null}, `by ${name}`));
  fill(main, h("header", {class: "session"}, h("h1", {}, "Stats"), h("nav", {class: "tabs", "aria-label": "Add up"}, tabs)), h("div", {class: "scroller", tabindex: "0", role: "region", "aria-label": "Statistics"}, body));
  const found = await get("stats", {by});
  const groups = by === "day" || by === "week" ? found.groups.slice(-60) : found.groups.slice(0, 30);
  const tiles = [["sessions", count(found.total.sessions)], ["messages", count(found.total.messages)], ["turns", count(found.total.turns)], ["tokens", count(found.total.tokens)], ["cost", found.total.cost ? money(found.total.cost) : "\u2013"], ["on disk", size(found.storage.store_bytes)]];
  fill(body,
    h("div", {class: "tiles"}, tiles.map(([name, value]) => h("div", {class: "tile"}, h("strong", {}, value), h("span", {}, name)))),
    found.daily.length > 1 && [h("h2", {}, "Tokens a day"), chart(found.daily.slice(-90).map((day) => [day.day, day.tokens]))],
    found.hours.some(Boolean) && [h("h2", {}, "Messages by hour"), chart(found.hours.map((number, hour) => [`${hour} h`, number]))],
    h("h2", {}, `By ${by}`),
    h("div", {class: "table", tabindex: "0"}, h("table", {}, h("thead", {}, h("tr", {}, [by, "sessions", "turns", "messages", "tokens", "cost"].map((name, n) => h("th", {class: n ? "number" : null}, name)))), h("tbody", {}, groups.map((group) => h("tr", {}, h("td", {}, group.key), [group.sessions, group.turns, group.messages, group.tokens].map((number) => h("td", {class: "number"}, count(number))), h("td", {class: "number"}, group.cost ? money(group.cost) : "")))))),
    found.topics.length > 0 && [h("h2", {}, "Topics"), h("p", {class: "chips"}, found.topics.map((topic) => h("span", {class: "chip"}, `${topic.term} ${topic.sessions}`)))]);
}

// A bar chart with a numeric axis: labels below, amounts at the side.
function chart(values) {
  const wide = Math.min(720, Math.max(300, document.documentElement.clientWidth - 28)); // on a narrow screen labels keep their size
  const [tall, left, below] = [150, 54, 22];
  const most = nice(Math.max(1, ...values.map(([, value]) => value)));
  const step = (wide - left) / values.length;
  const picture = svg("svg", {viewBox: `0 0 ${wide} ${tall + below}`, class: "chart", role: "img", "aria-label": `${values.length} values, up to ${count(Math.max(...values.map(([, value]) => value)))}`});
  for (const share of [0, 0.5, 1]) {
    const y = tall - share * (tall - 12);
    picture.append(svg("line", {x1: left, x2: wide, y1: y, y2: y, class: "grid"}));
    const label = svg("text", {x: left - 6, y: y + 4, "text-anchor": "end"});
    label.textContent = short(most * share);
    picture.append(label);
  }
  const every = Math.ceil(values.length / (wide / 90));
  values.forEach(([name, value], n) => {
    const high = (value / most) * (tall - 12);
    const bar = svg("rect", {x: left + n * step + step * 0.1, y: tall - high, width: Math.max(1, step * 0.8), height: high});
    const title = svg("title");
    title.textContent = `${name}: ${count(value)}`;
    bar.append(title);
    picture.append(bar);
    if (n % every === 0) {
      const label = svg("text", {x: left + n * step, y: tall + 16});
      label.textContent = name;
      picture.append(label);
    }
  });
  return picture;
}

const short = (number) => number >= 1e6 ? `${+(number / 1e6).toFixed(1)}M` : number >= 1e3 ? `${+(number / 1e3).toFixed(1)}k` : String(Math.round(number));

function nice(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 4, 5, 10].map((each) => each * power).find((each) => each >= number);
}

export async function showTrash(main) {
  document.title = "Trash \u2013 asnap";
  const body = h("div", {class: "page"});
  fill(main, h("header", {class: "session"}, h("h1", {}, "Trash and operations"), h("p", {class: "facts"}, "Nothing here is lost until asnap purge.")), h("div", {class: "scroller", tabindex: "0", role: "region", "aria-label": "Trash and operations"}, body));
  const draw = async () => {
    const [trash, done] = await Promise.all([get("trash"), get("operations")]);
    const undo = (path) => async () => { try { toast((await send("POST", path)).told[0] || "Undone."); await Promise.all([draw(), app.sessions.load()]); } catch (error) { failed(error); } };
    const act = (label, path) => app.about.read_only ? null : h("button", {onclick: undo(path)}, label);
    fill(body,
      h("h2", {}, `In the trash: ${several(trash.removed.length, "entry").replace("entrys", "entries")}, ${size(trash.size_bytes)}`),
      trash.removed.length ? h("ul", {class: "plainlist"}, trash.removed.map((each) => h("li", {}, h("div", {}, h("strong", {}, each.session_id), h("p", {class: "facts"}, `${each.is_copy ? "dropped snapshots" : "session"} \u00b7 ${clock(each.deleted_at)} \u00b7 ${size(each.size_bytes)}`)), act("Restore", `trash/${each.token}/restore`)))) : h("p", {class: "facts"}, "It is empty."),
      h("h2", {}, "What was done"),
      done.operations.length ? h("ul", {class: "plainlist"}, done.operations.slice(0, 200).map((each) => h("li", {}, h("div", {}, h("strong", {}, each.operation), ` ${each.summary}`, h("p", {class: "facts"}, `${ago(each.at)} ago \u00b7 ${each.state}`)), each.state === "done" && act(each.operation === "undo" ? "Redo" : "Undo", `operations/${each.id}/undo`)))) : h("p", {class: "facts"}, "Nothing yet."));
  };
  await draw();
}
