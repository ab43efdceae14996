"use strict";

const find = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";
const state = { model: null, base: null, drawn: false, blob: null, share: 0.75, noise: null, trace: new Map(), subject: 0, busy: false, again: false, work: 0 };

// -- requests ----------------------------------------------------------------------------------

async function ask(body, kind) {
  const sent = { method: "POST", headers: { "Content-Type": kind }, body };
  const reply = await fetch("/predict?masses=true", sent).catch(() => { throw new Error("The service is not responding."); });
  const content = await reply.json().catch(() => ({ error: `The service returned status ${reply.status}.` }));
  if (!reply.ok) throw new Error(content.error);
  return content.predictions[0];
}

/** Send one request at a time, and meanwhile keep only the latest one. Answers for an earlier subject are dropped. */
async function rereset(make) {
  if (state.busy) { state.again = make; return; }
  state.busy = true;
  changeWork(1);
  const subject = state.subject;
  try {
    const [body, kind] = await make();
    const answer = body === null ? null : await ask(body, kind);
    if (answer !== null && subject === state.subject) show(answer);
  } catch (error) {
    if (subject === state.subject) showError(error.message);
  }
  state.busy = false;
  if (state.again) {
    const next = state.again;
    state.again = false;
    rereset(next);
  }
  changeWork(-1);
}

function changeWork(change) {
  state.work += change;
  find("answer").ariaBusy = String(state.work > 0);
}

// -- results -----------------------------------------------------------------------------------

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function shape(tag, attributes) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** Remove the prediction when there is no input. */
function clearAnswer() {
  state.subject += 1;
  state.again = false;
  find("bars").hidden = true;
  find("answer").replaceChildren(element("p", "hint", "Enter an input to see its prediction."));
}

function showError(message) {
  find("answer").replaceChildren(element("p", "error", message));
  find("bars").hidden = true;
}

function show(answer) {
  const verdicts = element("div");
  verdicts.append(...badges(answer).flatMap((badge) => [badge, " "]));
  const parts = [element("p", "label", answer.label), verdicts];
  const bounds = answer.lower === undefined ? "" : `, between ${answer.lower.toFixed(2)} and ${answer.upper.toFixed(2)}`;
  parts.push(element("p", "words", `Probability ${answer.confidence.toFixed(2)}${bounds}. Entropy ${answer.entropy.toFixed(2)} bits` +
    (answer.credal_width === undefined ? "." : `, credal width ${answer.credal_width.toFixed(2)}.`)));
  find("answer").replaceChildren(...parts);
  find("bars").hidden = false;
  const top = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]).slice(0, 10);
  find("intervals").replaceChildren(...top.flatMap(([name, p]) => {
    const [low, high] = answer.intervals[name] || [0, p];
    return bar(name, low, high, p, name in answer.intervals ? `${p.toFixed(2)} in [${low.toFixed(2)}, ${high.toFixed(2)}]` : p.toFixed(2));
  }));
  const bounded = Object.keys(answer.intervals).length > 0;
  find("intervals").previousElementSibling.textContent = `Probability of each class${bounded ? ", with its lower and upper bound" : ""}`;
  const masses = (answer.masses || []).filter(({ mass }) => mass >= 0.001).sort((a, b) => b.mass - a.mass).slice(0, 8);
  const count = state.model.classes.length;
  find("masses").replaceChildren(...masses.flatMap(({ set, mass }) => {
    const name = set.length === count && count > 1 ? "any class" : `{${set.join(", ")}}`;
    return bar(name, 0, mass, mass, mass.toFixed(3));
  }));
  find("masses").previousElementSibling.hidden = !masses.length;
  plotTrace(answer.entropy);
}

