"use strict";
// Without this script the page shows the same: it only moves a cursor over curves and filters long tables.

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle; else high = middle;
  }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const chart = JSON.parse(figure.dataset.chart);
  const plot = figure.querySelector(".plot");
  const cursor = figure.querySelector(".cursor");
  const dots = figure.querySelectorAll(".dot");
  const outputs = figure.querySelectorAll("output");
  const where = figure.querySelector(".where");
  const stops = [...new Set(chart.lines.flatMap((line) => line.map((point) => point[0])))].sort((a, b) => a - b);
  let at = stops.length - 1;

  const share = (x) => (chart.x1 > chart.x0 ? (x - chart.x0) / (chart.x1 - chart.x0) : 0.5);
  const show = (x) => {
    cursor.setAttribute("x1", `${100 * share(x)}%`);
    cursor.setAttribute("x2", `${100 * share(x)}%`);
    where.textContent = `${chart.x} ${number.format(x)}`;
    chart.lines.forEach((line, i) => {
      const [px, py] = nearest(line, x);
      outputs[i].textContent = number.format(py);
      dots[i].setAttribute("cx", `${100 * share(px)}%`);
      dots[i].setAttribute("cy", chart.height * (1 - (py - chart.lo) / (chart.hi - chart.lo || 1)));
    });
  };
  const move = (event) => {
    const box = plot.getBoundingClientRect();
    const x = chart.x0 + (chart.x1 - chart.x0) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    at = stops.indexOf(nearest(stops.map((stop) => [stop]), x)[0]);
    show(stops[at]);
  };
  plot.addEventListener("pointermove", move);
  plot.addEventListener("pointerdown", move);
  plot.addEventListener("keydown", (event) => {
    const jump = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -stops.length, End: stops.length }[event.key];
    if (jump === undefined) return;
    event.preventDefault();
    at = Math.min(stops.length - 1, Math.max(0, at + jump));
    show(stops[at]);
  });
}

for (const input of document.querySelectorAll("input[data-filter]")) {
  const rows = document.querySelectorAll(`#${input.dataset.filter} tbody tr`);
  const told = document.querySelector(`#${input.dataset.filter}-told`);
  input.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    told.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

const openTarget = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) target.querySelectorAll(":scope > details.first").forEach((part) => { part.open = true; });
};
addEventListener("hashchange", openTarget);
openTarget();
