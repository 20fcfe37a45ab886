// Starts the player with the data of the page; during live play, fetches new steps.

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = false;
}

// Asks for new steps as long as the page is open.
async function follow(player) {
  for (;;) {
    try {
      const answer = await fetch(`steps?after=${player.store.last}`);
      const part = await answer.json();
      byId("problem").hidden = true;
      const gap = part.steps ? part.start !== player.store.last + 1 : part.played <= player.store.last;
      if (gap) location.reload(); // the page slept and missed steps, or another agent plays at this address
      else if (part.steps) {
        await player.store.add(part);
        player.resize();
        player.rescale();
        player.redrawCurves();
        if (!player.playing) player.drawFacts(player.step);
      }
    } catch (error) {
      problem("The agent has stopped: cramerl watch --serve has ended. The steps it has played can still be viewed.");
    }
    await new Promise((done) => setTimeout(done, 300));
  }
}

async function begin() {
  if (typeof DecompressionStream === "undefined") {
    problem("This page needs a browser from 2023 or later, which has DecompressionStream.");
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
    if (!CALM.matches) player.toggle(); // readers who prefer little motion start it themselves
    follow(player);
  }
}

begin().catch((error) => problem(`The recording cannot be read: ${error.message}`));