/** Whether the input is like the training data, and whether the threshold accepts it. */
function badges(answer) {
  const { reliability, threshold } = state.model;
  const badge = (good, text) => element("span", `badge ${good ? "known" : "unknown"}`, text);
  const shown = [];
  if (answer.reliability !== undefined) {
    const pair = [answer.reliability, reliability.familiar_from];
    const digits = [3, 4, 5, 6].find((n) => pair[0].toFixed(n) !== pair[1].toFixed(n)) || 3;  // enough to tell them apart
    const [own, limit] = pair.map((value) => value.toFixed(digits));
    const word = answer.familiar ? "familiar" : "unlike the training data";
    shown.push(badge(answer.familiar, `${word}: reliability ${own} (${limit} or more for 95 % of known inputs)`));
  }
  if (answer.known !== null) {
    const limit = `${threshold.score} ${answer.known ? "within" : "above"} ${Number(threshold.value.toPrecision(3))}`;
    shown.push(badge(answer.known, `${answer.known ? "accepted" : "rejected"}: ${limit}`));
  }
  return shown;
}

function bar(name, low, high, mark, text) {
  const label = element("span", "name", name);
  label.title = name;
  const svg = shape("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${text}` });
  svg.append(
    shape("rect", { class: "track", x: 0, y: 6, width: 100, height: 4 }),
    shape("rect", { class: "range", x: 100 * low, y: 2, width: Math.max(100 * (high - low), 0.4), height: 12 }),
    shape("rect", { class: "mark", x: Math.min(Math.max(100 * mark - 0.5, 0), 99), y: 0, width: 1, height: 16 }),
  );
  return [label, svg, element("span", "value", text)];
}

/** Plot the entropy at every rotation tried on this image. */
function plotTrace(entropy) {
  if (state.model.input.kind !== "images") return;
  state.trace.set(Number(find("rotation").value), entropy);
  const box = find("trace-box");
  box.hidden = state.trace.size < 2;
  if (box.hidden) return;
  const largest = Math.log2(state.model.classes.length) || 1;
  const at = (turn, value) => [10 + (turn + 180) / 360 * 260, 65 - 60 * value / largest];
  const points = [...state.trace].sort((a, b) => a[0] - b[0]).map(([turn, value]) => at(turn, value));
  const parts = [shape("polyline", { class: "line", points: points.map((p) => p.join(",")).join(" ") })];
  parts.push(...points.map(([x, y]) => shape("circle", { class: "dot", cx: x, cy: y, r: 2.5 })));
  const limit = state.model.threshold;
  if (limit && limit.score === "entropy") {
    const y = at(0, limit.value)[1];
    parts.push(shape("line", { class: "limit", x1: 10, x2: 270, y1: y, y2: y }));
  }
  for (const turn of [-180, -90, 0, 90, 180]) {
    const text = shape("text", { x: at(turn, 0)[0], y: 80, "text-anchor": turn === -180 ? "start" : turn === 180 ? "end" : "middle" });
    text.textContent = `${turn}°`;
    parts.push(text);
  }
  find("trace").replaceChildren(...parts);
}

// -- images ------------------------------------------------------------------------------------

function blank(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, width, height);
  return canvas;
}

/** Start over with an empty board, or with an image in its original size. */
function reset(picture = null, blob = null) {
  const board = find("board");
  state.subject += 1;
  state.drawn = picture === null;
  state.base = picture === null ? blank(board.width, board.height) : picture;
  state.blob = blob;
  state.trace.clear();
  find("trace-box").hidden = true;
  find("rotation").value = find("noise").value = 0;
  showSliderValues();
}

function showSliderValues() {
  find("rotation-value").value = `${find("rotation").value}°`;
  find("noise-value").value = `${find("noise").value} %`;
}

/** The square around the drawing, as [x, y, side]; null on an empty board. */
function drawingBox() {
  const { width, height } = state.base;
  const pixels = state.base.getContext("2d").getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (pixels[4 * (width * y + x)] > 40) {
        left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
      }
    }
  }
  if (right < 0) return null;
  const side = Math.max(right - left, bottom - top, 20) + 1;
  return [(left + right + 1 - side) / 2, (top + bottom + 1 - side) / 2, side];
}

/** Copy a part of a canvas, halving it repeatedly so that thin lines survive. */
function shrunk(from, [x, y, wide, high], width) {
  let picture = blank(Math.round(wide), Math.round(high));
  picture.getContext("2d").drawImage(from, x, y, wide, high, 0, 0, picture.width, picture.height);
  while (picture.width >= 2 * width) {
    const half = blank(Math.ceil(picture.width / 2), Math.ceil(picture.height / 2));
    half.getContext("2d").drawImage(picture, 0, 0, half.width, half.height);
    picture = half;
  }
  return picture;
}

