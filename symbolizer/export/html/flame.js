"use strict";
// The flame graph: a canvas of rectangles, the controls above it, and the keyboard.

const kRow = 18;
const kMostRows = 400;
const kFont = "11.5px \"DejaVu Sans Mono\", ui-monospace, Menlo, Consolas, monospace";

function hashOf(text) {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) | 0;
  return Math.abs(hash);
}

class FlameView {
  constructor(flame, section) {
    this.tree = new FlameTree(flame);
    this.groups = this.tree.groups;
    this.comparing = data.sides.length === 2;
    this.options = { value: "wall", inverted: false, split: !this.comparing, shares: false, width: "b",
      frames: "useful" };
    this.shownName = this.firstSelection(this.comparing ? 1 : 0);
    this.baselineName = this.comparing ? this.firstSelection(0) : "";
    this.labels = new Set();
    this.rectangles = [];
    section.append(this.controls(), this.canvasPart(), this.makeStatus(), this.legend(), this.foldedNote());
    this.rebuild();
    onAppearance(this.frame, () => this.draw());
  }

  firstSelection(side) {
    const any = this.groups.some((group) => group.compile && group.side === side);
    return (any ? "compiles" : "all") + side;
  }

  // ---- selections: "all0", "compiles1", "others0", or the number of a group --------------------------
  selected(name) {
    if (name === "") return [];
    const found = /^(all|compiles|others)([01])$/.exec(name);
    if (!found) return [this.groups[Number(name)]];
    return this.groups.filter((group) => group.side === Number(found[2]) &&
      (found[1] === "all" || group.compile === (found[1] === "compiles")));
  }

  selectionOptions(none) {
    const options = none ? [element("option", { value: "" }, "nothing")] : [];
    const sides = this.comparing ? [0, 1] : [0];
    for (const side of sides) {
      const group = element("optgroup", { label: this.comparing ? `${"AB"[side]}: ${data.sides[side]}` : "Together" });
      for (const [name, text] of [["compiles", "all compiles"], ["others", "all outside compiles"], ["all", "everything"]])
        if (this.selected(name + side).length) group.append(element("option", { value: name + side },
          this.comparing ? `${"AB"[side]}: ${text}` : text));
      this.groups.forEach((one, number) => {
        if (one.side !== side) return;
        const prefix = this.comparing ? `${"AB"[side]}: ` : "";
        const what = one.compile ? `compile ${one.name}` : `outside compiles: ${one.name}`;
        group.append(element("option", { value: String(number) }, `${prefix}${what} (${duration(one.cpu + one.wait)})`));
      });
      options.push(group);
    }
    return options;
  }

  controls() {
    this.shownSelect = element("select", { id: "flame-shown", onchange: (event) => this.choose(event.target.value, this.baselineName) },
      ...this.selectionOptions(false));
    this.baselineSelect = element("select", { id: "flame-baseline", onchange: (event) => this.choose(this.shownName, event.target.value) },
      ...this.selectionOptions(true));
    this.shownSelect.value = this.shownName;
    this.baselineSelect.value = this.baselineName;
    this.searchInput = element("input", { type: "search", id: "flame-search", oninput: (event) => this.search(event.target.value) });
    const set = (name) => (value) => {
      this.options[name] = value;
      this.rebuild();
    };
    const check = (name, text, title) => element("label", { title },
      element("input", { type: "checkbox", id: `flame-${name}`, checked: this.options[name],
        onchange: (event) => set(name)(event.target.checked) }), text);
    this.differenceControls = element("span", { class: "controls" },
      check("shares", "as shares", "scale the baseline to the same total"),
      choice("widths of", [["b", "widths of what is shown"], ["a", "of the baseline"]], "b", set("width")));
    return element("div", {},
      element("div", { class: "controls" },
        element("label", {}, "Show", this.shownSelect),
        element("label", {}, "compared with", this.baselineSelect), this.differenceControls),
      element("div", { class: "controls" },
        choice("time", [["wall", "wall"], ["cpu", "CPU"], ["wait", "off CPU"]], "wall", set("value")),
        element("label", {}, "Frames", element("select", { id: "flame-frames", onchange: (event) => set("frames")(event.target.value) },
          element("option", { value: "useful" }, "without CPython's own"), element("option", { value: "python" }, "Python alone"),
          element("option", { value: "all" }, "all"))),
        check("inverted", "bottom-up", "who calls each function, by the time it takes itself"),
        check("split", "by trace id", "one column for each compile"),
        element("label", {}, "Search", this.searchInput),
        element("button", { type: "button", onclick: () => this.zoom(this.root) }, "Reset zoom")));
  }

