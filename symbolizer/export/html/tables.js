"use strict";
// Tables: sorted by a click on a column, filtered by a text, rows opened for what is known beyond.

const kFirstRows = 40;
const numeric = (column) => !["text", "place"].includes(column.type);

// The unit a whole column is shown in: numbers below each other compare only in one.
function unitOf(rows, index) {
  let most = 0;
  for (const row of rows) most = Math.max(most, Math.abs(row.cells[index] || 0));
  if (most === 0 || most >= 1e8) return { name: "s", ns: 1e9, digits: 3 };
  return most >= 1e5 ? { name: "ms", ns: 1e6, digits: 2 } : { name: "µs", ns: 1e3, digits: 1 };
}

class TableView {
  constructor(table, section) {
    this.table = table;
    this.units = table.columns.map((column, index) =>
      ["seconds", "change"].includes(column.type) ? unitOf(table.rows, index) : null);
    this.sortedBy = -1;
    this.descending = false;
    this.shown = kFirstRows;
    this.filter = "";
    this.opened = new Set();
    const count = table.rows.length;
    if (count > 8) {
      section.append(element("div", { class: "controls" },
        element("label", {}, "Filter", element("input", { type: "search",
          oninput: (event) => this.setFilter(event.target.value) }))));
    }
    this.head = element("tr", {});
    this.body = element("tbody", {});
    this.below = element("p", { class: "below" });
    section.append(
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
        element("table", {}, element("thead", {}, this.head), this.body)), this.below);
    this.makeHead();
    this.draw();
  }

  makeHead() {
    this.headers = this.table.columns.map((column, index) => {
      const unit = this.units[index];
      const button = element("button", { type: "button", title: column.help || null,
        onclick: () => this.sort(index) }, unit ? `${column.name} ${unit.name}` : column.name);
      return element("th", { scope: "col", class: numeric(column) ? "number" : null }, button);
    });
    this.head.append(...this.headers);
  }

  sort(index) {
    // The first click on numbers shows the largest, on texts the first.
    this.descending = this.sortedBy === index ? !this.descending : numeric(this.table.columns[index]);
    this.sortedBy = index;
    this.headers.forEach((header, at) => {
      if (at === index) header.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
    this.draw();
  }

  setFilter(text) {
    this.filter = text.toLowerCase();
    this.draw();
  }

  rows() {
    let rows = this.table.rows;
    if (this.filter) {
      rows = rows.filter((row) => row.cells.some(
        (cell) => typeof cell === "string" && cell.toLowerCase().includes(this.filter)));
    }
    if (this.sortedBy < 0) return rows;
    const sign = this.descending ? -1 : 1;
    const index = this.sortedBy;
    return [...rows].sort((a, b) => {
      const [left, right] = [a.cells[index], b.cells[index]];
      if (left === null || right === null) return (left === null) - (right === null);
      if (typeof left === "string") return sign * left.localeCompare(right, "en", { numeric: true });
      return sign * (left - right);
    });
  }

  draw() {
    const rows = this.rows();
    this.body.replaceChildren();
    for (const row of rows.slice(0, this.shown)) this.appendRow(row);
    this.below.replaceChildren();
    if (rows.length > this.shown) {
      this.below.append(element("button", { type: "button", onclick: () => {
        this.shown = rows.length;
        this.draw();
      } }, `Show all ${grouped(rows.length)} rows`));
    }
    if (this.filter) this.below.append(`${grouped(rows.length)} of ${grouped(this.table.rows.length)} rows`);
    if (this.table.leftOut > 0) this.below.append(`${grouped(this.table.leftOut)} more rows are not in this page.`);
  }

  appendRow(row) {
    const line = element("tr", { class: row.faint ? "faint" : null });
    row.cells.forEach((cell, index) => line.append(this.cell(cell, index)));
    this.body.append(line);
    if (!row.details && row.group === undefined) return;
    const opener = element("button", { type: "button", class: "opener", "aria-expanded": "false",
      "aria-label": `Details of ${row.cells[0]}`, onclick: () => this.toggle(row, line, opener) }, "▸");
    line.firstChild.prepend(opener);
    if (this.opened.has(row)) this.open(row, line, opener);
  }

  toggle(row, line, opener) {
    if (this.opened.delete(row)) {
      opener.textContent = "▸";
      opener.setAttribute("aria-expanded", "false");
      line.classList.remove("opened");
      line.nextSibling.remove();
    } else {
      this.opened.add(row);
      this.open(row, line, opener);
    }
  }

  open(row, line, opener) {
    opener.textContent = "▾";
    opener.setAttribute("aria-expanded", "true");
    line.classList.add("opened");
    const cell = element("td", { class: "details", colspan: this.table.columns.length });
    if (row.group !== undefined && window.flameView) {
      cell.append(element("button", { type: "button", onclick: () => {
        window.flameView.show(row.group);
        document.getElementById("flame").scrollIntoView();
      } }, "Flame graph"));
    }
    for (const detail of row.details || [])
      cell.append(element("h3", {}, detail.title),
        element("ul", {}, ...detail.lines.map((text) => element("li", {}, text))));
    line.after(element("tr", {}, cell));
  }

  cell(value, index) {
    const column = this.table.columns[index];
    if (!numeric(column))
      return element("td", { class: column.type, title: value }, value === null ? "-" : value);
    const cell = element("td", { class: "number" });
    cell.textContent = value === null ? "-" : this.numberText(value, index);
    if (value === null) return cell;
    if (column.type === "percent") {
      cell.classList.add("percent");
      cell.style.setProperty("--part", `${Math.min(100, Math.max(0, value))}%`);
    }
    if (column.type === "change" && value !== 0) cell.classList.add(value > 0 ? "worse" : "better");
    return cell;
  }

  numberText(value, index) {
    const unit = this.units[index];
    switch (this.table.columns[index].type) {
      case "seconds": return (value / unit.ns).toFixed(unit.digits);
      case "change": return (value > 0 ? "+" : "") + (value / unit.ns).toFixed(unit.digits);
      case "percent": return `${value.toFixed(value < 10 ? 1 : 0)} %`;
      case "factor": return `${value.toFixed(2)}×`;
      default: return grouped(value);
    }
  }
}

// Generated code with the time of its lines.
function addCode() {
  if (!data.code.length) return;
  const section = addSection("code", "Generated code by line",
    "CPU time of samples whose innermost generated line this is. The code was copied from the process; " +
    "your own source files are not in the recording, so their lines are shown without their text.");
  for (const file of data.code) {
    const body = element("tbody", {});
    for (const [number, ns, text] of file.lines) {
      const time = element("td", { class: "number" }, ns > 0 ? duration(ns / 1000) : "");
      if (ns > 0) {
        time.classList.add("percent");
        time.style.setProperty("--part", `${(100 * ns) / file.ns}%`);
      }
      body.append(element("tr", {}, time,
        element("td", { class: "line" }, number > 0 ? String(number) : "⋮"), element("td", {}, text)));
    }
    section.append(element("details", { class: "code", open: file === data.code[0] },
      element("summary", {}, `${file.path}: ${duration(file.ns / 1000)}`),
      element("div", { class: "scroll" }, element("table", {}, body))));
  }
  if (data.codeLeftOut > 0)
    section.append(element("p", { class: "below" }, `${grouped(data.codeLeftOut)} more files, each with less time.`));
}
