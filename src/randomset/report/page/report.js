"use strict";

const NS = "http://www.w3.org/2000/svg";
const content = JSON.parse(document.getElementById("content").textContent);

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function shape(tag, attributes, parent) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (parent) parent.append(node);
  return node;
}

const colour = (index) => `var(--s${index % 8})`;
const rounded = (value, digits = 3) => Number(value.toPrecision(digits)).toString();

// -- charts ------------------------------------------------------------------------------------

const H = 330, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 46;

function ticks(low, high) {
  const span = high - low || 1;
  const step = 10 ** Math.floor(Math.log10(span / 5));
  const best = [1, 2, 5, 10].map((factor) => factor * step).find((size) => span / size <= 6);
  const values = [];
  for (let at = Math.ceil(low / best - 1e-9) * best; at <= high + 1e-9 * span; at += best) values.push(Math.abs(at) < 1e-12 * span ? 0 : at);
  return values;
}

/** Draw a chart: drag to zoom, read values with the pointer or the arrow keys. Returns a function that moves its straight lines. */
function chart(figure, spec) {
  const box = figure.querySelector(".plot");
  let W = 560;
  const all = spec.series.flatMap((series) => series.points);
  const range = (side, axis) => axis.range || [Math.min(...all.map((p) => p[side])), Math.max(...all.map((p) => p[side]))];
  const full = { x: range(0, spec.x), y: range(1, spec.y) };
  let view = structuredClone(full);
  const shown = spec.series.map(() => true);
  const svg = shape("svg", { tabindex: 0, role: "img", "aria-label": spec.title }, box);
  const tip = element("div", "tip");
  tip.hidden = true;
  box.append(tip);
  const reset = element("button", "reset", "Reset zoom");
  reset.type = "button";
  reset.hidden = true;
  const toX = (x) => LEFT + (x - view.x[0]) / (view.x[1] - view.x[0]) * (W - LEFT - RIGHT);
  const toY = (y) => H - BOTTOM - (y - view.y[0]) / (view.y[1] - view.y[0]) * (H - TOP - BOTTOM);
  const fromX = (px) => view.x[0] + (px - LEFT) / (W - LEFT - RIGHT) * (view.x[1] - view.x[0]);
  const fromY = (py) => view.y[0] + (H - BOTTOM - py) / (H - TOP - BOTTOM) * (view.y[1] - view.y[0]);
  const clip = `clip-${Math.random().toString(36).slice(2)}`;

  function draw() {
    svg.replaceChildren();
    shape("rect", { x: LEFT, y: TOP, width: W - LEFT - RIGHT, height: H - TOP - BOTTOM }, shape("clipPath", { id: clip }, svg));
    for (const at of ticks(...view.x)) {
      shape("line", { class: "grid", x1: toX(at), x2: toX(at), y1: TOP, y2: H - BOTTOM }, svg);
      shape("text", { x: toX(at), y: H - BOTTOM + 16, "text-anchor": "middle" }, svg).textContent = rounded(at);
    }
    for (const at of ticks(...view.y)) {
      shape("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: toY(at), y2: toY(at) }, svg);
      shape("text", { x: LEFT - 6, y: toY(at) + 4, "text-anchor": "end" }, svg).textContent = rounded(at);
    }
    shape("text", { x: (LEFT + W - RIGHT) / 2, y: H - 8, "text-anchor": "middle" }, svg).textContent = spec.x.name;
    shape("text", { transform: `translate(14 ${(TOP + H - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg).textContent = spec.y.name;
    const body = shape("g", { "clip-path": `url(#${clip})` }, svg);
    for (const bar of spec.bars || []) {
      shape("rect", { class: "bar", x: toX(bar[0]), width: Math.max(toX(bar[1]) - toX(bar[0]), 0), y: toY(bar[2]), height: Math.max(toY(0) - toY(bar[2]), 0) }, body);
      if (bar.length > 3) shape("rect", { class: "gap", x: toX(bar[0]), width: toX(bar[1]) - toX(bar[0]), y: toY(Math.max(bar[2], bar[3])), height: Math.abs(toY(bar[2]) - toY(bar[3])) }, body);
    }
    for (const aid of spec.aids || []) shape("polyline", { class: "aid", points: aid.map(([x, y]) => `${toX(x)},${toY(y)}`).join(" ") }, body);
    spec.series.forEach((series, index) => {
      if (!shown[index]) return;
      const points = series.points.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(" ");
      const line = shape("polyline", { class: "series", points }, body);
      line.style.stroke = colour(index);
      if (index >= 8) line.style.strokeDasharray = "6 3";
    });
    reset.hidden = view.x.join() === full.x.join() && view.y.join() === full.y.join();
  }

  /** Show the nearest point of every series. */
  function read(x) {
    const nearest = spec.series.map((series, index) => shown[index] && series.points.length
      ? series.points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best)) : null);
    svg.querySelectorAll(".cursor").forEach((mark) => mark.remove());
    const px = toX(x);
    shape("line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: H - BOTTOM }, svg);
    tip.replaceChildren(element("div", "", `${spec.x.name}: ${rounded(x)}`));
    for (const bar of spec.bars || []) {
      if (bar[0] <= x && x < bar[1]) tip.append(element("div", "", `${spec.y.name}: ${rounded(bar[2])}`));
    }
    nearest.forEach((point, index) => {
      if (!point) return;
      const row = element("div");
      const dot = element("i");
      dot.style.cssText = `display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em;background:${colour(index)}`;
      row.append(dot, `${spec.series[index].name}: ${rounded(point[1], 4)}`);
      tip.append(row);
      shape("circle", { class: "cursor", cx: toX(point[0]), cy: toY(point[1]), r: 4, fill: colour(index) }, svg);
    });
    tip.hidden = false;
    const width = box.clientWidth, at = px / W * width;
    const left = at < width / 2 ? at + 12 : at - 12 - tip.offsetWidth;
    tip.style.left = `${Math.min(Math.max(left, 0), Math.max(width - tip.offsetWidth, 0))}px`;
  }
  function hideTip() {
    tip.hidden = true;
    svg.querySelectorAll(".cursor").forEach((mark) => mark.remove());
  }
  const position = (event) => {
    const area = svg.getBoundingClientRect();
    return [(event.clientX - area.left) * W / area.width, (event.clientY - area.top) * H / area.height];
  };
  let corner = null, cursor = null;
  svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") { corner = position(event); svg.setPointerCapture(event.pointerId); event.preventDefault(); svg.focus(); } });
  svg.addEventListener("pointermove", (event) => {
    const [px, py] = position(event);
    if (corner) {
      svg.querySelectorAll(".frame").forEach((frame) => frame.remove());
      shape("rect", { class: "frame", x: Math.min(px, corner[0]), y: Math.min(py, corner[1]), width: Math.abs(px - corner[0]), height: Math.abs(py - corner[1]) }, svg);
      hideTip();
    } else if (px >= LEFT && px <= W - RIGHT) {
      cursor = fromX(px);
      read(cursor);
    } else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
  svg.addEventListener("pointerup", (event) => {
    if (!corner) return;
    const [px, py] = position(event);
    const [x, y] = corner;
    corner = null;
    if (Math.abs(px - x) > 12 && Math.abs(py - y) > 12) {
      view = { x: [fromX(Math.max(Math.min(px, x), LEFT)), fromX(Math.min(Math.max(px, x), W - RIGHT))], y: [fromY(Math.min(Math.max(py, y), H - BOTTOM)), fromY(Math.max(Math.min(py, y), TOP))] };
    }
    draw();
  });
  const resetView = () => { view = structuredClone(full); draw(); };
  svg.addEventListener("dblclick", resetView);
  reset.addEventListener("click", resetView);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (step) {
      cursor = Math.min(Math.max((cursor ?? view.x[0]) + step * (view.x[1] - view.x[0]), view.x[0]), view.x[1]);
      read(cursor);
      event.preventDefault();
    } else if (event.key === "Escape") { resetView(); hideTip(); }
  });
  const legend = element("div", "legend");
  if (spec.series.length > 1) {
    spec.series.forEach(({ name, note }, index) => {
      legend.append(toggle(note ? `${name}: ${note}` : name, colour(index), (on) => { shown[index] = on; draw(); }));
    });
  }
  legend.append(reset);
  figure.append(legend);
  function fit() { // text keeps its size on a narrow screen
    W = Math.min(Math.max(box.clientWidth, 300), 560);
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    hideTip();
    draw();
  }
  new ResizeObserver(fit).observe(box);
  fit();
  return (aids) => { spec.aids = aids; draw(); };
}

/** A legend button that shows or hides a series. */
function toggle(name, tint, change) {
  const button = element("button", "", "");
  button.type = "button";
  const dot = element("i");
  dot.style.background = tint;
  button.append(dot, name);
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    change(on);
  });
  return button;
}

// -- the threshold -----------------------------------------------------------------------------

/** Count values up to `limit`: in the evenly spaced sample, and estimated for all `size` of them. */
function countUpTo({ values, size }, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return [low, low === 0 ? 0 : Math.round((low - 1) * (size - 1) / Math.max(values.length - 1, 1)) + 1];
}

function thresholdControl(section, data) {
  const slider = section.querySelector("input"), choice = section.querySelector("select"), restore = section.querySelector("button");
  const verdict = section.querySelector(".verdict"), figure = section.querySelector("figure");
  for (const name of Object.keys(data.scores)) choice.append(new Option(name, name));
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  let moveLine = null;
  function update(limit) {
    const score = data.scores[choice.value];
    const share = (set) => countUpTo(set, limit)[1] / set.size;
    const kept = share(score.sets.test);
    const accuracy = score.accuracy[Math.max(countUpTo(score.sets.test, limit)[0] - 1, 0)];
    const unknown = Object.keys(score.sets).filter((name) => name !== "test");
    const rejected = unknown.map((name) => `${percent(1 - share(score.sets[name]))} of ${name}`);
    const unit = score.unit ? ` ${score.unit}` : "";
    verdict.textContent = `An input counts as known if its ${choice.value} is at most ${rounded(limit, 4)}${unit}. This keeps ${percent(kept)} of the test inputs` +
      (kept > 0 ? ` (${percent(accuracy)} of them classified correctly)` : "") + (rejected.length ? ` and rejects ${rejected.join(", ")}.` : ".");
    slider.setAttribute("aria-valuetext", `${rounded(limit, 4)}${unit}`);
    restore.hidden = choice.value === data.score && limit === data.value;
    moveLine([[[limit, 0], [limit, 100]]]);
  }
  function start() {
    const score = data.scores[choice.value], test = score.sets.test.values;
    figure.querySelector(".plot").replaceChildren();
    figure.querySelectorAll(".legend").forEach((legend) => legend.remove());
    moveLine = chart(figure, {
      title: `Share of inputs with ${choice.value} up to a threshold`,
      x: { name: choice.value + (score.unit ? `, ${score.unit}` : ""), range: [0, score.largest] },
      y: { name: "share of inputs, %", range: [0, 100] },
      series: Object.entries(score.sets).map(([name, { values }]) => ({ name: name === "test" ? "test inputs" : name, points: values.map((value, i) => [value, 100 * (i + 1) / values.length]) })),
    });
    const own = choice.value === data.score ? data.value : test[Math.round(0.95 * (test.length - 1))];
    slider.value = Math.round(1000 * own / score.largest);
    update(own); // exact, while the slider has a thousand steps
  }
  slider.addEventListener("input", () => {
    const { largest, sets } = data.scores[choice.value];
    const last = Math.max(largest, ...Object.values(sets).map(({ values }) => values[values.length - 1] ?? 0)); // `largest` is rounded
    update(slider.value >= 1000 ? last : largest * slider.value / 1000);
  });
  choice.addEventListener("change", start);
  restore.addEventListener("click", () => { choice.value = data.score; start(); });
  choice.value = data.score;
  start();
}

// -- samples -----------------------------------------------------------------------------------

function bar(name, low, high, mark, text) {
  const label = element("span", "name", name);
  label.title = name;
  const svg = shape("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${text}` });
  shape("rect", { class: "track", x: 0, y: 4, width: 100, height: 4 }, svg);
  shape("rect", { class: "range", x: 100 * low, y: 1, width: Math.max(100 * (high - low), 0.5), height: 10 }, svg);
  shape("rect", { class: "mark", x: Math.min(Math.max(100 * mark - 0.7, 0), 98.6), y: 0, width: 1.4, height: 12 }, svg);
  return [label, svg, element("span", "value", text)];
}

/** The mass of a set as a part of its belief. */
function massBar(name, mass, belief) {
  const parts = bar(name, 0, Math.max(belief, mass), 0, `${mass.toFixed(2)} of ${belief.toFixed(2)}`);
  const mark = parts[1].querySelector(".mark");
  for (const [key, value] of Object.entries({ x: 0, y: 3, width: Math.max(100 * mass, 0.5), height: 6 })) mark.setAttribute(key, value);
  return parts;
}

function sampleCard(sample) {
  const card = element("div", "sample");
  const top = element("div", "top");
  if (sample.image) {
    const image = element("img");
    image.src = `data:image/png;base64,${sample.image}`;
    image.alt = sample.truth ? `${sample.truth}, predicted ${sample.label}` : `predicted ${sample.label}`;
    top.append(image);
  }
  const words = element("div");
  const verdict = !sample.truth ? "" : sample.truth === sample.label ? " (correct)" : ` (true class: ${sample.truth})`;
  words.append(element("p", "", `predicted ${sample.label}${verdict}`));
  if (sample.known !== null) words.append(element("span", `badge ${sample.known ? "known" : "unknown"}`, sample.known ? "known" : "unknown"));
  words.append(element("p", "note", `entropy ${sample.entropy.toFixed(2)} bits${sample.width === undefined ? "" : `, credal width ${sample.width.toFixed(2)}`}`));
  top.append(words);
  card.append(top);
  if (sample.reliability) card.append(element("p", "note", sample.reliability));
  if (sample.text) card.append(element("p", "text", sample.text));
  const intervals = element("div", "bars");
  intervals.append(...sample.classes.flatMap(([name, p, low, high]) => bar(name, low, high, p, p.toFixed(2))));
  card.append(intervals);
  if (sample.sets.length) {
    const masses = element("div", "bars");
    masses.append(...sample.sets.flatMap((part) => massBar(...part)));
    card.append(element("p", "note", "mass of each set, out of its belief"), masses);
  }
  return card;
}

// -- ellipsoids --------------------------------------------------------------------------------

function ellipsoids(section, data) {
  const canvas = section.querySelector("canvas"), pen = canvas.getContext("2d");
  const shown = data.classes.map(() => true);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const tint = (of) => (dark.matches ? lighter(data.colours[of]) : data.colours[of]);
  let [azimuth, elevation, zoom] = [0.6, 0.35, 1];
  const rings = data.ellipsoids.map(({ centre, axes, of }) => {
    const circles = [];
    for (const [i, j, k] of [[0, 1, 2], [1, 2, 0], [2, 0, 1]]) {
      for (const height of [-0.6, 0, 0.6]) {
        const reach = Math.sqrt(1 - height * height), ring = [];
        for (let step = 0; step <= 48; step += 1) {
          const [c, s] = [Math.cos(step / 24 * Math.PI) * reach, Math.sin(step / 24 * Math.PI) * reach];
          ring.push([0, 1, 2].map((d) => centre[d] + data.radius * (axes[d][i] * c + axes[d][j] * s + axes[d][k] * height)));
        }
        circles.push(ring);
      }
    }
    return { of, rings: circles };
  });
  const outline = rings.flatMap((ellipsoid) => ellipsoid.rings.flat());
  const middle = [0, 1, 2].map((d) => (Math.min(...outline.map((p) => p[d])) + Math.max(...outline.map((p) => p[d]))) / 2);
  const reach = Math.max(...outline.map((p) => Math.hypot(...p.map((v, d) => v - middle[d])))) || 1;

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const scale = zoom * 0.49 * Math.min(width, height) / reach;
    const [ca, sa, ce, se] = [Math.cos(azimuth), Math.sin(azimuth), Math.cos(elevation), Math.sin(elevation)];
    const project = (p) => {
      const [x, y, z] = p.map((v, d) => v - middle[d]);
      const [a, b] = [ca * x + sa * y, -sa * x + ca * y];
      return [width / 2 + scale * a, height / 2 - scale * (ce * z + se * b), ce * b - se * z];
    };
    for (const [x, y, z, of] of data.points) {
      if (!shown[of]) continue;
      const [px, py, depth] = project([x, y, z]);
      pen.globalAlpha = 0.55 - 0.25 * depth / reach;
      pen.fillStyle = tint(of);
      pen.fillRect(px - 1, py - 1, 2, 2);
    }
    const lines = rings.flatMap(({ of, rings: circles }) => (shown[of] ? circles.map((ring) => ({ of, points: ring.map(project) })) : []));
    for (const { of, points } of lines) {
      pen.strokeStyle = tint(of);
      for (let i = 1; i < points.length; i += 1) {
        pen.globalAlpha = Math.min(Math.max(0.5 - 0.4 * points[i][2] / reach, 0.12), 0.95);
        pen.lineWidth = 1.3 - 0.5 * points[i][2] / reach;
        pen.beginPath();
        pen.moveTo(points[i - 1][0], points[i - 1][1]);
        pen.lineTo(points[i][0], points[i][1]);
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
  }
  function rotate(right, up) {
    azimuth += right;
    elevation = Math.min(Math.max(elevation + up, -1.57), 1.57);
  }
  let last = null;
  canvas.addEventListener("pointerdown", (event) => { last = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    rotate((event.clientX - last[0]) / 120, (event.clientY - last[1]) / 120);
    last = [event.clientX, event.clientY];
    draw();
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { last = null; });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom = Math.min(Math.max(zoom * Math.exp(-event.deltaY / 600), 0.5), 8); draw(); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.12], ArrowDown: [0, 0.12] }[event.key];
    if (event.key === "+" || event.key === "-") zoom *= event.key === "+" ? 1.2 : 1 / 1.2;
    else if (!move) return;
    else rotate(...move);
    event.preventDefault();
    draw();
  });
  const legend = element("div", "legend");
  data.classes.forEach((name, index) => legend.append(toggle(name, data.colours[index], (on) => { shown[index] = on; draw(); })));
  section.append(legend);
  dark.addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
  draw();
}

