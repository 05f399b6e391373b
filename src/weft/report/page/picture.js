// The picture of who holds which tile.

/** Shares of a length by size, none of them below a least. */
function shares(sizes, length, least) {
  const floor = Math.min(least, length / sizes.length);
  const given = sizes.map(() => 0);
  let open = sizes.map((_, at) => at), left = length;
  for (;;) {
    const sum = open.reduce((total, at) => total + sizes[at], 0);
    const small = open.filter((at) => (sizes[at] / sum) * left < floor);
    if (!small.length || small.length === open.length) {
      for (const at of open) given[at] = small.length ? left / open.length : (sizes[at] / sum) * left;
      return given;
    }
    for (const at of small) { given[at] = floor; left -= floor; }
    open = open.filter((at) => !small.includes(at));
  }
}

class Picture {
  constructor(spec) {
    this.spec = spec;
    this.box = byId("picture");
    this.told = byId("picture-told");
    this.rows = this.groups(spec.rows, spec.moreRows);
    this.columns = this.groups(spec.columns, spec.moreColumns);
    for (const row of this.rows) row.labels = row.labels === undefined ? [] : numbers(row.labels);
    this.cells = this.rows.map((row) => this.columns.map((column) => this.holders(row, column)));
    this.pointed = null;
    this.at = null;
    onWidth(this.box, () => this.draw());
  }

  groups(list, more) {
    const made = list.map((group) => ({ ...group, tiles: numbers(group.tiles) }));
    for (const group of made) group.set = new Set(group.tiles);
    if (more) made.push({ rest: true, size: more.size, groups: more.groups, tiles: [], set: new Set() });
    return made;
  }

  /** Parties that hold a cell; null where groups are summed up. */
  holders(row, column) {
    if (row.rest || column.rest) return null;
    const [few, many] = row.tiles.length < column.tiles.length ? [row, column] : [column, row];
    const tiles = few.tiles.filter((tile) => many.set.has(tile));
    const party = this.spec.tileParty ? (tile) => this.spec.tileParty[tile] : (tile) => tile;
    return [...new Set(tiles.map(party))];
  }

  /** What is summed up gets a tenth, however large it is. */
  split(groups, length, least) {
    const rest = groups.filter((group) => group.rest).length;
    const kept = groups.filter((group) => !group.rest).map((group) => group.size);
    const given = shares(kept, length * (rest ? 0.9 : 1), least);
    if (rest) given.push(length * 0.1);
    const ends = [0];
    for (const share of given) ends.push(ends[ends.length - 1] + share);
    return ends;
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    const left = width < 520 ? 44 : 64, top = 26;
    const inner = width - left - 1;
    const tall = Math.min(560, Math.max(180, 26 * this.rows.length, width < 520 ? 240 : 320));
    const xs = this.split(this.columns, inner, 5).map((v) => v + left);
    const ys = this.split(this.rows, tall, 4).map((v) => v + top);
    const root = svg("svg", {
      width, height: top + tall + 2, viewBox: `0 0 ${width} ${top + tall + 2}`, tabindex: "0", role: "img",
      "aria-label": "Groups of samples by groups of features, coloured by the parties that hold them; " +
        "arrow keys walk over the cells",
    });
    this.fill(root, xs, ys);
    this.label(root, xs, ys, left, top);
    this.outline = svg("rect", { class: "outline", visibility: "hidden" });
    root.append(this.outline);
    Object.assign(this, { xs, ys });
    const find = (ends, value) => {
      for (let at = 0; at + 1 < ends.length; at += 1) if (value >= ends[at] && value < ends[at + 1]) return at;
      return -1;
    };
    const point = (event) => {
      const box = root.getBoundingClientRect();
      const column = find(xs, event.clientX - box.left), row = find(ys, event.clientY - box.top);
      this.tell(row < 0 || column < 0 ? null : [row, column]);
    };
    root.addEventListener("pointermove", point);
    root.addEventListener("pointerdown", point);
    root.addEventListener("keydown", (event) => this.walk(event));
    this.box.replaceChildren(root);
    this.tell(this.at);
  }

  /** One path for every look: thousands of cells stay a few elements. */
  fill(root, xs, ys) {
    const between = (ends) => Math.min(1, (ends[ends.length - 1] - ends[0]) / ends.length / 8);
    const gapX = between(xs), gapY = between(ys);
    const looks = new Map();
    this.cells.forEach((line, r) => line.forEach((parties, c) => {
      const look = this.look(parties);
      const w = Math.max(0.4, xs[c + 1] - xs[c] - gapX), h = Math.max(0.4, ys[r + 1] - ys[r] - gapY);
      const d = `M${xs[c].toFixed(2)} ${ys[r].toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h-${w.toFixed(2)}z`;
      const key = JSON.stringify(look);
      if (!looks.has(key)) looks.set(key, { look, parts: [] });
      looks.get(key).parts.push(d);
    }));
    for (const { look, parts } of looks.values()) root.append(svg("path", { ...look, d: parts.join("") }));
  }

  look(parties) {
    if (parties === null) return { class: "rest" };
    if (!parties.length) return { class: "nobody" };
    const many = this.spec.parties.length > MOST_NAMED;
    const dim = this.pointed && !parties.some((party) => this.pointed.has(party)) ? " dim" : "";
    // More parties than colours: these then say how many hold a cell.
    if (many) return { class: `many${Math.min(parties.length, 3)}${dim}` };
    if (parties.length === 1) {
      const { colour, tint } = partyLook(parties[0]);
      return { class: `tile f${colour} t${tint}${dim}` };
    }
    return { fill: stripes(parties), class: `striped${dim}` };
  }

