"""The cells of docs/tour.ipynb, which `python docs/make_tour.py` runs and writes; also a program of its own."""
# pyright: reportUnusedExpression=false

# %% [markdown]
# # A tour of cramerl
#
# In a minute you will have
#
# 1. turned **a log into a distribution**, with intervals and a verdict that says whether to use it;
# 2. put **the Cramér loss into an agent of your own**, in NumPy and in JAX;
# 3. evaluated **a small process**, with a certificate of what is guaranteed;
# 4. asked **a trained agent** what it expects.
#
# Everything runs on a laptop. Install it in the clone with `make setup EXTRAS=all`, and open this notebook with Jupyter
# or VS Code. Evaluations, distributions and runs draw themselves when they end a cell.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import cramerl
from cramerl import Support, backup, cramer_loss, mean, negative_mass
from cramerl.linear import Log, evaluate, evaluate_policy, examples, fourier, suggest_support
from cramerl.plots import draw_distribution

# %% [markdown]
# ## 1. From a log to a distribution
#
# The package comes with a log of machines that wear out. Each row is a week of one machine: its state, whether it ran
# or was serviced, and what it earned.

# %%
log = Log.read("example:machines")
log

# %% [markdown]
# Would it pay to service sooner? The policy *careful* never acted; the log only has its probabilities, in the columns
# `careful_run` and `careful_service`. The policy *now* made the log.

# %%
found = evaluate_policy(log, {"now": None, "careful": "careful_*"}, features="splines:8")
found["careful"]

# %% [markdown]
# That is the whole distribution of what a machine earns. Both policies, as CDFs with their intervals:

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for (name, each), colour in zip(found.items(), ("tab:gray", "tab:blue"), strict=True):
    atoms = each.distribution.support.atoms
    ax.fill_between(atoms[:-1], *each.distribution.band(), step="post", color=colour, alpha=0.25)
    ax.step(atoms, each.distribution.probs.cumsum(), where="post", color=colour, label=name)
ax.set(xlabel="what a machine earns, discounted", ylabel="probability to earn no more", ylim=(0, 1))
ax.legend(frameon=False)
plt.show()

# %%
for name, each in found.items():
    print(f"{name}: mean {each.mean}, worst 10% {each.cvar(0.1)}, verdict: {each.trust.verdict}")
print("careful earns more by", found.difference("careful", "now"))

# %% [markdown]
# The interval of the difference does not contain zero, and the verdict is *use*: it pays to service sooner.

# %% [markdown]
# ## 2. The loss in your own agent
#
# A network predicts *masses* on atoms, of any sign and without a softmax. `backup` makes the target, the projected
# distribution of $r + \gamma Z$, and `cramer_loss` compares the two. In NumPy:

# %%
support = Support.uniform(-1, 4, 11)
prediction = np.full(support.num_atoms, 1 / support.num_atoms)
target = backup(support, 1.0, 0.5, prediction)
print("the target's mean is 1 + 0.5 * 1.5 =", mean(support, target).round(3))
print("loss", cramer_loss(support, target, prediction, mass_penalty=1.0).round(3))

# %% [markdown]
# In JAX it has a gradient. A coin pays 3 with probability 0.4 and nothing otherwise; each step sees 32 tosses. Some
# masses are negative on the way (orange, below the line), and nothing breaks. The coin's 0.6 and 0.4 come out:


# %%
@jax.jit
def step(masses, rate, key):
    tosses = 3.0 * jax.random.bernoulli(key, 0.4, (32,))
    targets = backup(support, tosses, jnp.zeros(32), jnp.broadcast_to(masses, (32, support.num_atoms)))
    return masses - rate * jax.grad(lambda m: cramer_loss(support, targets, m, mass_penalty=1.0).mean())(masses)


masses, shown = jnp.zeros(support.num_atoms), {}
for i in range(4001):
    if i in (20, 200, 4000):
        shown[i] = masses
    masses = step(masses, 0.02 / (1 + i / 300), jax.random.key(i))

figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), layout="constrained")
for ax, (steps, each) in zip(axes, shown.items(), strict=True):
    draw_distribution(ax, support.atoms, each, float(mean(support, each)))
    ax.set_title(f"{steps} steps, negative mass {float(negative_mass(support, each)):.2f}", fontsize=10)
    ax.set(xlabel="return")
plt.show()

# %% [markdown]
# ## 3. A small process, with a certificate
#
# If you know the process, one linear system gives the distribution of the return in every state. Here is a queue with
# 21 states, and six cosines as features:

# %%
process = examples.queue(discount=0.95)
evaluation = evaluate(process, fourier(np.arange(process.num_states), 5), suggest_support(process))
evaluation

# %% [markdown]
# The certificate says in plain sentences how far to trust it:

# %%
print("\n".join(evaluation.certificate.sentences))

# %% [markdown]
# ## 4. What a trained agent expects
#
# Trained agents come with the package. This one, L51, plays Breakout of MinAtar.

# %%
agent = cramerl.load_agent("breakout/l51")
agent

# %%
import gymnax

game, settings = gymnax.make("Breakout-MinAtar")
play = jax.jit(game.step)
observation, state = jax.jit(game.reset)(jax.random.key(0), settings)
frames = []
for i in range(60):
    frames.append(np.asarray(observation))
    (action,) = agent.act(frames[-1][None])
    observation, state, *_ = play(jax.random.key(i), state, action, settings)
agent.distributions(np.stack(frames[::20]))

# %% [markdown]
# Each row is a moment of the game, each column an action (stay, left, right). The last frame, larger:

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), width_ratios=(1, 2), layout="constrained")
channels = frames[-1].astype(float)  # paddle, ball, trail, bricks
left.imshow(channels @ [1.0, 0.8, 0.4, 0.6], cmap="Greys")
left.set(xticks=[], yticks=[], title="MinAtar Breakout")
expected = agent.distributions(frames[-1][None])
best = int(agent.act(frames[-1][None])[0])
draw_distribution(right, expected.atoms[0, best], expected.masses[0, best], agent.values(frames[-1][None])[0, best])
right.set(title=f"what it expects of {('staying', 'going left', 'going right')[best]}", xlabel="return", ylabel="mass")
plt.show()

# %% [markdown]
# `cramerl watch breakout` opens a page on which several agents play this game, with what they expect at every step.
