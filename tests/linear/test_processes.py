import gymnasium
import numpy as np
import pytest
from oracles_linear import dense_outcomes, random_process
from scipy import sparse

from cramerl import Support, backup_matrix, mean
from cramerl.linear import MarkovRewardProcess, examples
from cramerl.linear.stationary import stationary_distribution


def test_three_ways_to_say_the_same_process():
    P, r = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([1.0, -1.0])
    plain = MarkovRewardProcess(P, r, 0.9)
    as_sparse = MarkovRewardProcess(sparse.coo_matrix(P), r.tolist(), 0.9)
    as_lists = MarkovRewardProcess(P, [[(1.0, 1.0)], [(-1.0, 0.25), (-1.0, 0.75)]], 0.9)
    as_outcomes = MarkovRewardProcess.from_outcomes([(1.0, P * [[1], [0]]), (-1.0, P * [[0], [1]])], 0.9)
    for process in (as_sparse, as_lists, as_outcomes):
        np.testing.assert_allclose(process.transition.toarray(), P)
        np.testing.assert_allclose(process.expected_rewards, r)
        np.testing.assert_allclose(process.true_values(), plain.true_values(), rtol=1e-13)


def test_random_rewards_enter_the_distribution():
    process = MarkovRewardProcess([[1.0]], [[(0.0, 0.5), (1.0, 0.5)]], 0.5)
    support = Support.uniform(0, 2, 401)
    distribution = process.true_returns(support)
    # The sum of fair bits over powers of two is uniform on [0, 2].
    assert mean(support, distribution)[0] == pytest.approx(1.0, abs=1e-10)
    np.testing.assert_allclose(np.cumsum(distribution[0]), (support.atoms + 0.0025) / 2, atol=0.01)


def test_rewards_of_the_next_state():
    stay, move = np.array([[0.5, 0.0], [0.0, 0.5]]), np.array([[0.0, 0.5], [0.5, 0.0]])
    process = MarkovRewardProcess.from_outcomes([(0.0, stay), (3.0, move)], 0.5)
    np.testing.assert_allclose(process.expected_rewards, [1.5, 1.5])
    np.testing.assert_allclose(process.true_values(), [3.0, 3.0])


@pytest.mark.parametrize("form", ["SAS", "ASS", "sparse"])
@pytest.mark.parametrize("reward_axes", [1, 2, 3])
def test_from_mdp_against_sums(form, reward_axes):
    rng = np.random.default_rng(1)
    S, A, gamma = 5, 3, 0.8
    T, R, pi = rng.dirichlet(np.ones(S), (S, A)), rng.normal(size=(S, A, S)[:reward_axes]), rng.dirichlet(np.ones(A), S)
    given = {"SAS": T, "ASS": T.transpose(1, 0, 2), "sparse": [sparse.csr_matrix(T[:, a]) for a in range(A)]}[form]
    process = MarkovRewardProcess.from_mdp(given, R, pi, gamma)
    full = np.broadcast_to(R.reshape(R.shape + (1,) * (3 - R.ndim)), (S, A, S))
    P = np.einsum("xa,xay->xy", pi, T)
    r = np.einsum("xa,xay,xay->x", pi, T, full)
    np.testing.assert_allclose(process.transition.toarray(), P, atol=1e-14)
    np.testing.assert_allclose(process.true_values(), np.linalg.solve(np.eye(S) - gamma * P, r), rtol=1e-12)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_gymnasium_against_plain_policy_evaluation(env_id):
    """Textbook sweeps over env.P, where the return ends with the episode."""
    env = gymnasium.make(env_id)
    table = env.unwrapped.P  # pyright: ignore[reportAttributeAccessIssue]
    env.close()
    S, A, gamma = len(table), len(table[0]), 0.9
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(A), S)
    process = MarkovRewardProcess.from_gymnasium(env_id, policy, gamma)
    absorbing = MarkovRewardProcess.from_gymnasium(env_id, policy, gamma, absorbing=True)
    final = {y for x in table for a in table[x] for _, y, _, end in table[x][a] if end}
    V = np.zeros(S)
    for _ in range(400):
        V = np.array(
            [
                0.0
                if x in final
                else sum(
                    policy[x, a] * p * (r + gamma * V[y] * (not end)) for a in table[x] for p, y, r, end in table[x][a]
                )
                for x in range(S)
            ]
        )
    np.testing.assert_allclose(process.true_values(), V, atol=1e-8)
    np.testing.assert_allclose(absorbing.true_values(), V, atol=1e-8)
    xi = process.stationary_distribution()
    np.testing.assert_allclose(process.transition.T @ xi, xi, atol=1e-14)


