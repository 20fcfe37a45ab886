// What the reader wants: less motion, a place named by the address, keys that play.

const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const byId = (name) => document.getElementById(name);

// The step that the page's address names, if it names one.
function stepOfHash() {
  const match = /^#t=(\d+)$/.exec(location.hash);
  return match ? Number(match[1]) : null;
}

// A choice made by pointer gives the keys back to the player; one made by keyboard may go on.
function freeKeysAfterPointer(select) {
  let pointed = false;
  select.addEventListener("pointerdown", () => { pointed = true; });
  select.addEventListener("keydown", () => { pointed = false; });
  select.addEventListener("change", () => { if (pointed) select.blur(); });
}
