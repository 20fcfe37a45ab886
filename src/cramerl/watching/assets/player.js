// The player: controls, keys, and the step in the page's address.

const SPEEDS = [1, 2, 5, 10, 15, 30, 60, 120];
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const byId = (name) => document.getElementById(name);

// The step in the page's address, if there is one.
function stepOfHash() {
  const match = /^#t=(\d+)$/.exec(location.hash);
  return match ? Number(match[1]) : null;
}

// After a choice by pointer, keys control the player again; after a choice by keyboard, they stay with the list.
function freeKeysAfterPointer(select) {
  let pointed = false;
  select.addEventListener("pointerdown", () => { pointed = true; });
  select.addEventListener("keydown", () => { pointed = false; });
  select.addEventListener("change", () => { if (pointed) select.blur(); });
}

class Player {
  constructor(store, live) {
    this.store = store;
    this.live = live;
    this.step = store.first;
    this.playing = false;
    this.speed = live ? store.meta.fps : store.meta.unit === "state" ? 5 : 15;
    this.speeds = [...new Set([...SPEEDS, this.speed])].sort((a, b) => a - b);
    this.highlighted = [];
    this.drawn = Promise.resolve();
    this.build();
    this.rescale();
  }

  build() {
    const { meta, views } = this.store, column = byId("views");
    const process = meta.unit === "state";
    byId("facts").textContent = meta.facts.join(" · ");
    byId("caption").textContent = meta.picture.caption;
    for (const [name, colour] of meta.picture.legend) {
      const span = make("span", {}, byId("colours"));
      make("i", {}, span).style.background = colour;
      span.append(name);
    }
    for (const name of ["best-legend", "chosen-label", "chosen-keys"]) byId(name).hidden = process;
    byId("realised-legend").hidden = process || this.live;
    document.body.classList.add(process ? "states" : "steps");
    column.classList.toggle("single", process);
    column.classList.toggle("alone", views.length === 1);
    column.classList.toggle("few", meta.actions.length <= 3);
    column.style.setProperty("--rows",
      views.length > 1 || meta.actions.length <= 3 ? meta.actions.length : Math.ceil(meta.actions.length / 3));
    this.charts = views.map((view, i) => {
      const box = make("section", { class: "agent", "aria-label": view.name }, column);
      const head = make("h2", {}, box, view.name);
      if (views.length > 1) make("i", { class: `view-line line-${i % 4}`, "aria-hidden": "true" }, head);
      if (view.kind !== "masses")
        make("small", { class: "soft" }, head, view.size > 1 ? `${view.size} quantiles of equal mass` : "the mean only");
      this.doubts = [...(this.doubts || []), make("p", { class: "doubt small" }, box)];
      const charts = make("div", { class: "charts" }, box);
      return meta.actions.map((name, action) => new Chart(charts, view, action, name));
    });
    this.buildCurves(process);
    this.buildTable();
    this.buildControls();
  }

  buildCurves(process) {
    const { store } = this, parent = byId("curves"), seek = (fraction) => this.seek(store.first + Math.round(fraction * (store.steps - 1)));
    const each = (name) => store.views.map((_, i) => () => store.views[i].numbers[name]);
    this.curves = [
      process ? new Curve(parent, "mean return", each("values"), 0, seek) :
        new Curve(parent, "score so far", [() => store.numbers.score], 0, seek),
      new Curve(parent, "total mass", each("total"), 1, seek),
      new Curve(parent, "negative mass", each("negative"), 0, seek),
    ];
    if (!process) this.curves.push(new Curve(parent, "clipped mass", each("clipped"), 0, seek));
    this.redrawCurves();
  }

  redrawCurves() { for (const curve of this.curves) curve.draw(); }

