// Drawing: the picture, a bar chart for each action of each agent, and curves along the recording.

const WIDE = 1000, HIGH = 100; // units of a chart, stretched to its size on the page
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, parent = null, text = null) {
  const svg = ["svg", "path", "line"].includes(name);
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function format(value, digits = 3) {
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return value.toFixed(size >= 100 ? 1 : digits).replace("-", "−");
}

function drawPicture(canvas, store, picture) {
  const { height, width } = store.meta.picture;
  if (canvas.width !== width) { canvas.width = width; canvas.height = height; }
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const colours = store.palette.map((rgb) => 0xff000000 | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16));
  for (let i = 0; i < pixels.length; i++) pixels[i] = colours[picture[i]];
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const union = (ranges) => [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];

// Limits that fit the distributions of all agents at all steps, so that they can be compared.
function commonLimits(views) {
  const signed = views.filter((view) => view.kind === "masses");
  return {
    x: union(views.map((view) => view.limits.x)),
    y: signed.length ? union(signed.map((view) => view.limits.y)) : [0, 1],
    ends: union(views.map((view) => (view.kind === "masses" ? [view.atoms[0], view.atoms.at(-1)] : view.limits.x))),
  };
}

// Limits that fit the masses of one agent at one step: the same rule as mass_limits in plots.py.
function massLimits(masses) {
  let low = 0, top = 0.02;
  for (const mass of masses) { top = Math.max(top, mass); low = Math.min(low, mass); }
  return [Math.min(1.08 * low, -0.06 * top), 1.08 * top];
}

class Chart {
  constructor(parent, view, action, name) {
    this.view = view;
    this.name = name;
    this.box = make("article", { class: "chart", "data-action": action }, parent);
    const head = make("header", {}, this.box);
    this.title = make("b", {}, head, name);
    this.info = make("span", { class: "soft" }, head);
    this.svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" }, this.box);
    this.positive = make("path", { class: "bars-positive" }, this.svg);
    this.negative = make("path", { class: "bars-negative" }, this.svg);
    this.zero = make("line", { class: "zero", x1: 0, x2: WIDE }, this.svg);
    this.mean = make("line", { class: "mean", y1: 0, y2: HIGH }, this.svg);
    this.realised = make("line", { class: "realised", y1: 0, y2: HIGH }, this.svg);
    this.axis = make("div", { class: "axis", "aria-hidden": "true" }, this.box);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.info.textContent = this.text; });
  }

  setLimits({ x, ends }) {
    this.x = x;
    this.axis.replaceChildren();
    const far = (tick) => ends.every((end) => Math.abs(tick - end) > 0.15 * (ends[1] - ends[0]));
    for (const tick of [ends[0], ...[0, (ends[0] + ends[1]) / 2].filter(far).slice(0, 1), ends[1]]) {
      const span = make("span", {}, this.axis, String(+tick.toPrecision(3)).replace("-", "−"));
      span.style.left = `${((tick - x[0]) / (x[1] - x[0])) * 100}%`;
    }
  }

  across(value) { return ((value - this.x[0]) / (this.x[1] - this.x[0])) * WIDE; }

  // `distribution` holds the masses of the view's atoms, or the atoms of equal masses.
  draw(distribution, y, facts) {
    this.distribution = distribution;
    this.y = y;
    if (this.view.kind === "masses") this.drawMasses(distribution, y); else this.drawQuantiles(distribution);
    const mean = this.across(facts.mean); // the mean of signed masses may lie outside the atoms: then the line is at the end
    moveTo(this.mean, Math.min(WIDE - 3, Math.max(3, mean)));
    this.realised.style.display = Number.isNaN(facts.realised) || !facts.taken ? "none" : "";
    if (!Number.isNaN(facts.realised)) moveTo(this.realised, this.across(facts.realised));
    this.box.classList.toggle("taken", facts.taken);
    this.title.textContent = `${facts.favourite ? "★ " : ""}${this.name}`;
    const { total, negative } = this.sums();
    this.text = `${mean < 0 ? "← " : ""}mean ${format(facts.mean)}${mean > WIDE ? " →" : ""}`;
    if (negative > 0.0005) this.text += ` · neg ${format(negative)}`;
    this.info.textContent = this.text;
    this.svg.setAttribute("aria-label", `${this.name}: mean ${format(facts.mean)}, total mass ${format(total)}, ` +
      `negative mass ${format(negative)}${facts.taken ? ", taken" : ""}${facts.favourite ? ", the agent's favourite" : ""}`);
  }

  sums() {
    if (this.view.kind !== "masses") return { total: 1, negative: 0 };
    let total = 0, negative = 0;
    for (const mass of this.distribution) { total += mass; if (mass < 0) negative -= mass; }
    return { total, negative };
  }

  drawMasses(distribution, y) {
    const { atoms } = this.view, paths = ["", ""];
    const up = (mass) => HIGH * (y[1] - mass) / (y[1] - y[0]), zero = up(0);
    let space = Infinity;
    for (let i = 1; i < atoms.length; i++) space = Math.min(space, atoms[i] - atoms[i - 1]);
    const half = this.across(this.x[0] + 0.44 * (Number.isFinite(space) ? space : (this.x[1] - this.x[0]) / 50));
    for (let i = 0; i < distribution.length; i++) {
      if (distribution[i] === 0) continue;
      const middle = this.across(atoms[i]), end = up(distribution[i]);
      paths[distribution[i] < 0 ? 1 : 0] += `M${(middle - half).toFixed(1)} ${zero.toFixed(2)}V${end.toFixed(2)}h${(2 * half).toFixed(1)}V${zero.toFixed(2)}z`;
    }
    this.positive.setAttribute("d", paths[0]);
    this.negative.setAttribute("d", paths[1]);
    this.zero.setAttribute("y1", zero);
    this.zero.setAttribute("y2", zero);
  }

  drawQuantiles(distribution) {
    let path = "";
    const half = distribution.length > 1 ? 1.6 : 4;
    for (const value of distribution) path += `M${(this.across(value) - half).toFixed(1)} ${HIGH - 1}V20h${2 * half}V${HIGH - 1}z`;
    this.positive.setAttribute("d", path);
    this.zero.setAttribute("y1", HIGH - 1);
    this.zero.setAttribute("y2", HIGH - 1);
  }

  // Shows the atom nearest to the pointer and its mass.
  point(event) {
    if (this.view.kind !== "masses" || !this.distribution) return;
    const box = this.svg.getBoundingClientRect();
    const at = this.x[0] + ((event.clientX - box.left) / box.width) * (this.x[1] - this.x[0]);
    let nearest = 0;
    this.view.atoms.forEach((atom, i) => { if (Math.abs(atom - at) < Math.abs(this.view.atoms[nearest] - at)) nearest = i; });
    this.info.textContent = `return ${format(this.view.atoms[nearest], 2)}: mass ${format(this.distribution[nearest], 4)}`;
  }
}