  label(root, xs, ys, left, top) {
    this.rows.forEach((row, r) => {
      if (ys[r + 1] - ys[r] < 13) return;
      const words = row.rest ? "…" : whole(row.size);
      root.append(svg("text", { x: left - 8, y: (ys[r] + ys[r + 1]) / 2 + 4, class: "tick end" }, words));
    });
    this.columns.forEach((column, c) => {
      if (xs[c + 1] - xs[c] < 30) return;
      const words = column.rest ? "…" : whole(column.size);
      root.append(svg("text", { x: (xs[c] + xs[c + 1]) / 2, y: top - 8, class: "tick mid" }, words));
    });
    const { parties } = this.spec;
    const last = this.rows[this.rows.length - 1];
    if (last.rest) {
      const words = `${whole(last.groups)} smaller groups, ${plural(last.size, "sample")}`;
      const at = { x: (xs[0] + xs[xs.length - 1]) / 2, y: (ys[ys.length - 2] + ys[ys.length - 1]) / 2 + 4 };
      root.append(svg("text", { ...at, class: "tick mid name" }, words));
    }
    this.cells.forEach((line, r) => line.forEach((held, c) => {
      const w = xs[c + 1] - xs[c], h = ys[r + 1] - ys[r];
      if (!held || held.length !== 1 || w < 56 || h < 20 || parties.length > MOST_NAMED) return;
      const room = Math.floor(w / 8), name = parties[held[0]];
      const words = name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name;
      root.append(svg("text", {
        x: (xs[c] + xs[c + 1]) / 2, y: (ys[r] + ys[r + 1]) / 2 + 4, class: `mid name ${wordsOn(partyLook(held[0]))}`,
      }, words));
    }));
  }

  walk(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") this.tell(null);
    if (!moves[event.key]) return;
    event.preventDefault();
    const [r, c] = this.at ? [this.at[0] + moves[event.key][0], this.at[1] + moves[event.key][1]] : [0, 0];
    const clip = (value, most) => Math.min(Math.max(value, 0), most - 1);
    this.tell([clip(r, this.rows.length), clip(c, this.columns.length)]);
  }

  tell(at) {
    this.at = at;
    this.outline.setAttribute("visibility", at ? "visible" : "hidden");
    if (!at) { this.told.textContent = this.hint(); return; }
    const [r, c] = at, { xs, ys } = this;
    const box = { x: xs[c], y: ys[r], width: xs[c + 1] - xs[c], height: ys[r + 1] - ys[r] };
    for (const [key, value] of Object.entries(box)) this.outline.setAttribute(key, value);
    this.told.textContent = this.sentence(this.rows[r], this.columns[c], this.cells[r][c]);
  }

  hint() { return "Point at a cell, or reach the picture with the tab key and walk with the arrows."; }

  sentence(row, column, held) {
    const named = (list) => names(list.map((party) => this.spec.parties[party]));
    if (row.rest || column.rest) {
      const rows = row.rest ? `${plural(row.groups, "further group")} of ${plural(row.size, "sample")}` : plural(row.size, "sample");
      const columns = column.rest ? `${plural(column.groups, "further group")} of ${plural(column.size, "feature")}` : plural(column.size, "feature");
      return `${rows} × ${columns}: too many groups to draw each.`;
    }
    const who = held.length ? named(held) : "Nobody";
    const size = `${plural(row.size, "sample")} × ${plural(column.size, "feature")}`;
    const labels = row.labels.length ? `; their labels are at ${named(row.labels)}` : "";
    const share = held.length > 1 ? ` (${held.length} holders)` : "";
    return `${who}${share}: ${size}${labels}.`;
  }

  point(parties) {
    this.pointed = parties;
    this.draw();
  }
}

function showPicture() {
  if (!data.tiles) return;
  const picture = new Picture(data.tiles);
  const { parties } = data.tiles;
  const legend = byId("party-legend"), find = byId("find-party");
  const buttons = [];
  if (parties.length > MOST_NAMED) {
    const words = [["many1", "one party"], ["many2", "two parties"], ["many3", "three or more"], ["nobody", "nobody"]];
    for (const [look, said] of words) {
      const chip = html("span", { class: "key" });
      const drawn = svg("svg", { width: 12, height: 12, "aria-hidden": "true" });
      drawn.append(svg("rect", { width: 12, height: 12, rx: 2, class: look }));
      chip.append(drawn, html("span", {}, said));
      legend.append(chip);
    }
  } else {
    parties.forEach((name, party) => {
      const { colour, tint } = partyLook(party);
      const button = html("button", { type: "button", "aria-pressed": "false" });
      const chip = svg("svg", { width: 12, height: 12, "aria-hidden": "true" });
      chip.append(svg("rect", { width: 12, height: 12, rx: 2, class: `tile f${colour} t${tint}` }));
      button.append(chip, html("span", {}, name));
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        press(buttons, on ? button : null);
        if (find) find.value = "";
        picture.point(on ? new Set([party]) : null);
      });
      buttons.push(button);
    });
    legend.append(...buttons);
  }
  if (!find) return;
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    const found = new Set(parties.flatMap((name, at) => (name.toLowerCase().includes(wanted) ? [at] : [])));
    press(buttons, null);
    picture.point(wanted ? found : null);
    picture.told.textContent = wanted ? `${whole(found.size)} of ${whole(parties.length)} parties match.` : picture.hint();
  });
}
