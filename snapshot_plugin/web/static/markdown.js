// Renders agents' Markdown as DOM nodes. Images are named, not fetched; only http and https links are clickable.

import {h, icon, copy} from "./dom.js";

const MARKS = /(`+)([\s\S]+?)\1(?!`)|\*\*([^\s*](?:[\s\S]*?[^\s*])?)\*\*|__([^\s_](?:[\s\S]*?[^\s_])?)__|(?<![\w*])\*([^\s*](?:[^*]*?[^\s*])?)\*(?![\w*])|(?<![\w_])_([^\s_](?:[^_]*?[^\s_])?)_(?![\w_])|~~([\s\S]+?)~~|!?\[([^\]\n]*)\]\(([^()\s]+(?:\([^()\s]*\))?)(?:\s+"[^"]*")?\)|\bhttps?:\/\/[^\s<>"')\]]+/;

function inline(words, depth = 0) {
  const nodes = [];
  let rest = words;
  while (rest) {
    const found = depth < 6 && rest.match(MARKS);
    if (!found) { nodes.push(rest); break; }
    if (found.index) nodes.push(rest.slice(0, found.index));
    const [all, , code, bold, bold2, thin, thin2, gone, label, target] = found;
    if (code !== undefined) nodes.push(h("code", {}, code.trim() || code));
    else if (bold ?? bold2) nodes.push(h("strong", {}, inline(bold ?? bold2, depth + 1)));
    else if (thin ?? thin2) nodes.push(h("em", {}, inline(thin ?? thin2, depth + 1)));
    else if (gone !== undefined) nodes.push(h("s", {}, inline(gone, depth + 1)));
    else nodes.push(link(target ?? all, label ?? all));
    rest = rest.slice(found.index + all.length);
  }
  return nodes;
}

function link(target, label) {
  if (!/^https?:\/\//i.test(target)) return h("span", {class: "dead-link"}, label, label === target ? "" : ` (${target})`);
  return h("a", {href: target, target: "_blank", rel: "noopener noreferrer nofollow"}, label || target);
}

export function codeBlock(words, language) {
  const button = h("button", {class: "copy quiet", "aria-label": "Copy this code", onclick: () => copy(words)}, icon("copy"));
  return h("div", {class: "code"}, language && h("span", {class: "language"}, language), button, h("pre", {tabindex: "0"}, h("code", {}, words)));
}

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;

export function markdown(words) {
  const lines = words.replaceAll("\r\n", "\n").split("\n");
  return blocks(lines, 0);
}

function blocks(lines, depth) {
  const nodes = [];
  let n = 0;
  while (n < lines.length) {
    const line = lines[n];
    const fence = line.match(FENCE);
    if (!line.trim()) { n += 1; continue; }
    if (fence) {
      const end = lines.findIndex((each, at) => at > n && each.trim().startsWith(fence[1]) && !each.trim().slice(fence[1].length).trim());
      const last = end < 0 ? lines.length : end;
      nodes.push(codeBlock(lines.slice(n + 1, last).join("\n"), fence[2]));
      n = last + 1;
    } else if (HEADING.test(line)) {
      const [, marks, title] = line.match(HEADING);
      nodes.push(h("p", {class: `heading heading-${marks.length}`}, inline(title)));
      n += 1;
    } else if (RULE.test(line)) {
      nodes.push(h("hr"));
      n += 1;
    } else if (ROW.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[n + 1] || "")) {
      let last = n + 2;
      while (last < lines.length && ROW.test(lines[last])) last += 1;
      nodes.push(table(lines.slice(n, last)));
      n = last;
    } else if (/^\s{0,3}>/.test(line) && depth < 5) {
      let last = n;
      while (last < lines.length && /^\s{0,3}>/.test(lines[last])) last += 1;
      nodes.push(h("blockquote", {}, blocks(lines.slice(n, last).map((each) => each.replace(/^\s{0,3}> ?/, "")), depth + 1)));
      n = last;
    } else if (ITEM.test(line) && depth < 8) {
      const [node, next] = list(lines, n, depth);
      nodes.push(node);
      n = next;
    } else {
      let last = n + 1;
      while (last < lines.length && lines[last].trim() && !FENCE.test(lines[last]) && !HEADING.test(lines[last]) && !ITEM.test(lines[last]) && !/^\s{0,3}>/.test(lines[last])) last += 1;
      nodes.push(h("p", {}, inline(lines.slice(n, last).join("\n"))));
      n = last;
    }
  }
  return nodes;
}

function list(lines, from, depth) {
  const [, indent, mark] = lines[from].match(ITEM);
  const ordered = /\d/.test(mark);
  const node = h(ordered ? "ol" : "ul", ordered && parseInt(mark, 10) !== 1 ? {start: String(parseInt(mark, 10))} : {});
  let n = from;
  while (n < lines.length) {
    const found = lines[n].match(ITEM);
    if (!found || found[1].length > indent.length + 1 || found[1].length < indent.length || /\d/.test(found[2]) !== ordered) break;
    const inner = [found[3]];
    n += 1;
    while (n < lines.length && (/^\s+\S/.test(lines[n]) && lines[n].match(/^\s*/)[0].length > indent.length || (!lines[n].trim() && /^\s{2,}\S/.test(lines[n + 1] || "")))) {
      inner.push(lines[n].slice(Math.min(lines[n].match(/^\s*/)[0].length, indent.length + 2)));
      n += 1;
    }
    const task = inner[0].match(/^\[([ xX])\]\s+(.*)$/);
    if (task) inner[0] = `${task[1] === " " ? "\u2610" : "\u2611"} ${task[2]}`;
    const content = inner.length === 1 ? inline(inner[0]) : blocks(inner, depth + 1);
    node.append(h("li", {}, content));
    while (n < lines.length && !lines[n].trim() && ITEM.test(lines[n + 1] || "")) n += 1;
  }
  return [node, Math.max(n, from + 1)];
}

function table(lines) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => inline(cell.trim()));
  const [head, , ...rows] = lines;
  return h("div", {class: "table", tabindex: "0"}, h("table", {},
    h("thead", {}, h("tr", {}, cells(head).map((cell) => h("th", {}, cell)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, cells(row).map((cell) => h("td", {}, cell)))))));
}
