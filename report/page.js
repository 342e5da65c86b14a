"use strict";
// The page has all figures without this program, which draws what moves: memory over the schedule, the
// timeline and the slice.
const data = JSON.parse(document.getElementById("data").textContent), { schedule, torus } = data;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const find = (selector) => document.querySelector(selector);
const font = "12px system-ui, sans-serif";
const kinds = ["products", "memory", "interconnect", "network"];
const took = (o) => kinds.reduce((sum, kind) => sum + (o[kind + "_seconds"] || 0), 0);
const timed = schedule.operations.some((o) => took(o) > 0);

function bytes(n) {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (n >= size) return Number((n / size).toPrecision(4)) + " " + unit;
  return n + " B";
}
const seconds = (s) => (s >= 1 ? Number(s.toPrecision(4)) + " s" : s >= 1e-3 ? Number((s * 1e3).toPrecision(4)) + " ms" : Number((s * 1e6).toPrecision(4)) + " us");

// The operations as they run, with all rounds of loops, or of a step with very many operations fewer
// rounds, which then stand for the others.
const mostShown = 40000;
const events = [], beside = [];
const size = (all) => all.reduce((n, o) => n + 1 + (o.inside?.length ? (size(o.inside) + 1) * Math.max(o.rounds || 1, 1) : 0), 0);
const fewer = Math.max(1, size(schedule.operations) / mostShown);
function unfold(all, from, scale, depth) {
  let at = from;
  for (const o of all) {
    const start = timed ? from + (o.start_seconds || 0) * scale : at, event = { o, start, depth, took: timed ? took(o) * scale : 1 };
    if (events.length > 4 * mostShown) return at;
    events.push(event);
    if (o.beside) beside.push({ o, on: o.beside.on, start: from + o.beside.start_seconds * scale, took: o.beside.seconds * scale });
    if (o.inside?.length) {
      const rounds = Math.max(o.rounds || 1, 1), shown = Math.max(1, Math.floor(rounds / fewer));
      let next = start;
      for (let k = 0; k < shown; k++) {
        const end = unfold(o.inside, next, scale * rounds / shown, depth + 1);
        next = timed ? start + event.took * (k + 1) / shown : end;
      }
      if (!timed) event.took = next - start;
    }
    at = start + event.took;
  }
  return at;
}
unfold(schedule.operations, 0, 1, 0);
const whole = events.concat(beside).reduce((end, e) => Math.max(end, e.start + e.took), 0) || 1;
const name = (o) => (o.joined ? o.joined + " short operations" : o.name) + (o.rounds ? ", " + o.rounds + " rounds" : "");
const line = (o) => data.lines[o.line - 1] || "";
const place = (s) => (timed ? seconds(s) : "operation " + Math.round(s));

const usage = document.getElementById("usage"), leaves = events.filter((e) => !e.o.inside?.length);
let chart = null;
function drawUsage() {
  const arguments_ = schedule.values.filter((v) => v.role === "variable" || v.role === "argument").reduce((n, v) => n + v.bytes, 0);
  const xs = leaves.map((e) => e.start).concat(whole), ys = leaves.map((e) => e.o.in_use_bytes);
  ys.push(ys.at(-1) || 0);
  const most = ys.reduce((a, b) => Math.max(a, b), 1), table = [xs, ys, ys.map((y) => Math.min(y, arguments_))];
  // If the arguments would hide everything else, the axis starts just below their size.
  const above = most - arguments_, floor = above > 0 && above < arguments_ / 4 ? arguments_ - above : 0;
  document.getElementById("floor").textContent = floor ? "(the axis starts at " + bytes(floor) + ")" : "";
  const lines = [];
  if (data.limit && data.limit < 2 * most) lines.push([data.limit, "--text"]);
  for (const [at] of lines) table.push(xs.map(() => at));
  const stepped = uPlot.paths.stepped({ align: 1 }), axis = { stroke: () => color("--text"), font, grid: { stroke: () => color("--rule"), width: 1 }, ticks: { stroke: () => color("--rule"), width: 1 } };
  const area = (of) => ({ paths: stepped, stroke: () => color(of), fill: () => color(of), width: 1, points: { show: false } });
  chart?.destroy();
  chart = new uPlot({
    width: usage.clientWidth, height: 280, legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false, range: (u, low, high) => [low, high] }, y: { range: (u, low, high) => [floor, floor + 1.05 * Math.max(high - floor, 1)] } },
    axes: [{ ...axis, size: 32, values: (u, splits) => splits.map((s) => (timed ? (s ? seconds(s) : "0") : s)) },
      { ...axis, size: 76, incrs: [...Array(55).keys()].map((e) => 2 ** e), values: (u, splits) => splits.map((n) => (n ? bytes(n) : "0")) }],
    series: [{}, area("--temporaries"), area("--arguments"), ...lines.map(([, of]) => ({ stroke: () => color(of), dash: [6, 4], width: 1, points: { show: false } }))],
    hooks: { setCursor: [(u) => here(u.cursor.left < 0 || u.cursor.idx == null ? null : leaves[Math.min(u.cursor.idx, leaves.length - 1)])] },
  }, table, usage);
}

