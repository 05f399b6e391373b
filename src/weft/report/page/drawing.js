"use strict";
// What all pictures share: elements, numbers in words, scales and ticks.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/** An SVG element; text goes in as text, whatever it holds. */
function svg(tag, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

/** The same for HTML. */
function html(tag, attributes = {}, text = null) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

const whole = (value) => Math.round(value).toLocaleString("en-US");
const plural = (number, what) => `${whole(number)} ${what}${number === 1 ? "" : "s"}`;

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

function names(list, most = 6) {
  if (list.length > most + 1) {
    return `${list.slice(0, most).join(", ")} and ${whole(list.length - most)} more`;
  }
  if (list.length < 2) return list.join("");
  return `${list.slice(0, -1).join(", ")} and ${list[list.length - 1]}`;
}

/** "0-4,7" as numbers. */
function numbers(text) {
  const found = [];
  for (const run of text.split(",")) {
    if (!run) continue;
    const [first, last] = run.split("-").map(Number);
    for (let at = first; at <= (last === undefined ? first : last); at += 1) found.push(at);
  }
  return found;
}

/** Places between two ends, straight or logarithmic. */
function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const span = f(high) - f(low) || 1;
  const at = (value) => from + ((f(value) - f(low)) / span) * (to - from);
  return Object.assign(at, { low, high, log, from, to });
}

/** Round values of a scale, about as many as asked for. */
function ticks(s, most) {
  const found = [];
  if (s.log) {
    const first = Math.ceil(Math.log10(s.low) - 1e-9), last = Math.floor(Math.log10(s.high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    if (found.length >= 2) return found;
    found.length = 0;
  }
  const raw = (s.high - s.low) / Math.max(1, most);
  const size = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((m) => m >= raw) || raw || 1;
  for (let v = Math.ceil(s.low / step) * step; v <= s.high + step * 1e-9; v += step) {
    found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  }
  return found;
}

/** Parties that get a colour and a name of their own. */
const MOST_NAMED = 24;

/** Colour of a party: eight colours, then paler ones. */
const partyLook = (party) => ({ colour: party % 8, tint: Math.floor(party / 8) % 3 });

/** Class of words upon a party's colour, dark on light colours. */
function wordsOn({ colour, tint }) {
  if (tint) return "on-pale";
  return [3, 4, 5].includes(colour) ? "on-light" : "on-deep";
}

/** Stripes in the colours of several parties, made once for the whole page. */
function stripes(parties) {
  const some = parties.slice(0, 3).map(partyLook);
  const id = `stripes-${some.map(({ colour, tint }) => `${colour}${tint}`).join("-")}`;
  let defs = byId("stripes");
  if (!defs) {
    const holder = svg("svg", { width: 0, height: 0, class: "aside", "aria-hidden": "true" });
    defs = svg("defs", { id: "stripes" });
    holder.append(defs);
    document.body.append(holder);
  }
  if (!byId(id)) {
    const size = 6 * some.length;
    const pattern = svg("pattern", {
      id, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    some.forEach(({ colour, tint }, at) => pattern.append(
      svg("rect", { x: 6 * at, width: 6, height: size, class: `tile f${colour} t${tint}` })));
    defs.append(pattern);
  }
  return `url(#${id})`;
}

/** Mark one of a group of buttons as pressed. */
function press(buttons, chosen) {
  for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
}

/** Draw again when an element gets another width. */
function onWidth(element, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = element.clientWidth;
    if (width && Math.abs(width - last) > 1) { last = width; draw(); }
  }).observe(element);
}