/** Draw the image for the network into the small canvas: rotated, with noise, drawings centred. */
function drawNetworkInput() {
  const [, height, width] = state.model.input.shape;
  const small = find("seen");
  small.width = width;
  small.height = height;
  const pen = small.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, width, height);
  let [wide, high, part] = [width, height, null];
  if (state.drawn) {
    const box = drawingBox();
    if (box === null) return false;
    wide = high = state.share * Math.min(width, height);
    part = [...box, box[2]];
  } else {
    part = middle(state.base, width / height);
  }
  const picture = shrunk(state.base, part, wide);
  pen.save();
  pen.translate(width / 2, height / 2);
  pen.rotate(Number(find("rotation").value) * Math.PI / 180);
  pen.drawImage(picture, -wide / 2, -high / 2, wide, high);
  pen.restore();
  const amount = Number(find("noise").value) / 100;
  if (amount > 0) {
    const image = pen.getImageData(0, 0, width, height);
    if (!state.noise || state.noise.length < image.data.length) {
      state.noise = Float32Array.from({ length: image.data.length }, () =>
        Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random()));
    }
    const grey = state.model.input.shape[0] === 1;
    for (let i = 0; i < image.data.length; i += 1) {
      if (i % 4 !== 3) image.data[i] += 255 * amount * state.noise[grey ? i - i % 4 : i];
    }
    pen.putImageData(image, 0, 0);
  }
  return true;
}

/** The largest centred part of a canvas with these proportions. */
function middle({ width, height }, proportion) {
  const wide = Math.min(width, height * proportion), high = Math.min(height, width / proportion);
  return [(width - wide) / 2, (height - high) / 2, wide, high];
}

function predictImage() {
  const board = find("board"), pen = board.getContext("2d"), turn = Number(find("rotation").value);
  const { width, height } = board;
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingEnabled = state.base.width > width;
  pen.save();
  pen.translate(width / 2, height / 2);
  pen.rotate(turn * Math.PI / 180);
  pen.drawImage(state.base, ...middle(state.base, width / height), -width / 2, -height / 2, width, height);
  pen.restore();
  const drawn = drawNetworkInput();
  const untouched = !turn && !Number(find("noise").value) ? state.blob : null; // sent unchanged, so that the prediction is that of the file
  rereset(async () => {
    if (!drawn) return [null, ""];
    const blob = untouched || await new Promise((done) => find("seen").toBlob(done, "image/png"));
    return [blob, blob.type || "application/octet-stream"];
  });
}

async function open(blob) {
  changeWork(1);
  try {
    const picture = await createImageBitmap(blob);
    const scale = Math.min(1, 1024 / Math.max(picture.width, picture.height)); // enough for rotation
    const canvas = blank(Math.max(1, Math.round(picture.width * scale)), Math.max(1, Math.round(picture.height * scale)));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    reset(canvas, blob);
    predictImage();
  } catch {
    showError("This file is not a readable image.");
  }
  changeWork(-1);
}

