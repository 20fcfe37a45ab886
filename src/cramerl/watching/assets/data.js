"use strict";
// The recording, unpacked when it is needed: chunks are compressed, and hold each step as its change from the one before.

const KEPT_CHUNKS = 24;

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function floats(text) {
  const planes = await inflate(text), count = planes.length / 4, bytes = new Uint8Array(planes.length);
  for (let rank = 0; rank < 4; rank++) for (let i = 0; i < count; i++) bytes[4 * i + rank] = planes[rank * count + i];
  return new Float32Array(bytes.buffer);
}

function unpackPictures(planes, size) {
  for (let i = size; i < planes.length; i++) planes[i] ^= planes[i - size];
  return planes;
}

function unpackDistributions(planes, size) {
  const count = planes.length / 2, whole = new Int16Array(count);
  for (let i = 0; i < count; i++) whole[i] = planes[i] | (planes[count + i] << 8);
  for (let i = size; i < count; i++) whole[i] += whole[i - size]; // overflows and wraps around, as it did when it was packed
  return whole;
}

class Track {
  constructor(size, unpack) {
    this.size = size;
    this.unpack = unpack;
    this.chunks = [];
    this.ready = new Map(); // index of a chunk -> promise of its numbers; the most recently used is last
  }

  // The integers of these chunks count in `unit`.
  add(chunks, unit = 1) {
    for (const [start, count, text] of chunks) this.chunks.push({ start, count, text, unit });
  }

  indexOf(step) {
    let low = 0, high = this.chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.chunks[middle].start <= step) low = middle; else high = middle - 1;
    }
    return low;
  }

  load(index) {
    if (index < 0 || index >= this.chunks.length) return null;
    let promise = this.ready.get(index);
    if (promise) this.ready.delete(index);
    else promise = inflate(this.chunks[index].text).then((planes) => this.unpack(planes, this.size));
    this.ready.set(index, promise);
    if (this.ready.size > KEPT_CHUNKS) this.ready.delete(this.ready.keys().next().value);
    return promise;
  }

  async at(step) {
    const index = this.indexOf(step), numbers = await this.load(index);
    const from = (step - this.chunks[index].start) * this.size;
    return { whole: numbers.subarray(from, from + this.size), unit: this.chunks[index].unit };
  }

  prepare(step) { this.load(this.indexOf(step)); }
}

function joined(before, after) {
  if (!before) return after;
  const all = new Float32Array(before.length + after.length);
  all.set(before);
  all.set(after, before.length);
  return all;
}

function widened(a, b) {
  const both = (name) => [Math.min(a[name][0], b[name][0]), Math.max(a[name][1], b[name][1])];
  return { x: both("x"), y: both("y") };
}

class Store {
  constructor(first) {
    this.meta = first;
    this.first = first.start;
    this.steps = 0;
    this.numbers = {};
    this.returns = null; // the least and the greatest that rewards like those so far add up to
    this.pictures = new Track(first.picture.height * first.picture.width, unpackPictures);
    this.views = first.views.map((view) => ({
      ...view, numbers: {}, track: new Track(first.actions.length * view.size, unpackDistributions),
    }));
  }

  get last() { return this.first + this.steps - 1; }

  async add(part) {
    const numbers = await Promise.all(Object.entries(part.numbers).map(async ([name, text]) => [name, await floats(text)]));
    const viewed = await Promise.all(part.views.map((view) => Promise.all(
      Object.entries(view.numbers).map(async ([name, text]) => [name, await floats(text)]))));
    for (const [name, values] of numbers) this.numbers[name] = joined(this.numbers[name], values);
    if (part.returns) this.returns = union([this.returns || part.returns, part.returns]);
    this.pictures.add(part.picture.chunks);
    this.palette = part.picture.palette.map((colour) => parseInt(colour.slice(1), 16));
    part.views.forEach((view, i) => {
      for (const [name, values] of viewed[i]) this.views[i].numbers[name] = joined(this.views[i].numbers[name], values);
      this.views[i].track.add(view.distributions, view.precision);
      this.views[i].limits = widened(this.views[i].limits, view.limits);
    });
    this.steps += part.steps;
  }

  number(name, step) { return this.numbers[name][step - this.first]; }

  viewNumber(i, name, step) { return this.views[i].numbers[name][step - this.first]; }

  value(i, action, step) {
    const actions = this.meta.actions.length;
    return this.views[i].numbers.values[(step - this.first) * actions + action];
  }

  // The picture and the distributions of a step, unpacked.
  async load(step) {
    const [picture, ...distributions] = await Promise.all(
      [this.pictures.at(step), ...this.views.map((view) => view.track.at(step))]);
    return { picture: picture.whole, distributions: distributions.map(({ whole, unit }) => Float32Array.from(whole, (one) => one * unit)) };
  }

  prepare(step) {
    if (step > this.last) return;
    this.pictures.prepare(step);
    for (const view of this.views) view.track.prepare(step);
  }
}