def test_gymnasium_policies():
    greedy = MarkovRewardProcess.from_gymnasium("CliffWalking-v1", np.zeros(48, dtype=int), 0.9)
    assert greedy.true_values()[36] == pytest.approx(-(1 - 0.9**3) / 0.1 - 0.9**3 / 0.1)
    uniform = MarkovRewardProcess.from_gymnasium("FrozenLake-v1", "uniform", 0.99, is_slippery=False)
    assert uniform.num_states == 16
    with pytest.raises(ValueError, match="env_id must name an environment with a table"):
        MarkovRewardProcess.from_gymnasium("CartPole-v1", "uniform", 0.9)


@pytest.mark.parametrize("make", [examples.random_walk, examples.ring, examples.gridworld, examples.queue])
def test_examples_are_whole(make):
    process = make()
    xi = process.stationary_distribution()
    assert xi.sum() == pytest.approx(1)
    np.testing.assert_allclose(process.transition.T @ xi, xi, atol=1e-14)
    low, high = process.return_range()
    values = process.true_values()
    assert low - 1e-9 <= values.min() <= values.max() <= high + 1e-9


def test_true_returns_is_the_fixed_point_of_the_dense_operator():
    process, support = random_process(3), Support([-3.0, -1.0, -0.5, 0.0, 1.0, 2.5])
    distribution = process.true_returns(support)
    backed_up = sum(P_r @ distribution @ backup_matrix(support, r, g).T for r, g, P_r in dense_outcomes(process))
    np.testing.assert_allclose(distribution, backed_up, atol=1e-12)
    np.testing.assert_allclose(distribution.sum(axis=1), 1, atol=1e-12)
    assert distribution.min() > -1e-12


def test_true_returns_of_an_episode_match_monte_carlo():
    process = MarkovRewardProcess.from_gymnasium("FrozenLake-v1", "uniform", 0.9)
    support = Support.uniform(0, 1, 2001)
    distribution = process.true_returns(support)
    steps = process.sample(60_000, seed=0)
    returns, total = np.empty(60_000), 0.0
    for t in range(59_999, -1, -1):
        total = steps.rewards[t] + (0.0 if steps.terminated[t] else 0.9 * total)
        returns[t] = total
    for state in (8, 14):
        seen = returns[steps.states == state]
        error = seen.std() / np.sqrt(len(seen))
        assert (
            abs(seen.mean() - mean(support, distribution)[state]) < 5 * 3 * error
        )  # correlated samples: three times wider
        assert abs((seen > 0).mean() - distribution[state, 1:].sum()) < 0.05


def test_sample_is_the_chain_and_repeats():
    process = random_process(0)
    steps = process.sample(40_000, seed=3)
    np.testing.assert_array_equal(steps.next_states[:-1], steps.states[1:])
    counts = np.zeros((6, 6))
    np.add.at(counts, (steps.states, steps.next_states), 1)
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), process.transition.toarray(), atol=0.03)
    np.testing.assert_allclose(steps.rewards, process.expected_rewards[steps.states], rtol=1e-12)
    again = process.sample(40_000, seed=3)
    np.testing.assert_array_equal(steps.states, again.states)
    assert not np.array_equal(steps.states, process.sample(40_000, seed=4).states)