function prepareImages() {
  find("images").hidden = false;
  const board = find("board");
  const [, high, wide] = state.model.input.shape;
  const longest = Math.max(wide, high);
  board.width = Math.max(1, Math.round(280 * wide / longest));
  board.height = Math.max(1, Math.round(280 * high / longest));
  for (const [name, canvas] of [["--board", board], ["--small", find("seen")]]) {
    canvas.style.width = `calc(var(${name}) * ${wide / longest})`;
    canvas.style.height = `calc(var(${name}) * ${high / longest})`;
  }
  reset();
  let last = null;
  const place = (event) => {
    const box = board.getBoundingClientRect();
    return [(event.clientX - box.left) * board.width / box.width, (event.clientY - box.top) * board.height / box.height];
  };
  board.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    if (!state.drawn || Number(find("rotation").value) || Number(find("noise").value)) reset();
    board.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(last, last);
  });
  board.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const next = place(event);
    stroke(last, next);
    last = next;
  });
  for (const name of ["pointerup", "pointercancel"]) board.addEventListener(name, () => { last = null; });
  function stroke(from, to) {
    const pen = state.base.getContext("2d");
    pen.strokeStyle = "#fff";
    pen.lineWidth = 22;
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.stroke();
    state.trace.clear();
    predictImage();
  }
  find("rotation").addEventListener("input", () => { showSliderValues(); predictImage(); });
  find("noise").addEventListener("input", () => { showSliderValues(); state.trace.clear(); predictImage(); });
  find("clear").addEventListener("click", () => {
    reset();
    predictImage();
    clearAnswer();
  });
  find("file").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); event.target.value = ""; });
  document.addEventListener("dragover", (event) => { event.preventDefault(); board.classList.add("over"); });
  document.addEventListener("dragleave", () => board.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    board.classList.remove("over");
    if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files][0];
    if (file) open(file);
  });
  drawNetworkInput();
  showSamples();
}

async function showSamples() {
  const samples = await fetch("/samples").then((reply) => reply.json()).catch(() => []);
  const shares = [];
  for (const { png, label } of samples) {
    const image = element("img");
    image.src = `data:image/png;base64,${png}`;
    image.alt = label ? `sample of class ${label}` : "sample";
    const button = element("button");
    button.type = "button";
    button.append(image);
    const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
    button.addEventListener("click", () => open(new Blob([bytes], { type: "image/png" })));
    find("samples").append(button);
    await image.decode().catch(() => {});
    shares.push(share(image));
  }
  if (shares.length) state.share = Math.min(Math.max(shares.reduce((a, b) => a + b) / shares.length, 0.5), 1);
}

/** The share of its frame that a sample fills: drawings are scaled to the same share. */
function share(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth || 1;
  canvas.height = image.naturalHeight || 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(image, 0, 0);
  const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  let [left, top, right, bottom] = [canvas.width, canvas.height, 0, 0];
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i] > 60) {
      const [x, y] = [(i / 4) % canvas.width, Math.floor(i / 4 / canvas.width)];
      left = Math.min(left, x); right = Math.max(right, x + 1); top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
    }
  }
  return Math.max((right - left) / canvas.width, (bottom - top) / canvas.height);
}

// -- texts and numbers -------------------------------------------------------------------------

/** Reshape a flat list of numbers to nested lists. */
function shaped(numbers, [size, ...rest]) {
  if (!rest.length) return numbers;
  const step = Math.ceil(numbers.length / size);
  return Array.from({ length: size }, (_, i) => shaped(numbers.slice(i * step, (i + 1) * step), rest));
}

function prepareWords(kind) {
  find("words").hidden = false;
  const numbers = kind !== "texts";
  if (numbers) find("text-label").textContent = `${state.model.input.shape.join(" × ")} numbers, separated by commas or spaces`;
  let timer = 0;
  find("text").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => rereset(async () => {
      const text = find("text").value.trim();
      if (!text) { clearAnswer(); return [null, ""]; }
      const body = numbers ? { inputs: [shaped(text.split(/[\s,;]+/).map(Number), state.model.input.shape)] } : { texts: [text] };
      return [JSON.stringify(body), "application/json"];
    }), 200);
  });
}

// -- start -------------------------------------------------------------------------------------

async function start() {
  try {
    state.model = await (await fetch("/model")).json();
  } catch {
    find("about").textContent = "The service is not responding.";
    return;
  }
  const { classes, sets, metrics, input } = state.model;
  const names = classes.length > 8 ? `${classes.slice(0, 8).join(", ")}, …` : classes.join(", ");
  const accuracy = metrics.accuracy === undefined ? "" : ` It classified ${(100 * metrics.accuracy).toFixed(1)} % of ${metrics.samples} test samples correctly.`;
  const larger = sets.filter((set) => set.length > 1).length;
  find("about").textContent = `The model distinguishes ${classes.length} classes (${names})${larger ? ` and assigns mass to ${larger} sets of several classes` : ""}.${accuracy}`;
  if (input.kind === "images") prepareImages();
  else prepareWords(input.kind);
}

start();
