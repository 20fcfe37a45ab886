// From the numbers in the page to a player; and, live, the steps that are new.

function problem(words) {
  byId("problem").textContent = words;
  byId("problem").hidden = false;
}

// While an agent plays on, ask for what is new.
async function follow(player) {
  for (;;) {
    try {
      const answer = await fetch(`steps?after=${player.store.last}`);
      const part = await answer.json();
      byId("problem").hidden = true;
      const other = part.steps ? part.start !== player.store.last + 1 : part.played <= player.store.last;
      if (other) location.reload(); // this page slept too long, or another game is played here by now
      else if (part.steps) {
        await player.store.add(part);
        player.resize();
        player.rescale();
        player.redrawCurves();
        if (!player.playing) player.drawFacts(player.step);
      }
    } catch (error) {
      problem("The agent does not play any more: cramerl watch --serve has ended. What was played so far can be looked at.");
    }
    await new Promise((done) => setTimeout(done, 300));
  }
}

async function begin() {
  if (typeof DecompressionStream === "undefined") {
    problem("This page needs a browser from 2023 or newer (it unpacks the recording with DecompressionStream).");
    return;
  }
  const data = JSON.parse(byId("data").textContent);
  byId("data").remove();
  const store = new Store(data);
  await store.add(data);
  const player = new Player(store, Boolean(data.live));
  window.player = player;
  await player.go(stepOfHash() ?? data.open ?? store.first);
  document.documentElement.dataset.ready = "yes";
  if (data.live) {
    if (!CALM.matches) player.toggle(); // who wants little motion starts it by hand
    follow(player);
  }
}

begin().catch((error) => problem(`The recording cannot be read: ${error.message}`));