// The table shows what is in memory at the peak, or under the pointer.
const peak = find("#peak tbody"), peakRows = [...peak.children], where = document.getElementById("where"), atPeak = where.textContent;
function here(event) {
  if (!event) { peak.replaceChildren(...peakRows); where.textContent = atPeak; return; }
  const groups = new Map(), { number } = event.o;
  for (const v of schedule.values) {
    if (v.from > number || v.to < number) continue;
    const tensor = v.role === "variable" || v.role === "argument", of = tensor ? v.name : (v.layer ? v.layer + ": " : "") + (v.source || v.name || "");
    const key = JSON.stringify([v.role, of.replace(/[0-9]+/g, "*"), v.dtype, v.shape]), group = groups.get(key);
    if (!group) groups.set(key, { ...v, of, count: 1 });
    else { group.count++; if (group.of !== of) group.of = of.replace(/[0-9]+/g, "*"); }
  }
  const all = [...groups.values()].sort((a, b) => b.bytes * b.count - a.bytes * a.count).slice(0, 12);
  where.textContent = "Values in memory at " + place(event.start) + ", " + name(event.o) + ": " + bytes(event.o.in_use_bytes);
  peak.replaceChildren(peakRows[0], ...all.map((v) => {
    const row = document.createElement("tr");
    for (const [text, style] of [[v.of, "any"], [v.role], [v.dtype + "[" + v.shape.join(", ") + "]"], [bytes(v.bytes), "n"], [v.count, "n"], [line(v), "full"]]) {
      const cell = row.insertCell();
      cell.textContent = text;
      if (style) cell.className = style;
    }
    return row;
  }));
}

// A canvas as wide as its place, and what draws on it again.
function canvas(at, height) {
  const c = at.querySelector("canvas") || at.appendChild(document.createElement("canvas")), ratio = devicePixelRatio || 1, width = at.clientWidth;
  c.width = width * ratio; c.height = height * ratio; c.style.width = width + "px"; c.style.height = height + "px";
  const g = c.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.font = font; g.textBaseline = "middle";
  return { c, g, width, height };
}

