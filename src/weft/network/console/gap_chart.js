// The certified gap of a run, over time or iterations, with a read-out for pointer and keyboard.

const GAP_AXES = {
  s: { at: (point) => point[0], title: (since) => `seconds since ${since}` },
  i: { at: (point) => point[1], title: () => "iterations" },
};

class GapChart {
  constructor(box, since) {
    Object.assign(this, { box, since, points: [], asked: null, axis: "s", active: null });
    this.tip = html("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" });
    onWidth(box, () => this.draw());
  }

  show(points, asked, axis) {
    Object.assign(this, { points, asked, axis });
    this.draw();
  }

  limits() {
    const seen = this.points.map((p) => p[2]).filter((gap) => gap > 0);
    if (this.asked > 0) seen.push(this.asked);
    const low = Math.min(...seen, 1), high = Math.max(...seen, low * 10);
    return [low / 1.8, high * 1.8];
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width || !this.points.length) return;
    const height = width < 520 ? 190 : 220, axis = GAP_AXES[this.axis];
    const edge = { left: 54, right: 12, top: 10, bottom: 36 };
    const last = this.points[this.points.length - 1];
    const [low, high] = this.limits();
    const end = Math.max(axis.at(last), 1), first = axis.at(this.points[0]);
    // Where most of the time went by before the first gap, the picture begins shortly before it.
    const begin = first > 0.4 * end ? Math.max(0, first - Math.max(0.15 * (end - first), 0.02 * end)) : 0;
    const x = scale(begin, end, edge.left, width - edge.right, false);
    const y = scale(low, high, height - edge.bottom, edge.top, true);
    const root = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "img",
      "aria-label": `Certified gap: ${short(last[2])} at iteration ${last[1]}, ${short(last[0])} s`
        + `${this.asked ? `; asked for ${short(this.asked)}` : ""}; arrow keys walk along the points`,
    });
    for (const value of ticks(y, 5)) {
      root.append(svg("line", { x1: x.from, x2: x.to, y1: y(value), y2: y(value), class: "grid" }));
      root.append(svg("text", { x: x.from - 8, y: y(value) + 4, class: "tick end" }, short(value)));
    }
    // Iterations have no fractions, and seconds need none.
    for (const value of ticks(x, width < 520 ? 4 : 8).filter(Number.isInteger)) {
      root.append(svg("text", { x: x(value), y: height - edge.bottom + 16, class: "tick mid" }, whole(value)));
    }
    root.append(svg("text", { x: (x.from + x.to) / 2, y: height - 4, class: "tick mid" }, axis.title(this.since)));
    if (this.asked > 0) {
      root.append(svg("line", { x1: x.from, x2: x.to, y1: y(this.asked), y2: y(this.asked), class: "target" }));
      root.append(svg("text", { x: x.from + 4, y: y(this.asked) - 5, class: "tick halo target" }, `asked for: ${short(this.asked)}`));
    }
    this.places = this.points.map((p) => [x(axis.at(p)), y(Math.min(Math.max(p[2], low), high)), p]);
    const steps = this.places.map(([a, b], at) => `${at ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    const dots = this.places.map(([a, b]) => `M${a.toFixed(1)} ${b.toFixed(1)}h0`).join("");
    root.append(svg("path", { d: steps, class: "curve bold k0" }));
    root.append(svg("path", { d: dots, class: `dots k0 ${this.places.length > 80 ? "small" : ""}` }));
    this.focus = svg("circle", { r: 6, class: "focus", visibility: "hidden" });
    root.append(this.focus);
    for (const kind of ["pointermove", "pointerdown"]) root.addEventListener(kind, (event) => this.point(event, root));
    root.addEventListener("pointerleave", () => this.tell(null));
    root.addEventListener("blur", () => this.tell(null));
    root.addEventListener("keydown", (event) => this.walk(event));
    const focused = this.box.contains(document.activeElement), active = this.active;
    this.box.replaceChildren(root, this.tip);
    // New points must not take the read-out away from whoever walks along the old ones.
    if (focused) root.focus({ preventScroll: true });
    this.tell(focused && active !== null && active < this.places.length ? active : null);
  }

  point(event, root) {
    const at = event.clientX - root.getBoundingClientRect().left;
    let best = 0;
    this.places.forEach(([a], k) => { if (Math.abs(a - at) < Math.abs(this.places[best][0] - at)) best = k; });
    this.tell(best);
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.tell(null);
    if (step === undefined) return;
    event.preventDefault();
    const from = this.active === null ? (step > 0 ? -1 : this.places.length) : this.active;
    this.tell(Math.min(Math.max(from + step, 0), this.places.length - 1));
  }

  tell(which) {
    this.active = which;
    this.focus.setAttribute("visibility", which === null ? "hidden" : "visible");
    this.tip.hidden = which === null;
    if (which === null) return;
    const [a, b, [seconds, iteration, gap]] = this.places[which];
    this.focus.setAttribute("cx", a);
    this.focus.setAttribute("cy", b);
    this.tip.replaceChildren(
      html("div", { class: "big" }, gap.toExponential(2)),
      html("div", {}, `iteration ${whole(iteration)} · ${short(seconds)} s`),
    );
    const own = this.tip.offsetWidth;
    this.tip.style.left = `${a + 12 + own > this.box.clientWidth ? Math.max(4, a - own - 12) : a + 12}px`;
    this.tip.style.top = `${Math.max(0, b - this.tip.offsetHeight - 10)}px`;
  }
}
