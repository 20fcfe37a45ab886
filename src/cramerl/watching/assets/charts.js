// Drawing: the picture, and a bar chart for each action of each agent.

const WIDE = 1000, HIGH = 100; // units of a chart, stretched to its size on the page
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, parent = null, text = null) {
  const svg = ["svg", "path", "line", "rect"].includes(name);
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function format(value, digits = 3) {
  if (Number.isNaN(value)) return "–";
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

// The same scales with the line of zero at one height in all charts, so that agents can be compared side by side.
function withOneBaseline(scales) {
  const below = Math.max(...scales.map(([low, top]) => -low / (top - low)));
  return scales.map(([low, top]) => [Math.min(low, (-below / (1 - below)) * top), top]);
}

// Three to five round numbers between the ends: multiples of 1, 2 or 5 times a power of ten.
function roundTicks([low, high]) {
  if (!(high > low)) return [low];
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.999 * rough), slack = 1e-6 * step;
  const ticks = [];
  for (let i = Math.ceil((low - slack) / step); i * step <= high + slack; i++) ticks.push(+(i * step).toPrecision(12));
  return ticks;
}

class Chart {
  constructor(parent, view, action, name) {
    this.view = view;
    this.name = name;
    this.box = make("article", { class: "chart", "data-action": action }, parent);
    const head = make("header", {}, this.box);
    const title = make("span", { class: "name" }, head);
    this.title = make("b", {}, title, name);
    this.found = make("span", { class: "found" }, title);
    this.info = make("span", { class: "soft" }, head);
    const plot = make("div", { class: "plot" }, this.box);
    this.masses = make("div", { class: "masses", "aria-hidden": "true" }, plot);
    make("span", { class: "name" }, this.masses, "mass");
    this.ticks = ["top", "zero"].map((tick) => make("span", { class: tick }, this.masses));
    this.svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" }, plot);
    this.band = make("rect", { class: "band", y: 0, height: HIGH }, this.svg);
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
    make("i", {}, this.axis, "return");
    for (const tick of roundTicks(ends)) {
      const span = make("span", {}, this.axis, String(tick).replace("-", "−"));
      const place = (tick - x[0]) / (x[1] - x[0]);
      span.style.left = `${place * 100}%`;
      span.style.transform = `translateX(${place < 0.04 ? 0 : place > 0.96 ? -100 : -50}%)`; // within the chart
    }
  }

  across(value) { return ((value - this.x[0]) / (this.x[1] - this.x[0])) * WIDE; }

  // `distribution` holds the masses of the view's atoms, or the atoms of equal masses.
  draw(distribution, y, facts) {
    this.distribution = distribution;
    this.y = y;
    if (this.view.kind === "masses") this.drawMasses(distribution, y); else this.drawQuantiles(distribution);
    const mean = this.across(facts.mean), inside = (x) => Math.min(WIDE - 3, Math.max(3, x)); // outside the chart: at its end
    moveTo(this.mean, inside(mean));
    this.realised.style.display = Number.isNaN(facts.realised) || !facts.taken ? "none" : "";
    if (!Number.isNaN(facts.realised)) moveTo(this.realised, inside(this.across(facts.realised)));
    this.mark(facts.taken ? facts.mark : null);
    this.box.classList.toggle("taken", facts.taken && facts.framed);
    this.title.textContent = `${facts.favourite ? "★ " : ""}${this.name}`;
    const { total, negative } = this.sums();
    this.text = `${mean < 0 ? "← " : ""}mean ${format(facts.mean)}${mean > WIDE ? " →" : ""}`;
    if (negative > 0.0005) this.text += ` · neg ${format(negative)}`;
    this.info.textContent = this.text;
    this.svg.setAttribute("aria-label", `${this.name}: mean ${format(facts.mean)}, total mass ${format(total)}, ` +
      `negative mass ${format(negative)}${facts.taken && facts.framed ? ", taken" : ""}${facts.favourite ? ", the agent's favourite" : ""}`);
  }

  // Shades the returns on which a phenomenon shows.
  mark(mark) {
    this.band.style.display = mark ? "" : "none";
    this.found.textContent = mark ? mark.name : "";
    if (!mark) return;
    const from = Math.max(0, this.across(mark.low) - this.half()), to = Math.min(WIDE, this.across(mark.high) + this.half());
    this.band.setAttribute("x", from.toFixed(1));
    this.band.setAttribute("width", Math.max(4, to - from).toFixed(1));
  }

  // Half the width of a bar, with half of the gap beside it.
  half() {
    const { atoms } = this.view;
    let space = Infinity;
    for (let i = 1; i < atoms.length; i++) space = Math.min(space, atoms[i] - atoms[i - 1]);
    return this.across(this.x[0] + 0.5 * (Number.isFinite(space) ? space : (this.x[1] - this.x[0]) / 50));
  }

  drawTicks(top, zero) {
    const [highest, middle] = this.ticks;
    highest.textContent = top;
    middle.textContent = "0";
    middle.style.top = `${zero}%`;
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
    const half = 0.88 * this.half();
    for (let i = 0; i < distribution.length; i++) {
      if (distribution[i] === 0) continue;
      const middle = this.across(atoms[i]), end = up(distribution[i]);
      paths[distribution[i] < 0 ? 1 : 0] += `M${(middle - half).toFixed(1)} ${zero.toFixed(2)}V${end.toFixed(2)}h${(2 * half).toFixed(1)}V${zero.toFixed(2)}z`;
    }
    this.positive.setAttribute("d", paths[0]);
    this.negative.setAttribute("d", paths[1]);
    this.zero.setAttribute("y1", zero);
    this.zero.setAttribute("y2", zero);
    this.drawTicks(format(y[1], y[1] < 0.1 ? 3 : 2), zero);
  }

  drawQuantiles(distribution) {
    let path = "";
    const half = distribution.length > 1 ? 1.6 : 4;
    for (const value of distribution) path += `M${(this.across(value) - half).toFixed(1)} ${HIGH - 1}V20h${2 * half}V${HIGH - 1}z`;
    this.positive.setAttribute("d", path);
    this.zero.setAttribute("y1", HIGH - 1);
    this.zero.setAttribute("y2", HIGH - 1);
    this.ticks[0].textContent = `1/${distribution.length}`;
    this.ticks[0].style.top = "calc(20% - 0.5em)";
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