const timeline = document.getElementById("timeline"), gutter = 84, rowHeight = 24;
let view = [0, whole], rows = [], selection = null;
if (timed && timeline) {
  const deepest = Math.min(Math.max(...events.map((e) => e.depth)), 4);
  for (let depth = 0; depth <= deepest; depth++) rows.push({ name: depth ? "in loops" : "core", all: events.filter((e) => e.depth === depth && e.took > 0) });
  for (const [on, label] of [["interconnect", "links"], ["network", "network"], ["transfers", "copies"]]) {
    const all = beside.filter((e) => e.on === on).map((e) => ({ ...e, on }));
    if (all.length) rows.push({ name: label, all });
  }
}
const kindOf = (e) => e.on || kinds.reduce((best, kind) => ((e.o[kind + "_seconds"] || 0) > (e.o[best + "_seconds"] || 0) ? kind : best));
function drawTimeline() {
  if (!rows.length) return;
  const { g, width } = canvas(timeline.querySelector(".chart"), rows.length * rowHeight + 24), span = view[1] - view[0], x = (s) => gutter + (s - view[0]) / span * (width - gutter);
  const text = color("--text"), colors = Object.fromEntries([...kinds, "transfers", "loop"].map((kind) => [kind, color("--" + kind)]));
  rows.forEach((row, k) => {
    const top = k * rowHeight;
    g.fillStyle = color("--faint");
    g.fillText(row.name, 0, top + rowHeight / 2);
    let drawn = -1;
    g.save(); g.beginPath(); g.rect(gutter, top, width - gutter, rowHeight); g.clip();
    for (const e of row.all) {
      if (e.start + e.took < view[0] || e.start > view[1]) continue;
      const left = x(e.start), right = Math.max(x(e.start + e.took), left + 0.5);
      if (right < drawn + 0.3) continue;
      drawn = right;
      g.fillStyle = e.o.inside && !e.on ? colors.loop : colors[kindOf(e)];
      g.fillRect(left, top + 2, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.5), rowHeight - 4);
      const label = name(e.o), from = Math.max(left, gutter) + 4;
      if (Math.min(right, width) - from > 7 * label.length) { g.fillStyle = e.o.inside && !e.on ? text : "#fff"; g.fillText(label, from, top + rowHeight / 2); }
    }
    g.restore();
  });
  const bottom = rows.length * rowHeight, step = nice(span / Math.max(2, (width - gutter) / 110));
  for (let s = Math.ceil(view[0] / step) * step; s <= view[1]; s += step) {
    const label = s ? seconds(s) : "0";
    g.fillStyle = color("--rule"); g.fillRect(x(s), 0, 1, bottom);
    if (x(s) + 7 * label.length < width) { g.fillStyle = text; g.fillText(label, x(s) + 3, bottom + 12); }
  }
  if (selection) { g.fillStyle = text + "33"; g.fillRect(Math.min(...selection), 0, Math.abs(selection[1] - selection[0]), bottom); }
}
function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= step);
}
function zoom(from, to) {
  const least = whole / 1e6, wide = Math.min(Math.max(to - from, least), whole);
  from = Math.min(Math.max(from, 0), whole - wide);
  view = [from, from + wide];
  drawTimeline();
}
if (rows.length) {
  const chartOf = timeline.querySelector(".chart"), told = timeline.querySelector(".pointed"), first = told.textContent, buttons = timeline.querySelector("form").elements;
  const at = (event) => { const box = chartOf.getBoundingClientRect(); return { px: event.clientX - box.left, row: Math.floor((event.clientY - box.top) / rowHeight), width: box.width }; };
  const time = (px, width) => view[0] + (px - gutter) / (width - gutter) * (view[1] - view[0]);
  chartOf.addEventListener("pointerdown", (event) => { selection = [at(event).px, at(event).px]; });
  chartOf.addEventListener("pointermove", (event) => {
    const { px, row, width } = at(event), s = time(px, width);
    if (selection && event.buttons) { selection[1] = px; drawTimeline(); }
    const slack = 2 / width * (view[1] - view[0]), e = rows[row]?.all.find((e) => e.start <= s + slack && s <= e.start + e.took + slack);
    told.textContent = e ? name(e.o) + ": " + seconds(e.took) + " from " + seconds(e.start) + ", " + (e.on ? "concurrent with the core, on " + rows[row].name : kindOf(e)) + [e.o.layer, line(e.o) || e.o.source].filter(Boolean).map((t) => "; " + t).join("") : first;
  });
  const release = (event) => {
    const [a, b] = selection || [0, 0], { width } = at(event);
    selection = null;
    if (Math.abs(a - b) > 4) zoom(time(Math.max(Math.min(a, b), gutter), width), time(Math.max(a, b), width)); else drawTimeline();
  };
  chartOf.addEventListener("pointerup", release);
  chartOf.addEventListener("pointerleave", () => { selection = null; told.textContent = first; drawTimeline(); });
  chartOf.addEventListener("dblclick", () => zoom(0, whole));
  const by = (factor) => { const middle = (view[0] + view[1]) / 2, half = (view[1] - view[0]) / 2 * factor; zoom(middle - half, middle + half); };
  buttons.in.addEventListener("click", () => by(0.5));
  buttons.out.addEventListener("click", () => by(2));
  buttons.all.addEventListener("click", () => zoom(0, whole));
}

