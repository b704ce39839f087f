"use strict";
// Draws what the document holds; every figure in it was computed before.
const runs = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("report");
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const text = (value) => document.createTextNode(value);
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rate = (value) => (value >= 100 ? number.format(value) : value.toPrecision(3));
function time(millis) {
  if (millis === null || millis === undefined) return "–";
  if (millis < 1) return `${(millis * 1000).toPrecision(3)} µs`;
  if (millis < 1000) return `${millis.toPrecision(3)} ms`;
  return `${(millis / 1000).toPrecision(3)} s`;
}
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
}
function table(heads, rows) {
  const cell = (tag, value, head) => {
    const attributes = head.endsWith(">") ? { class: "number" } : {};
    return element(tag, attributes, value instanceof Node ? value : text(value));
  };
  return element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, heads.map((head) => cell("th", head.replace(">", ""), head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value, at) => cell("td", value, heads[at])))))));
}
// By its name, so that a page that was opened in the dark is printed in colours for paper.
const css = (name) => `var(${name})`;
const width = Math.min(920, root.clientWidth - 8);
const half = root.clientWidth > 860 ? Math.min(450, width / 2 - 16) : width;
const base = () => ({ marginBottom: 44, style: { color: css("--ink"), background: "transparent", fontSize: "12px", fontFamily: "system-ui, sans-serif" } });
function figure(caption, plot) {
  return element("figure", {}, plot, element("figcaption", {}, text(caption)));
}
const isDatabase = (run) => run.charts.ramp.length > 0;
const what = (run) => (isDatabase(run) ? "transactions" : "I/Os");
const nanos = (value) => time(value === null ? null : value / 1e6);
