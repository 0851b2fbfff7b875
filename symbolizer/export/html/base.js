"use strict";
// What all parts of the page use. Text gets into the page as text alone: textContent and canvas.

const data = JSON.parse(document.getElementById("data").textContent);

// element("td", {class: "number"}, "1.5"): properties that begin with "on" are listeners.
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function grouped(number) {
  return Math.round(number).toLocaleString("en-US");
}

// Of microseconds.
function duration(us) {
  const size = Math.abs(us);
  if (size >= 1e8) return `${(us / 1e6).toFixed(1)} s`;
  if (size >= 1e6) return `${(us / 1e6).toFixed(3)} s`;
  if (size >= 1e3) return `${(us / 1e3).toFixed(size >= 1e5 ? 0 : 2)} ms`;
  return `${Math.round(us)} µs`;
}

function signed(us) {
  return (us > 0 ? "+" : "") + duration(us);
}

function percentText(part, whole) {
  if (!(whole > 0)) return "-";
  const percent = (100 * part) / whole;
  return `${percent.toFixed(percent < 10 ? 2 : 1)} %`;
}

function isDark() {
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Calls `redraw` when the page becomes wider, narrower, dark or light.
function onAppearance(node, redraw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth === width) return;
    width = node.clientWidth;
    redraw();
  }).observe(node);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

// Sets a canvas up for `width` x `height` CSS pixels and returns its context, scaled and cleared.
function prepareCanvas(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(height, 1));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// As much of the text as fits, by the width of one character: canvas fonts here are monospaced.
function fitting(text, width, charWidth) {
  const room = Math.floor(width / charWidth);
  if (text.length <= room) return text;
  return room < 3 ? "" : `${text.slice(0, room - 1)}…`;
}

function addSection(id, title, note) {
  const section = element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), note ? element("p", { class: "note" }, note) : null);
  document.getElementById("main").append(section);
  document.getElementById("nav").append(element("a", { href: `#${id}` }, title.split(",")[0]));
  return section;
}

// Radio buttons; `chosen` is called with the value.
function choice(name, options, value, chosen) {
  const field = element("fieldset", {}, element("legend", { class: "unseen" }, name));
  for (const [option, text] of options)
    field.append(element("label", {},
      element("input", { type: "radio", name, value: option, checked: option === value,
        onchange: () => chosen(option) }), text));
  return field;
}
