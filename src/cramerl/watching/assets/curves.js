// Curves along the recording.

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
    const digits = high - low < 0.02 ? 3 : 2; // so that the ends differ where the curve does
    this.ends.textContent = high - low < 1e-3 ? format(low, 2) : `${format(low, digits)} … ${format(high, digits)}`;
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
    let low = Infinity, high = -Infinity;
    for (let i = from; i < to; i++) { if (values[i] < low) low = values[i]; if (values[i] > high) high = values[i]; }
    if (low > high) continue; // nothing is known there
    const x = ((columns === 1 ? 0.5 : column / (columns - 1)) * WIDE).toFixed(1);
    path += `${path ? "L" : "M"}${x} ${up(low)}${high > low ? `L${x} ${up(high)}` : ""}`;
  }
  return path;
}
