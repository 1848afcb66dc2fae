// Dialogs, and undo.

import {download, get, named, send} from "./api.js";
import {fill, h, several, size, toast} from "./dom.js";
import {app, failed} from "./app.js";

function dialog(title, body, buttons) {
  const box = h("dialog", {"aria-label": title}, h("form", {method: "dialog"}, h("h2", {}, title), body, h("menu", {}, buttons)));
  document.body.append(box);
  box.showModal();
  return new Promise((resolve) => box.addEventListener("close", () => { box.remove(); resolve(box.returnValue); }));
}

// No submit button: Enter saves.
const cancel = () => h("button", {type: "button", onclick: (event) => event.target.closest("dialog").close("")}, "Cancel");

export async function ask(title, label, value = "", {long = false} = {}) {
  const field = h(long ? "textarea" : "input", {"aria-label": label, placeholder: label, autofocus: true, rows: "5", maxlength: "20000"});
  field.value = value;
  const answer = await dialog(title, field, [cancel(), h("button", {class: "main", type: "submit", value: "ok"}, "Save")]);
  return answer === "ok" ? field.value : null;
}

export async function confirmForget(ids) {
  const plan = await send("POST", "forget", {sessions: ids, dry_run: true});
  const rows = plan.sessions.map((fate) => h("li", {}, h("strong", {}, fate.title || fate.session_id), ` \u2014 ${fate.what === "skipped" ? `stays: ${fate.why}` : `${fate.why}, ${size(fate.size_bytes)}`}`));
  const answer = await dialog(`Forget ${several(ids.length, "session")}?`, [h("ul", {}, rows), h("p", {}, "It is moved to the trash. You can undo this until asnap purge.")], [cancel(), h("button", {class: "danger", type: "submit", value: "ok"}, "Forget")]);
  if (answer !== "ok") return false;
  const done = await send("POST", "forget", {sessions: ids});
  await app.sessions.load();
  const kept = done.sessions.filter((fate) => fate.what === "skipped");
  undoToast(kept.length ? `Kept: ${kept[0].why}` : `${several(ids.length, "session")} in the trash.`, done.operation);
  return true;
}

// Offers undo only for a given operation: the latest one may come from another tab.
export function undoToast(words, operation, after) {
  toast(words, operation && {label: "Undo", run: async () => {
    try {
      const done = await send("POST", `operations/${operation}/undo`);
      toast(done.told[0] || "Undone.");
      await app.sessions.load();
      await after?.();
    } catch (error) { failed(error); }
  }});
}

export async function exportDialog(id, at) {
  const form = h("select", {"aria-label": "Form"}, [["html", "HTML, to read"], ["markdown", "Markdown, to read"], ["bundle", "bundle, with all history"], ["json", "JSON"]].map(([value, label]) => h("option", {value}, label)));
  const clean = h("input", {type: "checkbox", checked: true, id: "redact"});
  const told = h("p", {class: "facts"});
  const look = async () => {
    told.textContent = "looking for secrets\u2026";
    try {
      const about = await get(`sessions/${named(id)}/export`, {form: form.value, redact: clean.checked ? 1 : 0, at, about: 1});
      const kinds = Object.entries(about.redacted);
      fill(told, `${size(about.size_bytes)}. `, clean.checked ? (kinds.length ? `${several(kinds.reduce((sum, [, number]) => sum + number, 0), "secret")} removed: ${kinds.map(([kind, number]) => `${number} ${kind}`).join(", ")}.` : "No secrets were found.") : "Secrets are not removed.", about.warning ? ` ${about.warning}` : "");
    } catch (error) { told.textContent = error.message; }
  };
  form.addEventListener("change", look);
  clean.addEventListener("change", look);
  look();
  const answer = await dialog("Export", [h("p", {}, form), h("p", {}, clean, " ", h("label", {for: "redact"}, "Remove secrets")), told], [cancel(), h("button", {class: "main", type: "submit", value: "ok"}, "Download")]);
  if (answer !== "ok") return;
  const ending = {html: "html", markdown: "md", bundle: "asnap", json: "json"}[form.value];
  const query = new URLSearchParams({form: form.value, redact: clean.checked ? 1 : 0, ...(at ? {at} : {})});
  try { await download(`sessions/${named(id)}/export?${query}`, `session-${id.slice(0, 12).replace(/\W/g, "_")}.${ending}`); } catch (error) { failed(error); }
}
