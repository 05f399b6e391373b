// The largest weights as bars to both sides of zero.

const FIRST_SHOWN = 20;

function showWeights() {
  const spec = data.weights;
  if (!spec) return;
  const box = byId("weights-bars"), told = byId("weights-told"), more = byId("weights-more");
  const find = byId("find-feature"), choice = byId("class");
  const units = [...document.querySelectorAll("[data-unit]")];
  const view = { unit: 1, shown: FIRST_SHOWN };
  const holders = (feature) => (spec.groups ? numbers(spec.groups[spec.group[feature]]) : []);
  const named = (list) => names(list.map((party) => spec.parties[party]), 3);

  function look(list) {
    if (!list.length || spec.parties.length > MOST_NAMED) return { class: "tile f0" };
    if (list.length > 1) {
      return list.length === spec.parties.length ? { class: "everyone" } : { fill: stripes(list) };
    }
    const { colour, tint } = partyLook(list[0]);
    return { class: `tile f${colour} t${tint}` };
  }

  function line(feature, weight, most) {
    const list = holders(feature);
    const row = html("div", { class: "weight", role: "listitem" });
    const share = (50 * Math.abs(weight)) / most;
    const drawn = svg("svg", { class: "bar", "aria-hidden": "true" });
    drawn.append(svg("rect", {
      x: `${weight < 0 ? 50 - share : 50}%`, width: `${share}%`, height: "100%", ...look(list),
    }));
    drawn.append(svg("line", { x1: "50%", x2: "50%", y1: 0, y2: "100%", class: "zero" }));
    const name = html("span", { class: "name" });
    name.append(html("span", {}, spec.names[feature]));
    if (list.length) {
      const who = list.length === spec.parties.length && list.length > 1 ? "everyone" : named(list);
      name.append(html("small", {}, ` ${who}`));
    }
    row.append(name, drawn, html("span", { class: "n" }, `${weight < 0 ? "−" : "+"}${short(Math.abs(weight))}`));
    return row;
  }

  function draw() {
    const wanted = find.value.trim().toLowerCase();
    const rows = [...spec.rows[Number(choice.value || 0)]];
    rows.sort((a, b) => Math.abs(b[view.unit]) - Math.abs(a[view.unit]));
    const most = Math.max(...rows.map((row) => Math.abs(row[view.unit])), 1e-300);
    const found = rows.filter(([feature]) => {
      const who = holders(feature).map((party) => spec.parties[party]).join(" ");
      return `${spec.names[feature]} ${who}`.toLowerCase().includes(wanted);
    });
    box.setAttribute("role", "list");
    box.replaceChildren(...found.slice(0, view.shown).map((row) => line(row[0], row[view.unit], most)));
    const hidden = found.length - Math.min(found.length, view.shown);
    const of = rows.length < spec.total ? `the ${whole(rows.length)} largest of ${whole(spec.total)}` : whole(rows.length);
    told.textContent = found.length
      ? `${whole(Math.min(found.length, view.shown))} of ${wanted ? `${whole(found.length)} that match, of ` : ""}${of}.`
      : `None of ${of} matches.`;
    more.hidden = hidden === 0;
  }

  find.addEventListener("input", () => { view.shown = FIRST_SHOWN; draw(); });
  choice.addEventListener("change", () => { view.shown = FIRST_SHOWN; draw(); });
  more.addEventListener("click", () => { view.shown += 60; draw(); });
  for (const button of units) {
    button.addEventListener("click", () => { view.unit = Number(button.dataset.unit); press(units, button); draw(); });
  }
  draw();
}
