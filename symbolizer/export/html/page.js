"use strict";

const comparing = data.sides.length === 2;

function addSummary() {
  if (data.summary.length === 0) return;
  const section = addSection("summary", comparing ? "Notes" : "Summary");
  const list = element("dl", { class: "summary" });
  for (const [title, text] of data.summary) list.append(element("dt", {}, title), element("dd", {}, text));
  section.append(list);
}

function addTable(table) {
  const section = addSection(table.id, table.title, table.note);
  if (table.rows.length === 0) section.append(element("p", { class: "note" }, "None."));
  else new TableView(table, section);
}

function addAbout() {
  const section = addSection("about", "Recording");
  section.append(element("ul", { class: "about" }, ...data.about.map((line) => element("li", {}, line))));
}

document.getElementById("title").textContent = data.title;
document.title = `dynprof-bpf: ${data.title}`;
// What is looked at first comes before the pictures.
const first = comparing ? ["facts", "compiles", "phases"] : ["compiles"];
addSummary();
for (const table of data.tables) if (first.includes(table.id)) addTable(table);
addTimeline();
addFlame();
for (const table of data.tables) if (!first.includes(table.id)) addTable(table);
addCode();
addAbout();
