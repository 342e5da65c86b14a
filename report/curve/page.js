"use strict";
// Each figure has the data of a chart, a form of choices, and a table whose rows are its lines.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const charts = [...document.querySelectorAll("figure")].map(draw);

function draw(figure) {
  const plot = JSON.parse(figure.querySelector("script").textContent);
  const place = figure.querySelector(".chart"), choice = figure.querySelector("form").elements, width = () => place.clientWidth;
  const rows = [...figure.querySelectorAll("tr[data-line]")], shown = (line) => rows[line].querySelector("input").checked;
  const font = "12px system-ui, sans-serif", text = () => color("--text"), rule = { stroke: () => color("--rule"), width: 1 };
  const self = { plot };
  const titles = [...new Set(plot.lines.map((line) => line.axis))].filter(Boolean), scaleOf = (line) => (line.axis ? "axis " + line.axis : "y");

  // What uPlot draws: of a line its values, its means, and marks at the steps that have no value.
  const drawn = plot.lines.flatMap((line, of) => {
    const base = { of, scale: scaleOf(line), stroke: () => color("--ink" + line.ink), dash: [[], [8, 5], [2, 4], [10, 4, 2, 4]][line.dash % 4] };
    const parts = [{ ...base, data: line.raw, alpha: line.smooth ? 0.35 : 1, width: line.smooth ? 1 : 2, points: { show: true, size: 6, fill: () => color("--ground"), filter: line.raw[0].length > 40 ? alone : null } }];
    if (line.smooth) parts.push({ ...base, data: line.smooth, width: 2, points: { show: false }, smooth: true });
    if (line.lost.length) parts.push({ ...base, data: [line.lost, line.lost.map(() => 0)], scale: "lost", paths: () => null, points: { show: true, size: 8, width: 2, fill: () => color("--ground") } });
    return parts;
  });
  // The points between gaps, which no line shows.
  function alone(u, series) {
    const values = u.data[series], at = [];
    values.forEach((v, i) => { if (v !== undefined) at.push(i); });
    return at.filter((i, k) => values[i] !== null && (values[at[k - 1]] ?? null) === null && (values[at[k + 1]] ?? null) === null);
  }
  const visible = (s) => shown(s.of) && !(s.smooth && !choice.smooth.checked);
  const alpha = (s) => (s.alpha && choice.smooth && choice.smooth.checked ? s.alpha : 1);

  function build() {
    const logX = choice.logX.checked, logY = choice.logY.checked;
    const tables = drawn.map((s) => {
      const keep = s.data[0].map((x, i) => i).filter((i) => !logX || s.data[0][i] > 0);
      return [keep.map((i) => s.data[0][i]), keep.map((i) => { const v = s.data[1][i]; return logY && s.scale === "y" && v <= 0 ? null : v; })];
    });
    const pad = (part) => (u, low, high) => {
      if (low == null) return [0, 1];
      const size = Math.max(Math.abs(low), Math.abs(high));
      const by = high - low > 1e-9 * size ? (high - low) * part : size / 20 || 1;
      return [low - by, high + by];
    };
    const log = (u, low, high) => (low == null ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false));
    const number = (v, digits) => (Math.abs(v) >= 1e4 && Math.abs(v) < 1e15
      ? new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: digits }).format(v)
      : String(Number(v.toPrecision(digits))).replace("e+", "e"));
    // The digits of a number that tell it from the next one on the axis.
    const digits = (v, by) => Math.floor(Math.log10(Math.abs(v))) - Math.floor(Math.log10(by) + 1e-9) + (/^2\.?5/.test(by.toExponential()) ? 2 : 1);
    const ticks = (u, splits, axis, space, by) => splits.map((v) => (v == null ? "" : v === 0 ? "0"
      : number(v, u.scales[u.axes[axis].scale].distr === 3 ? 3 : Math.min(15, Math.max(1, digits(v, by))))));
    const axis = { stroke: text, font, labelFont: font, labelSize: 20, grid: rule, ticks: rule, values: ticks };
    const upright = { ...axis, size: (u, values) => 16 + 7.5 * Math.max(2, ...(values || []).map((v) => v.length)) };
    const whole = plot.lines.every((line) => line.raw[0].every(Number.isInteger));
    const steps = whole ? [...Array(16).keys()].flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)) : undefined;
    const axes = [{ ...axis, label: plot.x, size: 36, incrs: steps }, { ...upright, scale: "y", label: plot.y || null }];
    for (const title of titles) axes.push({ ...upright, scale: scaleOf({ axis: title }), side: 1, label: title, grid: { show: false } });
    self.chart?.destroy();
    self.chart = new uPlot({
      width: width(), height: Math.max(300, Math.min(480, width() * 0.6)), legend: { show: false }, axes,
      cursor: { drag: { x: true, y: true, uni: 40 } },
      scales: {
        x: { time: false, distr: logX ? 3 : 1, range: logX ? log : pad(0) }, y: { distr: logY ? 3 : 1, range: logY ? log : pad(0.05) },
        ...Object.fromEntries(titles.map((title) => [scaleOf({ axis: title }), { range: pad(0.05) }])), lost: { range: [0, 1] },
      },
      series: [{}, ...drawn.map((s) => ({ ...s, show: visible(s), alpha: alpha(s), data: undefined }))],
      hooks: { setCursor: [point], setScale: [(u, key) => key === "x" && zoomed(u)] },
    }, uPlot.join(tables), place);
  }

  // The table shows the values under the pointer.
  function point(u) {
    const at = u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x");
    figure.querySelector("th.here").textContent = at === null ? "" : "here";
    rows.forEach((row, i) => {
      const [steps, values] = plot.lines[i].raw, cell = row.querySelector(".here");
      cell.replaceChildren();
      if (at === null || !steps.length || !shown(i)) return;
      let low = 0, high = steps.length - 1;
      while (high - low > 1) { const middle = (low + high) >> 1; if (steps[middle] < at) low = middle; else high = middle; }
      const k = Math.abs(steps[low] - at) <= Math.abs(steps[high] - at) ? low : high;
      const step = document.createElement("small");
      step.textContent = " at " + steps[k];
      cell.append(values[k] === null ? "not finite" : String(Number(values[k].toPrecision(5))), step);
    });
  }

  function zoomed(u) {
    for (const [name, key] of [["from", "min"], ["to", "max"]]) choice[name].value = Number(u.scales.x[key].toPrecision(6));
  }
  for (const name of ["from", "to"]) choice[name].addEventListener("change", () => {
    const min = Number(choice.from.value), max = Number(choice.to.value);
    if (min < max && (min > 0 || !choice.logX.checked)) self.chart.setScale("x", { min, max });
  });
  choice.all.addEventListener("click", build);
  for (const name of ["logX", "logY", "smooth"]) choice[name]?.addEventListener("change", build);

  function toggle() { drawn.forEach((s, i) => self.chart.setSeries(i + 1, { show: visible(s) })); }
  rows.forEach((row) => row.querySelector("input").addEventListener("change", toggle));
  for (const box of figure.querySelectorAll("input.run")) box.addEventListener("change", () => {
    for (const one of box.closest("tbody").querySelectorAll("tr[data-line] input")) one.checked = box.checked;
    toggle();
  });
  figure.querySelector("form").addEventListener("submit", (event) => event.preventDefault());

  build();
  let last = width();
  new ResizeObserver(() => { if (width() !== last) { last = width(); self.chart.setSize({ width: last, height: self.chart.height }); } }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  return self;
}
