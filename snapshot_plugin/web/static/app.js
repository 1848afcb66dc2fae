// The page: routes, keyboard shortcuts, and updates when the store changes.

import {get, listen} from "./api.js";
import {fill, h, toast} from "./dom.js";
import {Sessions} from "./list.js";
import {SessionView} from "./session.js";

const main = document.getElementById("main");
export const app = {about: null, view: null, sessions: null};

export function go(path, {replace = false} = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  return route();
}

export function problem(error) {
  const what = {
    wrong_token: "This page has no valid token.", not_found: "There is no such session.", snapshot_not_found: "There is no such session or snapshot.",
    corrupted: "This session is damaged.", tampered: "This session was changed from outside.", damaged: "This session is damaged.",
    key_missing: "This session is encrypted, and the server has no key for it.", wrong_key: "This session is encrypted with another key.",
    version_unsupported: "This session was written by a newer release.",
  }[error.code];
  return h("section", {class: "problem", role: "alert"}, h("h1", {}, what || "That did not work."), h("p", {}, error.message), error.hint && h("p", {}, error.hint), error.next && h("p", {}, "Next: ", h("code", {}, error.next)));
}

export function failed(error) {
  if (error.name === "AbortError") return;
  toast(`${error.message}${error.hint ? ` \u2014 ${error.hint}` : ""}`);
}

async function route() {
  const url = new URL(location.href);
  const path = url.pathname;
  document.body.dataset.page = path === "/" ? "list" : "view"; // a narrow screen shows only one of the two
  try {
    if (path.startsWith("/s/")) {
      const id = decodeURIComponent(decodeURIComponent(path.slice(3)));
      const at = Number(url.searchParams.get("at")) || null, number = Number(url.searchParams.get("m")) || null;
      if (app.view instanceof SessionView && app.view.id === id && app.view.shows(at)) await app.view.jump(number);
      else await leave(new SessionView(main, id, at)).open(number);
    } else if (path === "/compare") {
      leave(null);
      await (await import("./compare.js")).showCompare(main, url.searchParams.get("a"), url.searchParams.get("b"));
    } else if (path === "/stats" || path === "/trash") {
      leave(null);
      const pages = await import("./pages.js");
      await (path === "/trash" ? pages.showTrash(main) : pages.showStats(main, url.searchParams.get("by") || "day"));
    } else {
      leave(null);
      document.title = "asnap";
      fill(main, h("div", {class: "empty"}, h("h1", {}, "Pick a session"), h("p", {}, h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " next, previous \u00b7 ", h("kbd", {}, "Enter"), " open \u00b7 ", h("kbd", {}, "/"), " search")));
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    leave(null);
    fill(main, problem(error));
  }
  app.sessions.mark(path.startsWith("/s/") ? app.view?.id ?? null : null, path);
}

function leave(view) {
  app.view?.close?.();
  app.view = view;
  return view;
}

function heard(event) {
  if (event.type === "away" || (event.type === "store" && event.problem)) {
    document.body.dataset.away = "1";
    app.sessions.say(event.problem ? `The store does not answer: ${event.problem}` : "asnap ui does not answer: it was ended.");
    return;
  }
  if (document.body.dataset.away && (event.type === "alive" || event.type === "store")) {
    delete document.body.dataset.away;
    app.sessions.say("");
    app.sessions.load().catch(failed);
    app.view?.changed?.(true);
  }
  if (["changed", "gone", "tail"].includes(event.type)) {
    if (event.type !== "tail") app.sessions.heard(event);
    if (app.view && event.sessions.includes(app.view.id)) app.view.changed(event.type !== "tail", event.type === "gone");
  }
}

function pressed(event) {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (event.target.closest("dialog")) return;
    if (typing) { event.target.blur(); app.sessions.clear(); }
    else if (document.body.dataset.open) delete document.body.dataset.open;
    return;
  }
  if (typing) return;
  const act = {
    "/": () => app.sessions.focus(), j: () => app.sessions.move(1), k: () => app.sessions.move(-1),
    "[": () => app.view?.step?.(-1), "]": () => app.view?.step?.(1),
    n: () => app.view?.transcript?.prompt(1), p: () => app.view?.transcript?.prompt(-1),
    g: () => app.view?.jump?.(1), G: () => app.view?.end?.(),
    "?": () => toast("/ search \u00b7 j k sessions \u00b7 [ ] snapshots \u00b7 n p prompts \u00b7 g G begin, end \u00b7 Esc back"),
  }[event.key];
  if (act) { event.preventDefault(); Promise.resolve(act()).catch(failed); }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target || link.origin !== location.origin || event.defaultPrevented || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
document.addEventListener("keydown", pressed);
window.addEventListener("popstate", route);

async function start() {
  app.sessions = new Sessions(document.getElementById("side"));
  try {
    app.about = await get("about");
    app.sessions.head();
    const routed = route();
    await app.view?.shown; // show the conversation before the list
    listen(heard);
    await app.sessions.load();
    if (!app.view?.info) app.view?.sketch();
    await routed;
  } catch (error) {
    fill(main, problem(error));
  }
}

start();
