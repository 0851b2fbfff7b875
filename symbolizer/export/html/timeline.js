"use strict";
// Compiles, phases, ranges that the program marks and child processes over time.

const kLane = 15;
const kTitle = 17;
const [kCompile, kPhase, kProcess, kAnnotation] = [0, 1, 2, 3];
const kPhaseHues = { dynamo: 210, guards: 235, aot_autograd: 280, inductor: 28, kernel_compile: 355,
  wait: 50, cache: 165, autotune: 320, cudagraphs: 95, backend: 130 };

class TimelineView {
  constructor(timeline, section) {
    this.data = timeline;
    this.from = 0;
    this.to = this.whole = Math.max(timeline.length, 1);
    this.slices = [];
    let y = 0;
    for (const row of timeline.rows) {
      row.top = y;
      for (let i = 0; i < row.begin.length; i++)
        this.slices.push({ row, i, begin: row.begin[i], end: row.begin[i] + row.length[i],
          y: y + kTitle + row.depthOf[i] * kLane });
      y += kTitle + row.depth * kLane + 6;
    }
    this.height = y + 16;
    this.current = null;
    this.build(section);
    onAppearance(this.frame, () => this.draw());
  }

  build(section) {
    const button = (text, label, action) => element("button", { type: "button", "aria-label": label, onclick: action }, text);
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-describedby": "timeline-status",
      "aria-label": "Timeline. Left and right move between slices, plus and minus zoom, Escape shows everything.",
      onmousedown: (event) => this.press(event), onmousemove: (event) => this.hover(event),
      onmouseup: (event) => this.release(event), onmouseleave: () => this.leave(), ondblclick: () => this.setRange(0, this.whole),
      onkeydown: (event) => this.key(event) });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.frame = element("div", { class: "canvas", id: "timeline-canvas" }, this.canvas);
    this.status = element("p", { class: "status", id: "timeline-status", "aria-live": "polite" });
    section.append(
      element("div", { class: "controls" },
        button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
        button("◂", "Earlier", () => this.pan(-0.3)), button("▸", "Later", () => this.pan(0.3)),
        button("Everything", "Show everything", () => this.setRange(0, this.whole)),
        element("span", { class: "note" }, "Drag to zoom into a range; Ctrl and the wheel zoom.")),
      this.frame, this.status, this.legend());
    if (this.data.leftOut > 0)
      section.append(element("p", { class: "note" },
        `${grouped(this.data.leftOut)} slices are left out: the shortest, and children beyond those drawn.`));
  }

  legend() {
    this.legendLine = element("p", { class: "legend" });
    return this.legendLine;
  }

  drawLegend() {
    const seen = new Set();
    for (const row of this.data.rows)
      row.kindOf.forEach((kind, i) => kind === kPhase && seen.add(row.phaseOf[i]));
    const entries = [["compile", this.sliceColor(kCompile, 0)],
      ...[...seen].sort((a, b) => a - b).map((phase) => [this.data.phases[phase], this.sliceColor(kPhase, phase)])];
    if (this.data.rows.some((row) => row.kindOf.includes(kProcess)))
      entries.push(["child process", this.sliceColor(kProcess, 0)]);
    if (this.data.rows.some((row) => row.kindOf.includes(kAnnotation)))
      entries.push(["annotation", this.sliceColor(kAnnotation, 0)]);
    this.legendLine.replaceChildren(...entries.map(([text, color]) => {
      const span = element("span", {}, text);
      span.style.setProperty("--swatch", color);
      return span;
    }));
  }

  sliceColor(kind, phase) {
    const dark = isDark();
    if (kind === kCompile) return dark ? "#51617a" : "#b9c4d4";
    if (kind === kProcess) return dark ? "#4b4b3a" : "#dcdabb";
    if (kind === kAnnotation) return dark ? "#2f5151" : "#bfe0dd";
    const hue = kPhaseHues[this.data.phases[phase]];
    if (hue === undefined) return dark ? "#444b55" : "#d5dae1";
    return dark ? `hsl(${hue} 34% 34%)` : `hsl(${hue} 60% 80%)`;
  }

  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.frame.clientWidth;
  }

  draw() {
    const width = this.frame.clientWidth;
    if (width === 0) return;
    this.drawLegend();
    const context = prepareCanvas(this.canvas, width, this.height);
    context.font = kFont;
    context.textBaseline = "middle";
    const charWidth = context.measureText("m").width;
    const [text, faint, line] = [cssColor("--text"), cssColor("--faint"), cssColor("--line")];
    this.drawAxis(context, width, faint, line);
    for (const row of this.data.rows) {
      context.fillStyle = faint;
      context.fillText(fitting(row.name, width - 8, charWidth), 4, row.top + kTitle / 2 + 1);
    }
    const lastX = new Map();  // by y: slices that share a pixel are drawn once
    for (const slice of this.slices) {
      if (slice.end <= this.from || slice.begin >= this.to) continue;
      const [left, right] = [Math.max(this.x(slice.begin), 0), Math.min(this.x(slice.end), width)];
      const drawn = Math.max(right - left, 0.7);
      if (drawn < 1 && Math.floor(left) === lastX.get(slice.y)) continue;
      lastX.set(slice.y, Math.floor(left));
      const { row, i } = slice;
      context.fillStyle = this.sliceColor(row.kindOf[i], row.phaseOf[i]);
      context.fillRect(left, slice.y, Math.max(drawn - 0.4, 0.6), kLane - 1);
      if (drawn > 4 * charWidth) {
        context.fillStyle = text;
        context.fillText(fitting(this.name(slice), drawn - 4, charWidth), left + 2, slice.y + kLane / 2);
      }
    }
    if (this.current) this.outline(context, this.current);
    if (this.pressed !== undefined && this.dragged !== undefined) {
      context.fillStyle = cssColor("--accent");
      context.globalAlpha = 0.2;
      context.fillRect(Math.min(this.pressed, this.dragged), 0, Math.abs(this.dragged - this.pressed), this.height);
      context.globalAlpha = 1;
    }
  }

  outline(context, slice) {
    context.strokeStyle = cssColor("--accent");
    context.lineWidth = 2;
    const left = Math.max(this.x(slice.begin), 0);
    context.strokeRect(left, slice.y, Math.max(this.x(slice.end) - left, 2), kLane - 1);
  }

  drawAxis(context, width, faint, line) {
    const rough = ((this.to - this.from) / width) * 110;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step / 1e6)));
    for (let time = Math.ceil(this.from / step) * step; time < this.to; time += step) {
      const x = this.x(time);
      context.fillStyle = line;
      context.fillRect(x, 0, 1, this.height - 14);
      context.fillStyle = faint;
      context.fillText(`${(time / 1e6).toFixed(digits)} s`, x + 2, this.height - 8);
    }
  }

  name(slice) {
    return this.data.names[slice.row.nameOf[slice.i]];
  }

  describe(slice) {
    const { row, i } = slice;
    const compile = row.compileOf[i] >= 0 ? this.data.compiles[row.compileOf[i]] : null;
    const parts = [this.name(slice)];
    if (row.kindOf[i] === kPhase) parts.push(`phase ${this.data.phases[row.phaseOf[i]]}`, `compile ${compile}`);
    if (row.kindOf[i] === kProcess) parts.push(compile ? `for compile ${compile}` : "for no compile");
    if (row.kindOf[i] === kCompile) parts[0] = `compile ${parts[0]}`;
    parts.push(duration(row.length[i]), `from ${(slice.begin / 1e6).toFixed(3)} s`, row.name);
    if (!row.exactOf[i]) parts.push(row.kindOf[i] === kAnnotation ? "end not seen" : "as samples show it");
    return parts.join("  ·  ");
  }

  // ---- range -------------------------------------------------------------------------------------
  setRange(from, to) {
    const length = Math.min(Math.max(to - from, 10), this.whole);
    this.from = Math.min(Math.max(from, 0), this.whole - length);
    this.to = this.from + length;
    this.draw();
  }

  zoom(factor, center = (this.from + this.to) / 2) {
    this.setRange(center - (center - this.from) * factor, center + (this.to - center) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.setRange(this.from + by, this.to + by);
  }

  // ---- mouse and keyboard --------------------------------------------------------------------------
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  timeAt(x) {
    return this.from + (x / this.frame.clientWidth) * (this.to - this.from);
  }

  at(x, y) {
    const slack = (this.to - this.from) / this.frame.clientWidth;
    const time = this.timeAt(x);
    return this.slices.find((slice) => y >= slice.y && y < slice.y + kLane &&
      time >= slice.begin - slack && time < slice.end + slack);
  }

  hover(event) {
    const [x, y] = this.place(event);
    if (this.pressed !== undefined) {
      this.dragged = x;
      return this.draw();
    }
    const found = this.at(x, y);
    this.status.textContent = found ? this.describe(found) : this.current ? this.describe(this.current) : "";
  }

  press(event) {
    this.pressed = this.place(event)[0];
    this.dragged = undefined;
  }

  release(event) {
    const [x, y] = this.place(event);
    const began = this.pressed;
    this.pressed = this.dragged = undefined;
    if (began !== undefined && Math.abs(x - began) > 4)
      return this.setRange(this.timeAt(Math.min(x, began)), this.timeAt(Math.max(x, began)));
    const found = this.at(x, y);
    if (found) this.choose(found);
  }

  leave() {
    if (this.pressed === undefined) return;
    this.pressed = this.dragged = undefined;
    this.draw();
  }

  choose(slice) {
    this.current = slice;
    if (slice.end < this.from || slice.begin > this.to) {
      const half = (this.to - this.from) / 2;
      this.setRange(slice.begin - half, slice.begin + half);
    } else {
      this.draw();
    }
    this.status.textContent = this.describe(slice);
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.timeAt(this.place(event)[0]));
  }

  key(event) {
    const at = this.current ? this.slices.indexOf(this.current) : -1;
    if (event.key === "ArrowRight" && at + 1 < this.slices.length) this.choose(this.slices[at + 1]);
    else if (event.key === "ArrowLeft" && at > 0) this.choose(this.slices[at - 1]);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "Enter" && this.current) this.setRange(this.current.begin, this.current.end);
    else if (event.key === "Escape" || event.key === "0") this.setRange(0, this.whole);
    else return;
    event.preventDefault();
  }
}

function addTimeline() {
  if (!data.timeline || !data.timeline.rows.length) return;
  const section = addSection("timeline", "Timeline",
    "Compiles of each thread with torch's phases inside, ranges that the program marks, and the processes that were started. " +
    "Keys: left and right, + and -, Enter, Escape.");
  window.timelineView = new TimelineView(data.timeline, section);
}