  canvasPart() {
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-describedby": "flame-status",
      "aria-label": "Flame graph. Arrow keys move, Enter zooms, Escape zooms out.",
      onclick: (event) => this.click(event), onmousemove: (event) => this.hover(event),
      onmouseleave: () => this.say(this.current), ondblclick: () => this.zoom(this.root),
      onkeydown: (event) => this.key(event) });
    this.frame = element("div", { class: "canvas", id: "flame-canvas" }, this.canvas);
    return this.frame;
  }

  makeStatus() {
    this.status = element("p", { class: "status", id: "flame-status", "aria-live": "polite" });
    return this.status;
  }

  legend() {
    this.legendLine = element("p", { class: "legend" });
    return this.legendLine;
  }

  drawLegend() {
    const comparing = this.selected(this.baselineName).length > 0;
    const entries = comparing
      ? [[this.differenceColor(1), "more than the baseline"], [this.differenceColor(-1), "less"],
        [this.differenceColor(0), "equal, or within what chance makes of so few samples"]]
      : [["Python", 0], ["native", 1], ["kernel", 2]].map(([text, kind]) => [this.kindColor(kind, 40), text]);
    this.legendLine.replaceChildren(...entries.map(([color, text]) => {
      const span = element("span", {}, text);
      span.style.setProperty("--swatch", color);
      return span;
    }));
  }

  foldedNote() {
    let nodes = 0, time = 0, all = 0, kept = 0;
    for (const group of this.groups) {
      nodes += group.foldedNodes;
      time += group.folded;
      all += group.cpu + group.wait;
      kept += group.nodes.length;
    }
    const text = nodes === 0
      ? "All call paths of the recording are in this page."
      : `${grouped(nodes)} short call paths are left out of this page to keep it small; their ${duration(time)} ` +
        `(${percentText(time, all)} of all time) count for the frame that called them.`;
    return element("p", { class: "note", id: "flame-folded" }, text);
  }

  // ---- state ---------------------------------------------------------------------------------------
  // For other parts of the page: shows one group.
  show(group) {
    this.choose(String(group), "");
  }

  choose(shown, baseline) {
    this.shownName = this.shownSelect.value = shown;
    this.baselineName = this.baselineSelect.value = baseline;
    this.rebuild();
  }

  rebuild() {
    const baseline = this.selected(this.baselineName);
    const shown = this.selected(this.shownName);
    this.differenceControls.hidden = baseline.length === 0;
    this.root = this.tree.root(shown, baseline, { ...this.options, split: this.options.split && shown.length > 1 });
    const side = (groups) => (groups.length ? groups[0].period : 0);
    this.periods = [side(baseline), side(shown)];
    this.isDifference = baseline.length > 0;
    this.zoomed = this.current = this.root;
    this.drawLegend();
    this.draw();
    this.say(this.root);
  }

  search(text) {
    this.labels = this.tree.search(text);
    this.draw();
    if (!text) return this.say(this.current);
    const shown = this.selected(this.shownName);
    const time = this.tree.matched(shown, this.options.value, this.labels);
    this.status.textContent = `${grouped(this.labels.size)} functions match; stacks with them: ${duration(time)}, ` +
      `${percentText(time, this.root.b)} of what is shown`;
  }

  zoom(view) {
    this.zoomed = this.current = view;
    this.draw();
    this.say(view);
  }

  width(view) {
    return this.isDifference && this.options.width === "a" ? view.a : view.b;
  }

  // ---- drawing -------------------------------------------------------------------------------------
  layOut(width) {
    this.rectangles = [];
    const above = [];
    for (let view = this.zoomed.parent; view; view = view.parent) above.unshift(view);
    above.forEach((view, row) => this.rectangles.push({ view, x: 0, row, width }));
    const pending = [{ view: this.zoomed, x: 0, row: above.length, width }];
    let rows = above.length;
    while (pending.length) {
      const at = pending.pop();
      this.rectangles.push(at);
      rows = Math.max(rows, at.row + 1);
      const whole = this.width(at.view);
      if (at.row + 1 >= kMostRows || !(whole > 0)) continue;
      let x = at.x;
      for (const child of this.tree.childrenOf(at.view)) {
        const part = (at.width * this.width(child)) / whole;
        if (part >= 0.4) pending.push({ view: child, x, row: at.row + 1, width: part });
        x += part;
      }
    }
    return rows;
  }

  draw() {
    const width = this.frame.clientWidth;
    if (width === 0) return;
    const rows = this.layOut(width);
    const context = prepareCanvas(this.canvas, width, rows * kRow + 2);
    context.font = kFont;
    context.textBaseline = "middle";
    const charWidth = context.measureText("m").width;
    const [dark, mark] = [isDark(), cssColor("--mark")];
    this.rectangles.forEach((rectangle) => {
      const { view, x, row } = rectangle;
      const [y, drawn] = [row * kRow, Math.max(rectangle.width - 0.6, 0.4)];
      context.fillStyle = view.label >= 0 && this.labels.has(view.label) ? mark : this.color(view);
      context.globalAlpha = row < this.depth(this.zoomed) ? 0.55 : 1;
      context.fillRect(x, y, drawn, kRow - 1);
      context.globalAlpha = 1;
      if (drawn > 3 * charWidth) {
        context.fillStyle = dark ? "#f2f4f7" : "#14181d";
        context.fillText(fitting(this.title(view), drawn - 6, charWidth), x + 3, y + kRow / 2);
      }
    });
    const current = this.rectangles.find((rectangle) => rectangle.view === this.current);
    if (current) {
      context.strokeStyle = cssColor("--accent");
      context.lineWidth = 2;
      context.strokeRect(current.x + 1, current.row * kRow + 1, Math.max(current.width - 2, 1), kRow - 2);
    }
    this.rows = rows;
  }

  depth(view) {
    let depth = 0;
    for (let at = view.parent; at; at = at.parent) depth++;
    return depth;
  }

  title(view) {
    if (view.title) return view.isGroup ? view.title : this.rootTitle();
    return this.tree.name(view.label);
  }

  rootTitle() {
    const option = this.shownSelect.selectedOptions[0];
    return option ? option.textContent : "all";
  }

  kindColor(kind, variation) {
    const hue = [125, 32, 214][kind];
    const [saturation, light] = isDark() ? [30, 27] : [kind === 2 ? 45 : 55, 80];
    return `hsl(${hue + (variation % 21) - 10} ${saturation}% ${light + ((variation >> 5) % 7) - 3}%)`;
  }

  differenceColor(amount) {
    const strength = Math.min(1, Math.abs(amount));
    if (strength < 0.02) return isDark() ? "#3a4048" : "#dfe3e8";
    const hue = amount > 0 ? 4 : 220;
    return isDark() ? `hsl(${hue} ${30 + 40 * strength}% ${26 + 14 * strength}%)`
      : `hsl(${hue} ${45 + 40 * strength}% ${90 - 26 * strength}%)`;
  }

  color(view) {
    if (this.isDifference) {
      if (!beyondChance(view, ...this.periods)) return this.differenceColor(0);
      return this.differenceColor((view.b - view.a) / Math.max(view.a + view.b, 1));
    }
    if (view.title || view.label < 0) return isDark() ? "#39424e" : "#d9dee5";
    return this.kindColor(this.tree.kindOf[view.label], hashOf(this.tree.name(view.label)));
  }

  // ---- what it says of a rectangle -----------------------------------------------------------------
  describe(view) {
    const parts = [this.title(view)];
    if (view.label >= 0) parts.push(this.tree.place(view.label));
    if (this.isDifference) {
      parts.push(`${duration(view.a)} → ${duration(view.b)}`, signed(view.b - view.a));
      if (view.a > 0) parts.push(`${(view.b / view.a).toFixed(2)}×`);
      if (!beyondChance(view, ...this.periods) && view.a !== view.b) parts.push("within chance");
    } else {
      parts.push(duration(view.b), `${percentText(view.b, this.root.b)} of what is shown`);
      if (view.parent && view.parent !== this.root) parts.push(`${percentText(view.b, view.parent.b)} of the frame above`);
    }
    return parts.filter((part) => part).join("  ·  ");
  }

  say(view) {
    this.status.textContent = view ? this.describe(view) : "";
  }

  // ---- mouse and keyboard --------------------------------------------------------------------------
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, row] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / kRow)];
    return this.rectangles.find((one) => one.row === row && x >= one.x && x < one.x + one.width);
  }

  hover(event) {
    const found = this.at(event);
    this.canvas.style.cursor = found ? "pointer" : "default";
    this.say(found ? found.view : this.current);
  }

  click(event) {
    const found = this.at(event);
    if (found) this.zoom(found.view);
  }

  key(event) {
    const next = this.neighbour(event.key);
    if (event.key === "Enter") this.zoom(this.current);
    else if (event.key === "Escape") this.zoom(this.zoomed.parent || this.root);
    else if (event.key === "Home") this.zoom(this.root);
    else if (event.key === "/") this.searchInput.focus();
    else if (next) {
      this.current = next;
      if (!this.rectangles.some((one) => one.view === next)) this.zoomed = next.parent || next;
      this.draw();
      this.scrollToCurrent();
      this.say(next);
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  }

  neighbour(key) {
    if (key === "ArrowUp") return this.current.parent;
    if (key === "ArrowDown") return this.tree.childrenOf(this.current).find((child) => this.width(child) > 0);
    if (!this.current.parent || !["ArrowLeft", "ArrowRight"].includes(key)) return null;
    const siblings = this.tree.childrenOf(this.current.parent);
    return siblings[siblings.indexOf(this.current) + (key === "ArrowLeft" ? -1 : 1)];
  }

  scrollToCurrent() {
    const found = this.rectangles.find((one) => one.view === this.current);
    if (!found) return;
    const y = found.row * kRow;
    if (y < this.frame.scrollTop) this.frame.scrollTop = y;
    else if (y + kRow > this.frame.scrollTop + this.frame.clientHeight)
      this.frame.scrollTop = y + kRow - this.frame.clientHeight;
  }
}

function addFlame() {
  if (!data.flame || !data.flame.groups.length) return;
  const section = addSection("flame", data.sides.length === 2 ? "Differential flame graph" : "Flame graph",
    "Width is time. A compile's stacks begin at the function of torch that compiles. Click to zoom, " +
    "double-click to reset. Keys: arrows, Enter, Escape, Home, / to search.");
  window.flameView = new FlameView(data.flame, section);
}
