// Asks again and again how the federation stands, and changes what has changed.

const EVERY = 3000;
const UNDER_WAY = ["starting", "running", "interrupted", "waiting"];
const SINCE = { submitter: "this page was opened" };
const view = { axis: "s", shown: data, lost: null };
/** Elements of runs by name, with what they showed last. */
const runs = new Map();

/** A span of time in words, no finer than needed. */
function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const badge = (words, kind) => html("span", { class: `badge ${kind}` }, words);
const plain = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const FINE = ["connected", "good", "over", "running"], LOUD = ["gone", "silent", "bad", "failed", "interrupted"];
const look = (state) => (FINE.includes(state) ? "fine" : LOUD.includes(state) ? "loud" : "quiet");

/** A table of rows of cells, each a text or an element; the first of a row is its header. */
function table(caption, titles, rows) {
  const made = html("table");
  made.append(html("caption", {}, caption));
  const head = html("tr");
  for (const title of titles) head.append(html("th", { scope: "col" }, title));
  const top = html("thead"), body = html("tbody");
  top.append(head);
  for (const cells of rows) {
    const row = html("tr");
    cells.forEach((cell, at) => {
      const made = at ? html("td") : html("th", { scope: "row" });
      made.append(cell);
      row.append(made);
    });
    body.append(row);
  }
  made.append(top, body);
  const scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
  scroll.append(made);
  return scroll;
}

/** When the state of a site began. */
const begun = (site) => (site.state === "silent" ? site.seen : site.since);

/** What somebody should look at, in sentences. */
function alarms(state) {
  const found = [];
  for (const site of state.sites) {
    // Who takes part in no run any more may stay away.
    if (site.state === "connected" || site.state === "unknown" || site.denied) continue;
    const since = begun(site);
    const words = { silent: "sends no heartbeats", gone: "is gone", away: "is not connected" }[site.state];
    found.push(`${site.name} ${words}${since ? `, since ${span(state.now - since)}` : ""}`);
  }
  for (const run of state.runs) if (run.waits) found.push(`${run.run} ${run.waits}`);
  for (const { about, state: how, found: what, mend } of state.symptoms) {
    if (how !== "good") found.push(`${about}: ${what}${mend ? `; ${mend}` : ""}`);
  }
  return found;
}

function showTop(state) {
  const headline = byId("headline"), words = `${plain(state.sentence)}.`;
  if (headline.textContent !== words) headline.textContent = words;
  headline.classList.toggle("loud", state.state !== "good");
  let box = byId("alarms");
  const found = alarms(state);
  if (!found.length) { if (box) box.remove(); return; }
  const list = html("ul", { id: "alarms", class: "exposure reached", "aria-label": "To be looked at" });
  for (const sentence of found) list.append(html("li", {}, sentence));
  if (!box) headline.after(list); else if (box.textContent !== list.textContent) box.replaceWith(list);
}

/** How a site is; one that may take part in no run any more says so. */
function siteState(site) {
  const made = html("span", { class: "chips" });
  made.append(badge(site.state, look(site.state)), ...(site.denied ? [badge("denied", "amber")] : []));
  return made;
}

function showSites(state) {
  const body = byId("sites-body");
  if (state.kind === "site") {
    body.replaceChildren(html("p", {}, "A site knows its coordinator only; who else is connected it is not told."));
    return;
  }
  if (!state.sites.length) {
    const why = state.state === "good" ? "No site has been connected yet. Sites connect with weft join."
      : "Nothing is known of sites.";
    body.replaceChildren(html("p", {}, why));
    return;
  }
  const timed = state.kind === "coordinator";
  const titles = ["site", "state", ...(timed ? ["since", "last heartbeat"] : []), "Weft"];
  body.replaceChildren(table("All that were seen, and parties of runs", titles, state.sites.map((site) => [
    site.name, siteState(site),
    ...(timed ? [begun(site) ? span(state.now - begun(site)) : "–",
      site.seen ? `${span(state.now - site.seen)} ago` : "–"] : []),
    site.version ? site.version + (site.version === state.weft ? "" : " (another than here)") : "–",
  ])));
}