// The slice, plane by plane, with each chip in the color of its group.
const slice = document.getElementById("torus");
let chips = [], held = null;
function drawTorus() {
  if (!slice) return;
  const at = slice.querySelector(".chart"), [nx, ny, nz] = torus.shape, slices = [...new Set(torus.places.map((p) => p[3]))], chosen = torus.groups[Number(slice.querySelector("input:checked").value)];
  const cell = Math.max(7, Math.min(46, Math.floor(at.clientWidth / (nx + 1)))), planeWidth = (nx + 1) * cell, planeHeight = (ny + 1) * cell + 16;
  const planes = slices.length * nz, across = Math.max(1, Math.floor(at.clientWidth / planeWidth));
  const { g } = canvas(at, Math.ceil(planes / across) * planeHeight);
  const corner = (plane) => [plane % across * planeWidth + cell / 2, Math.floor(plane / across) * planeHeight + 16 + cell / 2];
  const group = new Map();
  chosen.groups.forEach((members, k) => members.forEach((p) => { if (!group.has(p)) group.set(p, k); }));
  const most = torus.links.reduce((n, l) => Math.max(n, l.bytes, l.back_bytes), 1), text = color("--text");
  const center = (px, py, plane) => { const [left, top] = corner(plane); return [left + (px + 0.5) * cell, top + (py + 0.5) * cell]; };
  g.strokeStyle = color("--faint");
  slices.forEach((s, which) => torus.links.forEach((l) => {
    const [x, y] = center(l.chip[0], l.chip[1], which * nz + l.chip[2]), long = cell * (l.axis === 2 ? 0.47 : l.chip[l.axis] === torus.shape[l.axis] - 1 ? 0.7 : 1);
    g.lineWidth = Math.max(0.5, Math.max(l.bytes, l.back_bytes) / most * cell / 5);
    g.beginPath(); g.moveTo(x, y); g.lineTo(x + (l.axis === 1 ? 0 : long), y + (l.axis === 0 ? 0 : long)); g.stroke();
  }));
  chips = [];
  const of = new Map();
  torus.places.forEach((p, partition) => { const key = p.join(); of.set(key, [...(of.get(key) || []), partition]); });
  const widest = 8 * String(torus.places.length - 1).length;
  for (const [key, partitions] of of) {
    const [px, py, pz, s] = key.split(",").map(Number), [x, y] = center(px, py, slices.indexOf(s) * nz + pz), side = cell * 0.68, part = side / partitions.length;
    g.fillStyle = color("--ground"); g.fillRect(x - side / 2, y - side / 2, side, side);
    partitions.forEach((p, k) => {
      const mine = group.get(p), dim = held !== null && mine !== group.get(held);
      g.fillStyle = mine === undefined ? color("--all") : "hsl(" + (mine * 137.5) % 360 + ",55%," + (dim ? "88%" : "68%") + ")";
      g.globalAlpha = dim ? 0.35 : 1;
      g.fillRect(x - side / 2 + k * part, y - side / 2, part - (partitions.length > 1 ? 1 : 0), side);
      g.globalAlpha = 1;
      if (part >= widest) { g.fillStyle = "#222"; g.textAlign = "center"; g.fillText(p, x - side / 2 + (k + 0.5) * part, y); g.textAlign = "left"; }
      chips.push({ p, left: x - side / 2 + k * part, top: y - side / 2, right: x - side / 2 + (k + 1) * part, bottom: y + side / 2 });
    });
  }
  g.fillStyle = text;
  for (let plane = 0; plane < planes; plane++) {
    const [left, top] = corner(plane), label = [slices.length > 1 ? "slice " + slices[Math.floor(plane / nz)] : "", nz > 1 ? "z=" + plane % nz : ""].filter(Boolean).join(", ");
    if (planeWidth > 7 * label.length) g.fillText(label, left, top - cell / 2 - 6);
    if (torus.rings[0] && cell >= 14) g.fillText("~", left + nx * cell + 2, top + ny * cell / 2);
    if (torus.rings[1] && cell >= 14) g.fillText("~", left + nx * cell / 2, top + ny * cell + 6);
  }
}
if (slice) {
  const at = slice.querySelector(".chart"), told = slice.querySelector(".pointed"), first = told.textContent;
  const point = (event) => {
    const box = at.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, chip = chips.find((c) => c.left <= x && x <= c.right && c.top <= y && y <= c.bottom);
    const now = chip ? chip.p : null;
    if (now === held) return;
    held = now;
    const chosen = torus.groups[Number(slice.querySelector("input:checked").value)], members = held === null ? [] : chosen.groups.filter((m) => m.includes(held)).flat().filter((p) => p !== held);
    const sent = data.collectives.filter((c) => c.axis === chosen.axis).reduce((n, c) => n + c.moved_bytes, 0), [px, py, pz] = torus.places[held] || [];
    told.textContent = held === null ? first : "Device " + held + " at (" + [px, py, pz] + ") communicates over " + chosen.axis + (members.length > 12 ? " with " + members.length + " others" : members.length ? " with " + members.join(", ") : " with no device") + ", and sends at least " + bytes(sent) + " per step over this axis.";
    drawTorus();
  };
  at.addEventListener("pointermove", point);
  at.addEventListener("pointerleave", () => { held = null; told.textContent = first; drawTorus(); });
  slice.querySelector("form").addEventListener("change", drawTorus);
}

function drawAll() { drawUsage(); drawTimeline(); drawTorus(); }
drawAll();
let last = usage.clientWidth;
new ResizeObserver(() => { if (usage.clientWidth !== last) { last = usage.clientWidth; drawAll(); } }).observe(usage);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
