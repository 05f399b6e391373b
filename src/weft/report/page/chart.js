// Curves against a chosen cost, with a read-out for pointer and keyboard.

const AXES = {
  i: { title: "iterations", at: (grid, k) => grid.i[k], word: whole },
  t: { title: "round trips, matching and scaling included", at: (grid, k) => grid.t[k], word: whole },
  b: { title: "bytes, to and from the parties", at: (grid, k) => grid.b[k], word: bytes },
  s: {
    title: "modelled seconds",
    at: (grid, k, latency) => grid.c[k] + latency * grid.t[k],
    word: (value) => `${short(value)} s`,
  },
};

class Chart {
  constructor(spec, grids, view) {
    Object.assign(this, { spec, grids, view, active: null });
    this.box = byId(`chart-${spec.id}`);
    this.tip = html("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" });
    onWidth(this.box, () => this.draw());
  }

  /** Points of the curves that are shown: [x, y, place in the grid]. */
  points() {
    const { axis, latency, hidden, logX } = this.view;
    return this.spec.series.filter((s) => !hidden.has(s.name)).map((series) => {
      const grid = this.grids[series.grid];
      const list = [];
      series.y.forEach((y, k) => {
        const x = AXES[axis].at(grid, k, latency);
        if (y !== null && !(logX && x <= 0) && !(this.log && y <= 0 && this.spec.floor === undefined)) {
          list.push([x, y, k]);
        }
      });
      return { series, list };
    });
  }

  get log() { return this.spec.log || this.view.logY; }

  limits(curves) {
    const xs = curves.flatMap((c) => c.list.map((p) => p[0]));
    const xHigh = Math.max(...xs, this.view.logX ? 10 : 0);
    const first = Math.min(...xs, xHigh);
    // Where most of the way is preparation, the picture begins shortly before the first point.
    const late = first > 0.4 * xHigh ? Math.max(0, first - Math.max(0.15 * (xHigh - first), 0.02 * xHigh)) : 0;
    const xLow = this.view.logX ? Math.min(first, xHigh / 10) : late;
    const { floor, ceiling, target, lines } = this.spec;
    let ys = curves.flatMap(({ series, list }) => {
      if (series.look === "grey") return [];
      // The first points may be far off; the picture is about where a run ends up.
      return list.slice(this.log || list.length < 5 ? 0 : Math.floor(list.length / 20)).map((p) => p[1]);
    });
    if (!ys.length) ys = curves.flatMap((c) => c.list.map((p) => p[1]));
    if (!ys.length) ys = this.log ? [] : [0, 1];
    ys = [...ys, ...(lines || []).map((l) => l.y), ...(target ? [target] : [])];
    if (!this.log) {
      const low = Math.min(...ys), high = Math.max(...ys), pad = 0.08 * (high - low || Math.abs(high) || 1);
      return [xLow, xHigh || 1, low - pad, high + pad];
    }
    const seen = ys.filter((y) => y > 0);
    let low = Math.min(...seen, 1e300), high = Math.max(...seen, 0);
    if (!seen.length) [low, high] = [1e-3, 1];
    if (floor !== undefined) low = Math.max(low, floor);
    if (ceiling !== undefined) high = Math.min(high, ceiling);
    return [xLow, xHigh || 1, low / 1.6, Math.max(high, low * 10) * 1.6];
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    const height = width < 520 ? 250 : 320;
    const edge = { left: 58, right: 14, top: 10, bottom: 40 };
    const curves = this.points();
    const [xLow, xHigh, yLow, yHigh] = this.limits(curves);
    const x = scale(xLow, xHigh, edge.left, width - edge.right, this.view.logX);
    const y = scale(yLow, yHigh, height - edge.bottom, edge.top, this.log);
    const root = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "img",
      "aria-label": `${this.spec.title} against ${AXES[this.view.axis].title}; arrow keys walk along the points`,
    });
    root.dataset.scale = [xLow, xHigh, x.from, x.to, this.view.logX ? 1 : 0].join(" ");
    this.words = [];
    this.frame(root, x, y, width, height, edge);
    const inside = svg("g", { "clip-path": `url(#clip-${this.spec.id})` });
    // Words stand behind the curves, which must not be hidden, and before the grid.
    root.append(...this.words, inside);
    const clamp = (value) => (this.log ? Math.min(Math.max(value, y.low), y.high) : value);
    this.shown = [];
    for (const { series, list } of curves) this.curve(inside, series, list, x, (v) => y(clamp(v)), y);
    this.focus = svg("circle", { r: 6, class: "focus", visibility: "hidden" });
    root.append(this.focus);
    root.addEventListener("pointermove", (event) => this.point(event, root));
    root.addEventListener("pointerdown", (event) => this.point(event, root));
    root.addEventListener("pointerleave", () => this.tell(null));
    root.addEventListener("keydown", (event) => this.walk(event));
    root.addEventListener("blur", () => this.tell(null));
    this.box.replaceChildren(root, this.tip);
    this.tip.hidden = true;
    this.active = null;
  }

  frame(root, x, y, width, height, edge) {
    const clip = svg("clipPath", { id: `clip-${this.spec.id}` });
    clip.append(svg("rect", {
      x: x.from - 8, y: edge.top - 6, width: x.to - x.from + 16, height: height - edge.top - edge.bottom + 12,
    }));
    const defs = svg("defs");
    defs.append(clip);
    root.append(defs);
    for (const value of ticks(y, 6)) {
      root.append(svg("line", { x1: x.from, x2: x.to, y1: y(value), y2: y(value), class: "grid" }));
      root.append(svg("text", { x: x.from - 8, y: y(value) + 4, class: "tick end" }, short(value)));
    }
    const axis = AXES[this.view.axis];
    for (const value of ticks(x, width < 520 ? 4 : 8)) {
      root.append(svg("text", { x: x(value), y: height - edge.bottom + 18, class: "tick mid" }, axis.word(value)));
    }
    const title = this.view.axis === "s" && width >= 520
      ? `modelled seconds: slowest parties' computing + ${short(this.view.latency)} s a round trip` : axis.title;
    root.append(svg("text", { x: (x.from + x.to) / 2, y: height - 4, class: "tick mid" }, title));
    const { target, lines } = this.spec;
    if (target && target >= y.low && target <= y.high) {
      this.across(root, x, y(target), `asked for: ${short(target)}`, "target begin");
    }
    (lines || []).forEach((line, at) => {
      if (line.y >= y.low && line.y <= y.high) this.across(root, x, y(line.y), line.name, "base", at % 2);
    });
  }

  across(root, x, at, words, kind, below = 0) {
    root.append(svg("line", { x1: x.from, x2: x.to, y1: at, y2: at, class: kind }));
    const begin = kind.endsWith("begin");
    const place = { x: begin ? x.from + 4 : x.to, y: at + (below ? 14 : -5) };
    this.words.push(svg("text", { ...place, class: `tick halo ${begin ? "" : "end "}${kind}` }, words));
  }

  curve(inside, series, list, x, y, scaleY) {
    const places = list.map(([px, py, k]) => [x(px), y(py), k, px, py]);
    if (!places.length) return;
    const look = series.look === "grey" ? "kgrey" : `k${series.look}`;
    const style = `${look} d${series.dash || 0}${series.bold ? " bold" : ""}${series.faint ? " faint" : ""}`;
    const d = places.map(([a, b], at) => `${at ? "L" : "M"}${a.toFixed(2)} ${b.toFixed(2)}`).join("");
    if (series.line) inside.append(svg("path", { d, class: `curve ${style}`, "data-name": series.name }));
    if (series.mark) {
      // A stroke of no length with round ends is a dot: one element for all of them.
      const seen = places.filter((p) => !this.log || p[4] >= scaleY.low);
      const dots = seen.map(([a, b]) => `M${a.toFixed(2)} ${b.toFixed(2)}h0`).join("");
      const size = places.length > 120 ? "small" : "";
      inside.append(svg("path", { d: dots, class: `dots ${style} ${size}`, "data-dots": series.name }));
      // What is below all scales, such as a problem solved exactly, points down.
      const below = places.filter((p) => this.log && p[4] < scaleY.low).slice(-1);
      for (const [a, b] of below) {
        inside.append(svg("path", { d: `M${a - 5} ${b - 9}h10l-5 8z`, class: `down f${series.look}` }));
      }
    }
    this.shown.push({ series, places });
  }

  point(event, root) {
    const box = root.getBoundingClientRect();
    const mx = event.clientX - box.left, my = event.clientY - box.top;
    let best = null, least = Infinity;
    this.shown.forEach(({ places }, s) => places.forEach(([a, b], k) => {
      const distance = Math.abs(a - mx) + 0.4 * Math.abs(b - my);
      if (distance < least) { least = distance; best = [s, k]; }
    }));
    this.tell(best);
  }

  walk(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") this.tell(null);
    if (!moves[event.key] || !this.shown.length) return;
    event.preventDefault();
    const [s, k] = this.active || [0, -1];
    const series = (s + moves[event.key][0] + this.shown.length) % this.shown.length;
    const last = this.shown[series].places.length - 1;
    this.tell([series, Math.min(Math.max(k + moves[event.key][1], 0), last)]);
  }

  tell(which) {
    this.active = which;
    this.focus.setAttribute("visibility", which ? "visible" : "hidden");
    this.tip.hidden = !which;
    if (!which) return;
    const { series, places } = this.shown[which[0]];
    const [a, b, k, , value] = places[which[1]];
    const grid = this.grids[series.grid], latency = this.view.latency;
    this.focus.setAttribute("cx", a);
    this.focus.setAttribute("cy", b);
    const lines = [
      [series.name, "strong"],
      [`${this.spec.log ? value.toExponential(2) : Number(value.toPrecision(6))}`, "big"],
      [`iteration ${whole(grid.i[k])} · ${plural(grid.t[k], "round trip")}`, ""],
      [`${bytes(grid.b[k])} · ${short(AXES.s.at(grid, k, latency))} s at ${short(latency)} s a trip`, ""],
    ];
    this.tip.replaceChildren(...lines.map(([words, kind]) => html("div", { class: kind }, words)));
    const width = this.box.clientWidth, own = this.tip.offsetWidth;
    this.tip.style.left = `${Math.min(Math.max(a + 12, 4), width - own - 4)}px`;
    if (a + 12 + own > width) this.tip.style.left = `${Math.max(4, a - own - 12)}px`;
    this.tip.style.top = `${Math.max(0, b - this.tip.offsetHeight - 10)}px`;
  }
}