function moveTo(line, x) {
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
}

class Curve {
  constructor(parent, title, series, level, seek) {
    this.series = series;
    this.level = level;
    const box = make("div", { class: "curve" }, parent);
    const head = make("h3", {}, box);
    make("span", {}, head, title);
    this.ends = make("span", {}, head);
    this.svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, box);
    this.paths = series.map((_, i) => make("path", { class: `line-${i % 4}` }, this.svg));
    this.cursor = make("line", { class: "cursor", y1: 0, y2: HIGH }, this.svg);
    const go = (event) => {
      const rect = this.svg.getBoundingClientRect();
      seek(Math.min(1, Math.max(0, (event.clientX - rect.left) / rect.width)));
    };
    this.svg.addEventListener("pointerdown", (event) => { this.svg.setPointerCapture(event.pointerId); go(event); });
    this.svg.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
    this.title = title;
  }

  draw() {
    const all = this.series.map((values) => values());
    let low = this.level, high = this.level;
    for (const values of all) for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    this.ends.textContent = high - low < 1e-3 ? format(low, 2) : `${format(low, 2)} … ${format(high, 2)}`;
    this.svg.setAttribute("aria-label", `${this.title} along the recording: ${this.ends.textContent.replace("…", "to")}`);
    if (high - low < 1e-3) { high += 0.5; low -= 0.02; }
    const up = (value) => (HIGH - 3 - ((value - low) / (high - low)) * (HIGH - 6)).toFixed(1);
    all.forEach((values, i) => this.paths[i].setAttribute("d", envelope(values, up)));
  }

  at(fraction) { moveTo(this.cursor, fraction * WIDE); }
}

// A line of at most 800 columns through the least and the greatest value of each, so that no spike is lost.
function envelope(values, up) {
  const columns = Math.min(values.length, 800);
  let path = "";
  for (let column = 0; column < columns; column++) {
    const from = Math.floor((column * values.length) / columns), to = Math.max(from + 1, Math.floor(((column + 1) * values.length) / columns));
    let low = values[from], high = values[from];
    for (let i = from; i < to; i++) { if (values[i] < low) low = values[i]; if (values[i] > high) high = values[i]; }
    const x = ((columns === 1 ? 0.5 : column / (columns - 1)) * WIDE).toFixed(1);
    path += `${column ? "L" : "M"}${x} ${up(low)}${high > low ? `L${x} ${up(high)}` : ""}`;
  }
  return path;
}
