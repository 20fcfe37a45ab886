"use strict";
// Shows values where the reader points at a figure, and opens everything for printing. The page's last script.

function made(name, where, kind = "") {
  const node = document.createElement(name);
  if (kind) node.className = kind;
  return where.appendChild(node);
}

let shown = null; // the panel that is pointed at
const tip = made("div", document.body, "tip");
tip.hidden = true;

// A panel of a figure. Readers point at it, touch it, or walk through it with the arrow keys like a slider. Curves are
// read from left to right, bars from the top down.
class Panel {
  constructor(data, plot) {
    this.data = data;
    this.stop = 0;
    this.upright = data.along === "y";
    this.node = made("div", plot, "panel");
    const [left, top, width, height] = data.box;
    Object.assign(this.node.style, { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` });
    const said = { role: "slider", tabindex: 0, "aria-label": `values of ${data.title}`, "aria-valuemin": 0 };
    for (const [name, value] of Object.entries(said)) this.node.setAttribute(name, value);
    this.node.setAttribute("aria-valuemax", data.stops.length - 1);
    if (this.upright) this.node.setAttribute("aria-orientation", "vertical");
    this.describe();
    for (const kind of ["pointermove", "pointerdown"]) this.node.addEventListener(kind, (event) => this.point(event));
    this.node.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.hide());
    this.node.addEventListener("focus", () => this.show(this.stop));
    this.node.addEventListener("blur", () => this.hide());
    this.node.addEventListener("keydown", (event) => this.press(event));
  }

  point(event) {
    const box = this.node.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
    const at = 100 * (this.upright ? down : across);
    const far = this.data.stops.map(([, place]) => Math.abs(place - at));
    this.show(far.indexOf(Math.min(...far)));
  }

  press(event) {
    const last = this.data.stops.length - 1;
    const up = this.upright ? -1 : 1;
    const ways = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: up, ArrowDown: -up, PageUp: 10 * up, PageDown: -10 * up };
    const ends = { Home: 0, End: last };
    if (event.key === "Escape") this.hide();
    else if (event.key in ways) this.show(Math.min(Math.max(this.stop + ways[event.key], 0), last));
    else if (event.key in ends) this.show(ends[event.key]);
    else return;
    event.preventDefault();
    if (shown) this.node.scrollIntoView({ block: "nearest" });
  }

  // The lines with a value at the current stop, each with that value.
  rows() {
    return this.data.lines.map((line) => [line, line.points[this.stop]]).filter(([, point]) => point);
  }

  describe() {
    const words = this.rows().map(([line, point]) => `${line.label} ${point[2]}`);
    this.node.setAttribute("aria-valuenow", this.stop);
    this.node.setAttribute("aria-valuetext", `${this.data.stops[this.stop][0]}: ${words.join("; ")}`);
  }

  show(stop) {
    this.stop = stop;
    this.describe();
    this.node.replaceChildren();
    tip.replaceChildren();
    const [words, at] = this.data.stops[stop];
    made("i", this.node, this.upright ? "rule flat" : "rule").style[this.upright ? "top" : "left"] = `${at}%`;
    made("b", tip).textContent = `${this.data.title}, ${words}`;
    const body = made("tbody", made("table", tip));
    for (const [line, [left, top, value]] of this.rows()) {
      const dot = made("i", this.node, "dot");
      Object.assign(dot.style, { left: `${left}%`, top: `${top}%`, background: line.colour });
      const row = made("tr", body);
      made("i", made("td", row)).style.background = line.colour;
      for (const text of [line.label, value]) made("td", row).textContent = text;
    }
    shown = this;
    this.place();
  }

  // Places the tip below the panel, or above it if there is no room, so that the lines stay visible; in the last row
  // of a figure, below its axis and legend. Hides it when the panel is scrolled out of sight.
  place() {
    const box = this.node.getBoundingClientRect(), plot = this.node.parentElement.getBoundingClientRect();
    const floor = plot.bottom - box.bottom < 0.6 * box.height ? plot.bottom : box.bottom;
    tip.hidden = box.bottom < 0 || box.top > innerHeight;
    const x = box.left + (this.upright ? 0.5 : this.data.stops[this.stop][1] / 100) * box.width;
    const below = floor + 8 + tip.offsetHeight < innerHeight;
    const within = (value, most) => `${Math.max(8, Math.min(value, most))}px`;
    tip.style.left = within(x - tip.offsetWidth / 2, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.top = within(below ? floor + 8 : box.top - tip.offsetHeight - 8, innerHeight - tip.offsetHeight - 8);
  }

  hide() {
    shown = null;
    this.node.replaceChildren();
    tip.hidden = true;
  }
}

for (const data of document.querySelectorAll("script.values")) {
  for (const panel of JSON.parse(data.textContent)) new Panel(panel, data.closest(".plot"));
}
for (const kind of ["scroll", "resize"]) addEventListener(kind, () => shown?.place(), { passive: true });

let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
document.documentElement.dataset.ready = "yes";