function showCurves() {
  const { grids, charts, latency } = data.curves;
  const view = { axis: "t", latency, hidden: new Set(), logX: false, logY: false };
  const drawn = charts.map((spec) => new Chart(spec, grids, view));
  const again = () => drawn.forEach((chart) => chart.draw());

  const buttons = [...document.querySelectorAll("[data-axis]")];
  const choose = (axis) => {
    view.axis = axis;
    press(buttons, buttons.find((button) => button.dataset.axis === axis));
    again();
  };
  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.axis));

  const field = byId("latency"), slider = byId("latency-slider");
  const presets = [...document.querySelectorAll("[data-latency]")];
  const wait = (seconds, moved) => {
    if (!(seconds >= 0) || !isFinite(seconds)) return;
    view.latency = seconds;
    if (moved !== field) field.value = String(seconds);
    if (moved !== slider) slider.value = String(seconds);
    press(presets, presets.find((button) => Number(button.dataset.latency) === seconds));
    // Whoever sets seconds wants to see them.
    if (moved && view.axis !== "s") choose("s"); else again();
  };
  field.addEventListener("input", () => wait(parseFloat(field.value), field));
  slider.addEventListener("input", () => wait(Number(slider.value), slider));
  for (const button of presets) button.addEventListener("click", () => wait(Number(button.dataset.latency), button));
  press(presets, presets.find((button) => Number(button.dataset.latency) === latency));

  byId("log-x").addEventListener("change", (event) => { view.logX = event.target.checked; again(); });
  const logY = byId("log-y");
  if (logY) logY.addEventListener("change", () => { view.logY = logY.checked; again(); });

  const legend = byId("legend"), seen = new Set();
  for (const series of charts.flatMap((chart) => chart.series)) {
    if (seen.has(series.name)) continue;
    seen.add(series.name);
    const button = html("button", { type: "button", "aria-pressed": "true" });
    const look = series.look === "grey" ? "kgrey" : `k${series.look}`;
    const sample = svg("svg", { width: 26, height: 10, "aria-hidden": "true" });
    sample.append(svg("path", { d: "M1 5H25", class: `curve ${look} d${series.dash || 0}${series.bold ? " bold" : ""}` }));
    if (series.mark) sample.append(svg("path", { d: "M13 5h0", class: `dots ${look}` }));
    button.append(sample, html("span", {}, series.name));
    button.addEventListener("click", () => {
      const hide = !view.hidden.has(series.name);
      if (hide) view.hidden.add(series.name); else view.hidden.delete(series.name);
      button.setAttribute("aria-pressed", String(!hide));
      again();
    });
    legend.append(button);
  }
}