function showExposure(state) {
  const body = byId("exposure-body"), rows = state.exposure;
  const known = (key) => rows.some((row) => row[key] !== null);
  const columns = [
    ["party", (row) => row.party],
    ["runs", (row) => whole(row.runs)],
    ...(known("reached") ? [["runs in which it showed as many sums as another lacks columns", (row) => badge(whole(row.reached), row.reached ? "amber" : "quiet")]] : []),
    ["ε of models", (row) => short(row.epsilon)], ["δ of models", (row) => short(row.delta)],
    ...(known("rho") ? [["ρ of sums", (row) => short(row.rho)]] : []),
    ...(known("share") ? [["sums shown, per column that another lacks", (row) => short(row.share)]] : []),
  ];
  const told = rows.length
    ? table("What parties have spent", columns.map(([title]) => title), rows.map((row) => columns.map(([, cell]) => cell(row))))
    : html("p", {}, state.kind === "submitter" ? "Not told here." : "Nothing has been spent yet.");
  body.replaceChildren(told, html("p", { class: "note" }, state.exposure_from));
}

function showMachine(state) {
  const mended = state.symptoms.some((symptom) => symptom.mend);
  const titles = ["", "state", "found", ...(mended ? ["what to do"] : [])];
  byId("machine-body").replaceChildren(table("What was looked at", titles, state.symptoms.map(
    ({ about, state: how, found, mend }) => [
      about, badge(how, how === "soon" ? "amber" : look(how)), found, ...(mended ? [mend] : []),
    ])));
}

/** Lines about a run, all that is known but the chart. */
function runLines(run, state) {
  const lines = [];
  const submitted = run.submitted && `${state.kind === "site" ? "Began" : "Submitted"} ${run.submitted}${run.submitter ? ` by ${run.submitter}` : ""}`;
  if (submitted) lines.push(html("p", { class: "note" }, submitted));
  if (run.waits) lines.push(html("p", { class: "exposure reached" }, plain(run.waits)));
  if (run.sentence) lines.push(html("p", { class: "exposure bad" }, plain(run.sentence)));
  if (run.progress) lines.push(html("p", {}, run.progress));
  if (run.parties.length) {
    const list = html("ul", { class: "chips", "aria-label": "Parties" });
    for (const party of run.parties) {
      const why = run.away[party], version = run.versions[party];
      const item = html("li", { class: why ? "badge loud" : "badge quiet" }, party);
      if (why) item.append(` ${why}`);
      if (version && version !== state.weft) item.append(` · Weft ${version}`);
      list.append(item);
    }
    lines.push(list);
  }
  if (run.exposed) lines.push(html("p", { class: `exposure ${run.reached ? "reached" : "safe"}` }, `Exposed: ${run.exposed}.`));
  return lines;
}

function newRun(run, state) {
  const going = UNDER_WAY.includes(run.state);
  const box = html(going ? "article" : "details", { class: "run", "data-run": run.run });
  const top = html(going ? "div" : "summary", { class: "run-top" });
  const body = html("div"), chart = html("div", { class: "chart" });
  const figure = html("figure", { hidden: "" });
  figure.append(html("figcaption", {}, "Certified gap"), chart);
  box.append(top, body, figure);
  // Why a run failed is to be seen without a click.
  if (run.state === "failed") box.open = true;
  return { box, top, body, figure, going, chart: new GapChart(chart, SINCE[state.kind] || "the run began"), last: "" };
}

function showRun(run, state, waiting) {
  let known = runs.get(run.run);
  if (!known || known.going !== UNDER_WAY.includes(run.state)) {
    known = newRun(run, state);
    runs.set(run.run, known);
  }
  const now = JSON.stringify([run, view.axis, waiting]);
  if (now === known.last) return known.box;
  known.last = now;
  const place = run.place ? `, ${run.place} of ${waiting} in the queue` : "";
  known.top.replaceChildren(html("h3", {}, run.run), badge(run.state + place, look(run.state)));
  known.body.replaceChildren(...runLines(run, state));
  known.figure.hidden = !run.curve.length;
  known.chart.show(run.curve, run.asked, view.axis);
  return known.box;
}

