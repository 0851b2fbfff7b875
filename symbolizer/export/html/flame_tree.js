"use strict";
// The flame graph's trees, made from sums per node when they are looked at. A view node is one
// rectangle: {label, parent, a, b, cpuA, cpuB}, where b is the time that is shown and a that of the
// baseline of a comparison (0 without one). Children come from childrenOf().

const kNoStack = -1;
// CPython itself: between two Python functions it has frames of its own, which say nothing.
const kInterpreter = /(^|\/)(lib)?python3[^/]*$/;

class FlameTree {
  constructor(flame) {
    this.names = flame.names;
    this.files = flame.files.map((file) => file);
    this.fileOf = flame.fileOf;
    this.lineOf = flame.lineOf;
    this.kindOf = flame.kindOf;
    const count = flame.labelOf.length + 1;
    this.parent = new Int32Array(count);
    this.label = new Int32Array(count).fill(kNoStack);
    this.firstChild = new Int32Array(count);
    this.nextSibling = new Int32Array(count);
    for (let node = 1; node < count; node++) {
      this.parent[node] = node - flame.parentBefore[node - 1];
      this.label[node] = flame.labelOf[node - 1];
    }
    for (let node = count - 1; node > 0; node--) {
      this.nextSibling[node] = this.firstChild[this.parent[node]];
      this.firstChild[this.parent[node]] = node;
    }
    this.groups = flame.groups.map((group) => {
      let node = 0;
      return { ...group, nodes: group.nodes.map((step) => (node += step)) };
    });
  }

  // "train.py:69" of a label, or the file of native code.
  place(label) {
    if (label < 0) return "";
    const file = this.files[this.fileOf[label]];
    return this.lineOf[label] > 0 ? `${file}:${this.lineOf[label]}` : file;
  }

  name(label) {
    return label < 0 ? "(no frames)" : this.names[label];
  }

  // What each node took, alone and with what it called: Map of node to {self, all, cpu}.
  sums(groups, value) {
    const sums = new Map();
    const at = (node) => {
      let sum = sums.get(node);
      if (!sum) sums.set(node, (sum = { self: 0, all: 0, cpu: 0 }));
      return sum;
    };
    for (const group of groups) {
      for (let i = 0; i < group.nodes.length; i++) {
        const time = this.time(group, i, value);
        const sum = at(group.nodes[i]);
        sum.self += time;
        sum.all += time;
        sum.cpu += value === "wait" ? 0 : group.cpuOf[i];
      }
    }
    // A caller's number is less than those of what it calls. Their callers join the end of the list.
    const nodes = [...sums.keys()];
    for (let i = 0; i < nodes.length; i++) {
      const parent = this.parent[nodes[i]];
      if (nodes[i] !== 0 && !sums.has(parent)) {
        at(parent);
        nodes.push(parent);
      }
    }
    nodes.sort((a, b) => b - a);
    for (const node of nodes) {
      if (node === 0) continue;
      const sum = sums.get(node);
      const above = sums.get(this.parent[node]);
      above.all += sum.all;
      above.cpu += sum.cpu;
    }
    return sums;
  }

  time(group, i, value) {
    return (value === "wait" ? 0 : group.cpuOf[i]) + (value === "cpu" ? 0 : group.waitOf[i]);
  }

  // The root of a view of `shown` groups; `baseline` groups are compared with, if there are any.
  // options: value ("wall", "cpu", "wait"), inverted, split (a level of groups below the root), shares.
  root(shown, baseline, options) {
    const view = { label: kNoStack, title: "all", parent: null, a: 0, b: 0, cpuA: 0, cpuB: 0 };
    if (options.split && baseline.length === 0) {
      view.children = shown.map((group) => {
        const child = this.root([group], [], { ...options, split: false });
        return { ...child, title: group.name, isGroup: true, parent: view };
      }).filter((child) => child.b > 0).sort((x, y) => y.b - x.b);
      for (const child of view.children) {
        view.b += child.b;
        view.cpuB += child.cpuB;
      }
      return view;
    }
    if (options.inverted) this.invertedRoot(view, shown, baseline, options);
    else this.topDownRoot(view, shown, baseline, options);
    // As shares: the baseline as if it had taken as long.
    view.scale = options.shares && view.a > 0 ? view.b / view.a : 1;
    view.a *= view.scale;
    return view;
  }

  // Frames that are left out of the view; their time is that of the frame that called them.
  hides(label, frames) {
    if (frames === "all" || this.kindOf[label] === 0) return false;
    return frames === "python" || kInterpreter.test(this.files[this.fileOf[label]]);
  }