  buildTable() {
    const table = make("table", { "aria-label": "the distribution of the action taken, in numbers" }, byId("numbers")), head = make("tr", {}, make("thead", {}, table));
    const process = this.store.meta.unit === "state";
    for (const name of ["", "mass", "negative", ...(process ? [] : ["clipped"]), "mean"]) make("th", { scope: "col" }, head, name);
    const body = make("tbody", {}, table);
    this.cells = this.store.views.map((view) => {
      const row = make("tr", {}, body);
      make("th", { scope: "row" }, row, view.name);
      const cells = {};
      for (const name of ["total", "negative", ...(process ? [] : ["clipped"]), "mean"]) cells[name] = make("td", { "data-name": name }, row);
      return cells;
    });
    this.facts = {};
    const realised = this.live ? [] : ["realised return"]; // not known during the episode
    const names = process ? ["state", "visited"] : ["action", "reward", "score so far", ...realised, "episode"];
    for (const name of names) {
      make("dt", {}, byId("now"), name);
      this.facts[name] = make("dd", { "data-name": name }, byId("now"));
    }
  }

  buildControls() {
    const slider = byId("slider");
    slider.addEventListener("input", () => this.seek(Number(slider.value)));
    byId("play").addEventListener("click", () => this.toggle());
    byId("back").addEventListener("click", () => this.seek(this.step - 1));
    byId("forth").addEventListener("click", () => this.seek(this.step + 1));
    byId("previous").addEventListener("click", () => this.jump(-1));
    byId("next").addEventListener("click", () => this.jump(1));
    for (const name of ["same", "chosen"]) byId(name).addEventListener("change", () => this.show());
    const speed = byId("speed");
    for (const value of this.speeds) make("option", { value }, speed, `${value}/s`);
    speed.value = this.speed;
    speed.addEventListener("change", () => { this.speed = Number(speed.value); });
    for (const select of [speed, byId("highlight")]) freeKeysAfterPointer(select);
    this.buildHighlight();
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.readHash());
    const controls = byId("controls"), height = () => document.body.style.setProperty("--controls", `${controls.offsetHeight}px`);
    new ResizeObserver(height).observe(controls);
    this.resize();
  }

  buildHighlight() {
    const list = byId("highlight"), phenomena = this.store.meta.phenomena || {}, names = Object.keys(phenomena);
    for (const name of ["highlight-label", "previous", "next", "highlight-keys"]) byId(name).hidden = names.length === 0;
    for (const name of names) {
      make("dt", {}, byId("phenomena"), named(name));
      make("dd", {}, byId("phenomena"), phenomena[name].meaning);
    }
    make("option", { value: "" }, list, "choose …");
    for (const name of names) make("option", { value: name }, list, `${named(name)} (${phenomena[name].steps.length})`);
    list.addEventListener("change", () => this.mark(list.value, true));
    list.value = this.store.meta.highlight || "";
    this.mark(list.value, false);
  }

  // Marks the steps of one phenomenon on the timeline; the first of them is the strongest.
  mark(name, go) {
    const found = (this.store.meta.phenomena || {})[name], marks = byId("marks");
    marks.replaceChildren();
    this.highlighted = found ? [...found.steps].sort((a, b) => a - b) : [];
    (found ? found.steps : []).forEach((step, i) => {
      const label = `${named(name)} ${found.scores[i].toPrecision(3)} at ${this.store.meta.unit} ${step}`;
      const mark = make("button", { title: label, "aria-label": label, "data-step": step, tabindex: -1 }, marks);
      mark.classList.toggle("strongest", i === 0);
      mark.style.left = `calc(8px + (100% - 16px) * ${this.store.steps > 1 ? step / (this.store.steps - 1) : 0})`;
      mark.addEventListener("click", () => this.seek(step));
    });
    if (go && found && found.steps.length) this.seek(found.steps[0]);
    else if (go) this.show();
  }

  jump(direction) {
    const next = direction > 0 ? this.highlighted.find((step) => step > this.step) : this.highlighted.findLast((step) => step < this.step);
    if (next !== undefined) this.seek(next);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const tag = event.target.tagName, box = event.target.type === "checkbox";
    if (tag === "SELECT" && event.key !== "[" && event.key !== "]") return; // a list uses these keys itself
    if (event.key === " " && (tag === "BUTTON" || tag === "SUMMARY" || box)) return;
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(), ArrowLeft: () => this.seek(this.step - far), ArrowRight: () => this.seek(this.step + far),
      Home: () => this.seek(this.store.first), End: () => this.seek(this.store.last), "[": () => this.jump(-1), "]": () => this.jump(1),
      ArrowUp: () => this.faster(1), ArrowDown: () => this.faster(-1),
      z: () => byId("same").click(), c: () => byId("chosen").click(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  faster(change) {
    const index = Math.min(this.speeds.length - 1, Math.max(0, this.speeds.indexOf(this.speed) + change));
    this.speed = this.speeds[index];
    byId("speed").value = this.speed;
  }

  readHash() {
    const step = stepOfHash();
    if (step !== null && step !== this.step) this.seek(step);
  }

  rescale() {
    this.limits = commonLimits(this.store.views);
    const came = (this.store.numbers.realised || []).filter((one) => !Number.isNaN(one)), { limits } = this;
    if (came.length && this.store.views.some((view) => view.kind !== "masses")) { // no support tells how far returns reach
      const range = came.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
      limits.x = union([limits.x, range]);
      limits.ends = union([limits.ends, range]);
    }
    for (const charts of this.charts) for (const chart of charts) chart.setLimits(this.limits);
  }

  resize() {
    byId("slider").min = this.store.first;
    byId("slider").max = this.store.last;
  }

  seek(step) {
    this.playing = this.playing && step === this.store.last + 1;
    this.go(step);
    this.showPlaying();
  }

  go(step) {
    this.step = Math.min(this.store.last, Math.max(this.store.first, step));
    return this.show();
  }

  // Draws one step at a time: while a step is being drawn, only the last one asked for waits.
  show() {
    if (this.waiting) return this.drawn;
    this.waiting = true;
    this.drawn = this.drawn.then(async () => {
      this.waiting = false;
      await this.draw(this.step);
    }).catch((error) => problem(`The recording cannot be read at ${this.store.meta.unit} ${this.step}: ${error.message}`));
    return this.drawn;
  }

  async draw(step) {
    const { store } = this, { picture, distributions } = await store.load(step);
    drawPicture(byId("picture"), store, picture);
    document.body.classList.toggle("only-chosen", byId("chosen").checked);
    const action = store.number("action", step), realised = store.meta.unit === "state" ? NaN : store.number("realised", step), actions = store.meta.actions.length;
    const same = byId("same").checked, scales = withOneBaseline(store.views.map((view, i) =>
      same ? this.limits.y : this.eased(i, massLimits(view.kind === "masses" ? distributions[i] : []))));
    store.views.forEach((view, i) => {
      const values = store.meta.actions.map((_, a) => store.value(i, a, step)), best = values.indexOf(Math.max(...values));
      for (let a = 0; a < actions; a++) {
        const distribution = distributions[i].subarray(a * view.size, (a + 1) * view.size);
        const taken = a === action, framed = actions > 1;
        const facts = { mean: values[a], realised, taken, framed, favourite: a === best && framed, mark: this.markOf(i, step) };
        this.charts[i][a].draw(distribution, scales[i], facts);
      }
      this.drawDoubt(i, step, action, values, realised);
      const numbers = { mean: values[action] };
      for (const name of ["total", "negative", "clipped"]) numbers[name] = store.viewNumber(i, name, step);
      for (const [name, cell] of Object.entries(this.cells[i])) cell.textContent = format(numbers[name]);
      this.cells[i].negative.classList.toggle("some", numbers.negative > 0.0005);
    });
    this.drawFacts(step);
    store.prepare(step + 20);
  }

  // The part of an agent's chart in which the highlighted phenomenon shows at this step, if there is one.
  markOf(i, step) {
    const name = byId("highlight").value, found = (this.store.meta.phenomena || {})[name], at = found ? found.steps.indexOf(step) : -1;
    const mark = at < 0 ? null : found.marks[at].find(([view]) => view === i);
    return mark ? { name: named(name), low: mark[1], high: mark[2] } : null;
  }

  drawDoubt(i, step, action, values, realised) {
    const { meta, views, returns } = this.store, rest = values.map((_, a) => a).filter((a) => a !== action);
    const actions = [action, ...rest].map((a) => ({ name: meta.actions[a], mean: values[a], ...this.charts[i][a].sums() }));
    const unseen = meta.unit === "state" && this.store.number("visits", step) === 0;
    this.doubts[i].textContent = unseen ? "The policy spends no time in this state, so nothing is predicted for it." :
      doubt(views[i], returns, realised, actions);
  }

  // During play a scale moves gradually, so that charts do not jump; when paused it fits the step at once.
  eased(i, [bottom, top]) {
    this.scale = this.scale || [];
    const before = this.playing && !CALM.matches && this.scale[i] ? this.scale[i] : [bottom, top];
    this.scale[i] = [Math.min(bottom, before[0] + 0.2 * (bottom - before[0])), Math.max(top, before[1] + 0.2 * (top - before[1]))];
    return this.scale[i];
  }

  drawFacts(step) {
    const { store } = this, { meta } = store;
    const realised = () => store.number("realised", step), texts = {
      action: () => meta.actions[store.number("action", step)],
      reward: () => format(store.number("reward", step), 2),
      "score so far": () => format(store.number("score", step), 2),
      "realised return": () => this.realisedText(realised(), step),
      episode: () => String(store.number("episode", step) + 1),
      state: () => meta.labels[step],
      visited: () => format(store.number("visits", step), 4),
    };
    for (const [name, cell] of Object.entries(this.facts)) cell.textContent = texts[name]();
    const fraction = store.steps > 1 ? (step - store.first) / (store.steps - 1) : 0;
    for (const curve of this.curves) curve.at(fraction);
    byId("slider").value = step;
    const label = meta.labels[step]?.split(",")[0];
    const place = label === undefined ? `${step.toLocaleString("en")} of ${store.last.toLocaleString("en")}` :
      label === String(step) ? `${label} of ${store.last}` : `${label} (t=${step} of ${store.last})`;
    byId("slider").setAttribute("aria-valuetext", `${meta.unit} ${place}`);
    byId("place").textContent = `${meta.unit} ${place}`;
    const highlight = byId("highlight").value;
    byId("moment").textContent = moment(highlight, (meta.phenomena || {})[highlight], meta.unit, step);
    byId("picture").setAttribute("aria-label", `picture of ${meta.unit} ${step}`);
    document.documentElement.dataset.shown = step;
    clearTimeout(this.later); // browsers limit how often the address may change
    this.later = setTimeout(() => history.replaceState(null, "", `#t=${step}`), 150);
  }

  realisedText(realised, step) {
    const { store } = this, cut = store.numbers.cut !== undefined && store.number("cut", step) === 1;
    if (Number.isNaN(realised)) return "not known: the episode was cut off";
    return cut ? `${format(realised)}, to within 1 %: the episode was cut off` : format(realised);
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing && this.step === this.store.last && !this.live) this.step = this.store.first;
    this.showPlaying();
    if (this.playing) this.run();
  }

  showPlaying() {
    byId("play").textContent = this.playing ? "❚❚" : "▶";
    byId("play").setAttribute("aria-label", this.playing ? "pause" : "play");
  }

  // During live play, a page that fell behind plays faster until it catches up, unless the reader chose a lower speed.
  rate() {
    const behind = this.live && this.speed >= this.store.meta.fps && this.store.last - this.step > this.store.meta.fps;
    return behind ? 1.5 * this.speed : this.speed;
  }

  run() {
    if (this.running) return;
    this.running = true;
    let before = performance.now(), owed = 0;
    const frame = async (now) => {
      if (!this.playing) { this.running = false; return; }
      owed = Math.min(owed + ((now - before) / 1000) * this.rate(), this.speed / 2 + 1);
      before = now;
      const whole = Math.floor(owed);
      if (whole > 0 && this.step < this.store.last) { owed -= whole; await this.go(this.step + whole); }
      if (this.step >= this.store.last && !this.live) { this.playing = false; this.showPlaying(); }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}