function axisChoice() {
  const group = html("div", { class: "choice", role: "group", "aria-label": "Gaps against", id: "axis" });
  const buttons = [["s", "time"], ["i", "iterations"]].map(([axis, words]) => {
    const button = html("button", { type: "button", "data-axis": axis }, words);
    button.addEventListener("click", () => {
      view.axis = axis;
      press(buttons, button);
      showRuns(view.shown);
    });
    return button;
  });
  press(buttons, buttons[0]);
  const controls = html("div", { class: "controls", id: "axis-controls" });
  group.append(...buttons);
  controls.append(html("span", { class: "note" }, "Gaps against"), group);
  return controls;
}

function showRuns(state) {
  const body = byId("runs-body"), waiting = state.runs.filter((run) => run.place).length;
  if (!state.runs.length) {
    body.replaceChildren(html("p", {}, state.kind === "site" ? "No run yet." : "No run yet. weft submit hands one in."));
    return;
  }
  const going = state.runs.filter((run) => UNDER_WAY.includes(run.state));
  const ended = state.runs.filter((run) => !UNDER_WAY.includes(run.state));
  const wanted = [];
  if (state.runs.some((run) => run.curve.length)) wanted.push(byId("axis-controls") || axisChoice());
  wanted.push(...going.map((run) => showRun(run, state, waiting)));
  if (ended.length) wanted.push(byId("ended-title") || html("h3", { id: "ended-title", class: "over" }, "Ended"));
  wanted.push(...ended.map((run) => showRun(run, state, waiting)));
  // With nothing under way, the last one is what people come for.
  if (!body.children.length && !going.length) runs.get(ended[0].run).box.open = true;
  if (state.earlier) {
    const note = byId("earlier") || html("p", { class: "note", id: "earlier" });
    note.textContent = `and ${plural(state.earlier, "run")} before; weft status lists them all`;
    wanted.push(note);
  }
  // Elements that stay are not moved: focus and open parts stay with them.
  const now = [...body.children];
  if (now.length !== wanted.length || wanted.some((part, at) => part !== now[at])) body.replaceChildren(...wanted);
}

/** Draw a part, unless it would be the same: whoever reads or selects is not disturbed. */
const parts = new Map();
function showPart(name, draw, state, ...values) {
  const now = JSON.stringify(values);
  if (parts.get(name) === now) return;
  parts.set(name, now);
  draw(state);
}

function show(state) {
  view.shown = state;
  showTop(state);
  showRuns(state);
  showPart("sites", showSites, state, state.sites, state.state, Math.round(state.now));
  showPart("exposure", showExposure, state, state.exposure, state.exposure_from);
  showPart("machine", showMachine, state, state.symptoms);
  byId("freshness").textContent = `${state.kind === "coordinator" ? "By the coordinator's files" : `With the kit of ${state.owner}`}, Weft ${state.weft}, as of ${clock(state.now)}.`;
}

/** Nothing new can be had: what is shown is old, and says so. */
function lose(sentence) {
  view.lost = view.lost || view.shown.now;
  byId("headline").textContent = plain(sentence);
  byId("headline").classList.add("loud");
  byId("freshness").textContent = `What is below is of ${clock(view.lost)}.`;
}

async function refresh() {
  try {
    const answer = await fetch("state.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const state = await answer.json();
    if (state.trouble) lose(`${state.trouble}.`);
    else { view.lost = null; show(state); }
  } catch {
    lose("weft console does not answer any more; start it again, and open the new address.");
  }
}

async function follow() {
  await refresh();
  setTimeout(follow, EVERY);
}

show(data);
setTimeout(follow, EVERY);