  topDownRoot(view, shown, baseline, options) {
    const [b, a] = [this.sums(shown, options.value), this.sums(baseline, options.value)];
    const none = { self: 0, all: 0, cpu: 0 };
    view.add = (to, node) => {
      const [inA, inB] = [a.get(node) || none, b.get(node) || none];
      to.nodes.push(node);
      to.a += inA.all;
      to.b += inB.all;
      to.cpuA += inA.cpu;
      to.cpuB += inB.cpu;
    };
    view.nodes = [];
    view.add(view, 0);
    view.frames = options.frames;
    view.kind = "down";
  }

  invertedRoot(view, shown, baseline, options) {
    // Items: [node, a, b, cpuA, cpuB] of what nodes themselves took; further in, of their callers.
    const items = [];
    const add = (groups, isBaseline) => {
      for (const group of groups)
        for (let i = 0; i < group.nodes.length; i++) {
          const time = this.time(group, i, options.value);
          const cpu = options.value === "wait" ? 0 : group.cpuOf[i];
          if (time > 0)
            items.push(isBaseline ? [group.nodes[i], time, 0, cpu, 0] : [group.nodes[i], 0, time, 0, cpu]);
        }
    };
    add(baseline, true);
    add(shown, false);
    view.items = items;
    view.frames = options.frames;
    view.kind = "up";
    for (const item of items) {
      view.a += item[1];
      view.b += item[2];
      view.cpuA += item[3];
      view.cpuB += item[4];
    }
  }

  childrenOf(view) {
    if (!view.children) {
      view.children = view.kind === "up" ? this.callers(view) : this.callees(view);
      view.children.sort((x, y) => Math.max(y.a, y.b) - Math.max(x.a, x.b));
    }
    return view.children;
  }

  callees(view) {
    const byLabel = new Map();
    const visit = (above) => {
      for (let node = this.firstChild[above]; node !== 0; node = this.nextSibling[node]) {
        const label = this.label[node];
        if (this.hides(label, view.frames)) {
          visit(node);
          continue;
        }
        let child = byLabel.get(label);
        if (!child) {
          child = { label, parent: view, kind: "down", add: view.add, scale: view.scale, frames: view.frames,
            nodes: [], a: 0, b: 0, cpuA: 0, cpuB: 0 };
          byLabel.set(label, child);
        }
        view.add(child, node);
      }
    };
    view.nodes.forEach(visit);
    const children = [...byLabel.values()].filter((child) => child.a > 0 || child.b > 0);
    for (const child of children) child.a *= view.scale;
    return children;
  }

  callers(view) {
    const byLabel = new Map();
    for (const [at, a, b, cpuA, cpuB] of view.items) {
      let node = at;
      while (node !== 0 && this.hides(this.label[node], view.frames)) node = this.parent[node];
      const label = this.label[node];
      if (node === 0 && view.label >= 0) continue;  // the end of this path
      let child = byLabel.get(label);
      if (!child) {
        child = { label, parent: view, kind: "up", items: [], scale: view.scale, frames: view.frames, a: 0, b: 0, cpuA: 0, cpuB: 0 };
        byLabel.set(label, child);
      }
      child.a += a * view.scale;
      child.b += b;
      child.cpuA += cpuA;
      child.cpuB += cpuB;
      if (node !== 0) child.items.push([this.parent[node], a, b, cpuA, cpuB]);
    }
    return [...byLabel.values()];
  }

  // Labels whose name or place has the text.
  search(text) {
    const found = new Set();
    const wanted = text.toLowerCase();
    if (!wanted) return found;
    for (let label = 0; label < this.names.length; label++)
      if (this.names[label].toLowerCase().includes(wanted) || this.place(label).toLowerCase().includes(wanted))
        found.add(label);
    return found;
  }

  // Time of stacks with any of the labels on them, each once.
  matched(groups, value, labels) {
    const on = new Uint8Array(this.label.length);
    for (let node = 1; node < on.length; node++)
      on[node] = on[this.parent[node]] || labels.has(this.label[node]) ? 1 : 0;
    let sum = 0;
    for (const group of groups)
      for (let i = 0; i < group.nodes.length; i++)
        if (on[group.nodes[i]]) sum += this.time(group, i, value);
    return sum;
  }
}

// Whether a difference of CPU time is more than what chance makes of so many samples: twice the
// deviation of their difference. Waiting is measured, not sampled.
function beyondChance(view, periodA, periodB) {
  const deviation = Math.sqrt(view.cpuA * periodA + view.cpuB * periodB);
  return Math.abs(view.b - view.a) > 2 * deviation;
}
