// Sentences: what a prediction cannot mean, and what a highlighted step shows.

const NEGATIVE = 0.02, UNEVEN = 0.05; // of the mass: less is not worth a sentence

const plain = (value) => (Math.abs(value) >= 1000 ? format(value) : String(+value.toPrecision(3)).replace("-", "−"));

// One sentence about the worst that is wrong with an agent's distributions of a step, or nothing.
// `actions` holds their names, means and sums, that of the action taken first.
function doubt(view, returns, realised, actions) {
  for (const check of [beyondReturns, beyondAtoms, beyondReach, signed, uneven]) {
    for (const [i, action] of actions.entries()) {
      const found = check(view, { ...action, of: i === 0 ? "" : ` of “${action.name}”` }, returns, i === 0 ? realised : NaN);
      if (found) return found;
    }
  }
  return "";
}

function beyondReturns(view, { mean, of }, returns) {
  if (!returns) return "";
  const slack = 0.005 * (returns[1] - returns[0]);
  if (mean >= returns[0] - slack && mean <= returns[1] + slack) return "";
  return `The mean${of}, ${plain(mean)}, cannot be true: rewards like those of this recording add up to returns from ` +
    `${plain(returns[0])} to ${plain(returns[1])}.`;
}

// What lies outside the support, in words.
function outside(view, value) {
  if (view.kind !== "masses") return "";
  const low = view.atoms[0], high = view.atoms.at(-1), slack = 0.005 * (high - low);
  if (value < low - slack) return `below the support, which begins at ${plain(low)}`;
  return value > high + slack ? `above the support, which ends at ${plain(high)}` : "";
}

function beyondAtoms(view, { mean, of }) {
  const where = outside(view, mean);
  return where && `The mean${of}, ${plain(mean)}, lies ${where}: probabilities have no such mean, signed masses may.`;
}

function beyondReach(view, action, returns, realised) {
  const where = outside(view, realised);
  return where && `The realised return, ${plain(realised)}, lies ${where}: this agent cannot predict it.`;
}

function signed(view, { negative, of }) {
  return negative > NEGATIVE ? `The negative mass${of} is ${format(negative, 2)}: these masses are not probabilities.` : "";
}

function uneven(view, { total, of }) {
  return Math.abs(total - 1) > UNEVEN ? `The total mass${of} is ${format(total, 2)} instead of 1.` : "";
}

const named = (phenomenon) => phenomenon.replace("-", " ");
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// What the highlighted phenomenon is, and how it shows at this step.
function moment(name, found, unit, step) {
  if (!found) return "";
  const at = found.steps.indexOf(step), meaning = `${capital(named(name))}: ${found.meaning}.`;
  if (!found.steps.length) return `${meaning} No ${unit} shows it.`;
  const count = found.steps.length;
  if (at < 0) return `${meaning} The timeline marks the ${count === 1 ? unit : `${count} ${unit}s`} with most of it.`;
  const rank = count === 1 ? "" : at === 0 ? `, the strongest of ${count}` : `, number ${at + 1} of ${count}`;
  return `${meaning} Shaded here; its measure is ${found.scores[at].toPrecision(3)}${rank}.`;
}