@pytest.mark.parametrize("size", [3, 40, 700])
def test_stationary_distribution_against_a_dense_solve(size):
    """(P' - I) xi = 0, with one of the equations, which depend on each other, replaced by sum(xi) = 1."""
    P = np.random.default_rng(size).dirichlet(np.full(size, 0.3), size)
    equations = P.T - np.eye(size)
    equations[-1] = 1.0
    expected = np.linalg.solve(equations, np.eye(size)[-1])
    np.testing.assert_allclose(stationary_distribution(sparse.csr_array(P)), expected, atol=1e-12)


def test_stationary_distribution_of_slow_chains_keeps_every_digit():
    """A birth-death chain has a closed form; it mixes far too slowly for power iteration."""
    n = 20_000
    up = np.random.default_rng(0).uniform(0.4, 0.6, n)
    states = np.arange(n)
    rows = np.concatenate([states, states])
    columns = np.concatenate([np.minimum(states + 1, n - 1), np.maximum(states - 1, 0)])
    chain = sparse.csr_array((np.concatenate([up, 1 - up]), (rows, columns)), shape=(n, n))
    log = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(1 - up[1:]))])
    expected = np.exp(log - log.max())
    expected /= expected.sum()
    distribution = stationary_distribution(chain)
    seen = expected > 1e-250
    np.testing.assert_allclose(distribution[seen], expected[seen], rtol=1e-9)


def test_stationary_distribution_of_a_grid_and_of_periodic_chains():
    grid = examples.gridworld(40, 40).transition
    np.testing.assert_allclose(grid.T @ stationary_distribution(grid), stationary_distribution(grid), atol=1e-15)
    np.testing.assert_allclose(examples.ring(1000).stationary_distribution(), 1e-3, rtol=1e-12)
    two = MarkovRewardProcess([[0, 1], [1, 0]], [0, 0], 0.5)
    np.testing.assert_allclose(two.stationary_distribution(), 0.5)


def test_true_returns_keep_their_mass_at_a_discount_near_one():
    """Mass is neither lost nor made by an update, so what rounding adds to it would stay for ever."""
    process = MarkovRewardProcess([[0, 1], [1, 0]], [0.008, 0.003], 0.999)
    support = Support([-1000.0, 0.0, 1000.0])
    distribution = process.true_returns(support)
    np.testing.assert_allclose(distribution.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(mean(support, distribution), process.true_values(), rtol=1e-8)


def test_stored_zeros_are_not_ways_to_go():
    stored = (np.array([1.0, 0.0, 0.0, 1.0]), (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])))
    with pytest.raises(ValueError, match="got 2 sets"):
        MarkovRewardProcess(sparse.csr_array(stored, shape=(2, 2)), [1.0, 0.0], 0.5).stationary_distribution()


def test_a_process_does_not_change_with_what_it_was_made_of():
    P, rewards = np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([1.0, 0.0])
    chain = sparse.csr_array(P)
    processes = [MarkovRewardProcess(P, rewards, 0.5), MarkovRewardProcess(chain, rewards, 0.5)]
    before = [p.true_values() for p in processes]
    P[0], rewards[0], chain.data[:] = [1.0, 0.0], 99.0, 0.0
    for process, values in zip(processes, before, strict=True):
        np.testing.assert_array_equal(process.true_values(), values)
        with pytest.raises(ValueError, match="read-only"):
            process.transition.data[0] = 0.0


def test_transient_states_get_nothing():
    process = MarkovRewardProcess([[0.5, 0.5, 0], [0, 0, 1], [0, 1, 0]], [0, 0, 0], 0.5)
    np.testing.assert_allclose(process.stationary_distribution(), [0, 0.5, 0.5])


def test_two_closed_classes_are_refused():
    with pytest.raises(ValueError, match=r"one stationary distribution, got 2 sets .*state 0 and state 1"):
        MarkovRewardProcess(np.eye(2), [0, 0], 0.5).stationary_distribution()