/** A colour halfway to white, visible on a dark background. */
function lighter(hex) {
  const parts = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgb(${parts.map((part) => Math.round((part + 255) / 2)).join(" ")})`;
}

// -- tables ------------------------------------------------------------------------------------

function sortable(table) {
  table.querySelectorAll("th").forEach((head, column) => {
    const button = element("button", "", head.textContent);
    button.type = "button";
    button.title = "Sort";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim();
      const words = column === 0;
      const order = (a, b) => (words ? text(a).localeCompare(text(b)) : parseFloat(text(a)) - parseFloat(text(b))) * (down ? -1 : 1);
      const rows = [...table.tBodies[0].rows], missing = rows.filter((row) => !words && Number.isNaN(parseFloat(text(row))));
      table.tBodies[0].append(...rows.filter((row) => !missing.includes(row)).sort(order), ...missing); // missing values last
    });
  });
}

// -- start -------------------------------------------------------------------------------------

document.querySelectorAll("[data-chart]").forEach((figure) => chart(figure, content.charts[Number(figure.dataset.chart)]));
document.querySelectorAll("[data-gallery]").forEach((row) => row.append(...content.gallery[Number(row.dataset.gallery)].map(sampleCard)));
document.querySelectorAll("table.sortable").forEach(sortable);
if (content.threshold) thresholdControl(document.getElementById("threshold"), content.threshold);
if (content.space) ellipsoids(document.getElementById("space"), content.space);
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