P2 = [[0.5, 0.5], [0.5, 0.5]]
BAD = {
    "rows": (
        lambda: MarkovRewardProcess([[0.5, 0.4], [0.5, 0.5]], [0, 0], 0.5),
        "rows of transition must sum to 1, state 0 sums to 0.9",
    ),
    "square": (
        lambda: MarkovRewardProcess(np.ones((2, 3)), [0, 0], 0.5),
        r"transition must be square, got shape \(2, 3\)",
    ),
    "negative": (lambda: MarkovRewardProcess([[1.5, -0.5], [0.5, 0.5]], [0, 0], 0.5), "finite probabilities >= 0"),
    "nan": (lambda: MarkovRewardProcess([[np.nan, 0.5], [0.5, 0.5]], [0, 0], 0.5), "finite probabilities >= 0"),
    "text": (lambda: MarkovRewardProcess("ab", [0, 0], 0.5), "transition must hold real numbers"),
    "discount": (lambda: MarkovRewardProcess(P2, [0, 0], 1.0), r"discount must lie in \[0, 1\), got 1.0"),
    "discount nan": (lambda: MarkovRewardProcess(P2, [0, 0], np.nan), r"discount must lie in \[0, 1\)"),
    "rewards length": (lambda: MarkovRewardProcess(P2, [0, 0, 0], 0.5), "one entry for each of the 2 states, got 3"),
    "rewards inf": (lambda: MarkovRewardProcess(P2, [0, np.inf], 0.5), "rewards must be finite, got inf"),
    "pairs": (
        lambda: MarkovRewardProcess(P2, [[(1.0, 1.0)], [(1.0,)]], 0.5),
        r"rewards of state 1 must be \(value, probability\)",
    ),
    "pair sum": (lambda: MarkovRewardProcess(P2, [[(1.0, 0.5)], [(1.0, 1.0)]], 0.5), "reward probabilities of state 0"),
    "pair nan": (
        lambda: MarkovRewardProcess(P2, [[(1.0, np.nan)], [(1.0, 1.0)]], 0.5),
        "reward probabilities of state 0",
    ),
    "policy nan": (
        lambda: MarkovRewardProcess.from_mdp(np.full((2, 1, 2), 0.5), [0, 0], [[np.nan], [1]], 0.5),
        "policy must hold finite real numbers",
    ),
    "outcomes none": (lambda: MarkovRewardProcess.from_outcomes([], 0.5), "at least one"),
    "outcomes sum": (
        lambda: MarkovRewardProcess.from_outcomes([(1.0, 0.4 * np.array(P2))], 0.5),
        "sum to 1, state 0 sums to 0.4",
    ),
    "mdp shape": (
        lambda: MarkovRewardProcess.from_mdp(np.ones((2, 2)), [0, 0], "uniform", 0.5),
        r"transitions must have shape \(S, A, S\)",
    ),
    "mdp rewards": (
        lambda: MarkovRewardProcess.from_mdp(np.full((2, 1, 2), 0.5), np.zeros(3), "uniform", 0.5),
        "rewards must have shape",
    ),
    "policy word": (
        lambda: MarkovRewardProcess.from_mdp(np.full((2, 1, 2), 0.5), [0, 0], "best", 0.5),
        "array or 'uniform', got 'best'",
    ),
    "policy sum": (
        lambda: MarkovRewardProcess.from_mdp(np.full((2, 1, 2), 0.5), [0, 0], [[0.5], [1]], 0.5),
        "policy must hold probabilities",
    ),
    "policy action": (
        lambda: MarkovRewardProcess.from_mdp(np.full((2, 1, 2), 0.5), [0, 0], [0, 1], 0.5),
        "actions from 0 to 0, got 0 to 1",
    ),
    "steps": (lambda: random_process(0).sample(0, 0), "num_steps must be an integer >= 1, got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_processes(case):
    call, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence):
        call()
