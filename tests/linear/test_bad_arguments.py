"""Arguments of the linear half that are no numbers, too large, or of another type: a sentence names them."""

import warnings

import numpy as np
import pytest

from cramerl import Support
from cramerl.linear import (
    DistributionalLSTD,
    MarkovRewardProcess,
    evaluate,
    examples,
    fit_logs,
    random_features,
    rbf,
    suggest_support,
    tabular,
    with_bias,
)

S, PROCESS, X = Support([-1.0, 0.0, 2.0]), examples.ring(3), np.ones((2, 1))
HUGE = 10**400
from_outcomes, from_gymnasium = MarkovRewardProcess.from_outcomes, MarkovRewardProcess.from_gymnasium
from_mdp, PAIR = MarkovRewardProcess.from_mdp, np.full((2, 1, 2), 0.5)

CALLS = {
    "support of true_returns": (lambda: PROCESS.true_returns(3), "support must be a Support, got 3"),
    "support of evaluate": (lambda: evaluate(PROCESS, tabular(3), "x"), "support must be a Support, got str"),
    "process": (lambda: suggest_support("x"), "process must be a MarkovRewardProcess, got str"),
    "process of evaluate": (lambda: evaluate("x", tabular(3)), "process must be a MarkovRewardProcess, got str"),
    "deviations: nan": (
        lambda: suggest_support(PROCESS, 5, np.nan),
        "deviations must be a finite number >= 0, got nan",
    ),
    "deviations: huge": (lambda: suggest_support(PROCESS, 5, HUGE), "deviations must be a finite number >= 0"),
    "capacity": (lambda: examples.queue(2.5), r"capacity must be an integer >= 1, got 2\.5"),
    "service": (lambda: examples.queue(service="x"), r"service must be a finite number in \[0, 1\], got 'x'"),
    "slip": (lambda: examples.gridworld(slip=2), r"slip must be a finite number in \[0, 1\], got 2"),
    "num_states": (lambda: examples.ring(0), "num_states must be an integer >= 1, got 0"),
    "num_states: huge": (lambda: tabular(HUGE), "num_states must be an integer >= 1 and <= 2147483647"),
    "seed": (lambda: random_features(2, 1, "x"), "seed must be an integer >= 0, got 'x'"),
    "seed of sample": (lambda: PROCESS.sample(5, -1), "seed must be an integer >= 0, got -1"),
    "width": (lambda: rbf([0.0, 1.0], 2, 1 + 2j), "width must be a finite number > 0"),
    "centres": (lambda: rbf([0.0, 1.0], [[1.0], [1.0, 2.0]], 1.0), "centres must be an array of real numbers"),
    "outcomes": (lambda: from_outcomes(3, 0.5), r"outcomes must be \(reward, matrix\) pairs, got 3"),
    "reward": (lambda: from_outcomes([(HUGE, [[1.0]])], 0.5), "the rewards of outcomes must be a finite number"),
    "transitions": (lambda: from_mdp("x", [1], "uniform", 0.5), "transitions must hold real numbers"),
    "rewards": (lambda: from_mdp(PAIR, [HUGE, 1], "uniform", 0.5), "rewards must hold real numbers"),
    "policy": (lambda: from_mdp(PAIR, [1, 2], [[1.0], []], 0.5), "policy must be an array of real numbers"),
    "env_id": (lambda: from_gymnasium("NoSuch-v0", "uniform", 0.5), "env_id must be a Gymnasium id .* NameNotFound"),
    "options": (lambda: from_gymnasium("FrozenLake-v1", "uniform", 0.5, nosuch=3), "env_id .* options .* TypeError"),
    "level: huge": (lambda: fitted().predict_quantile(X, HUGE), "level must be an array of real numbers"),
    "level: complex": (lambda: fitted().predict_cvar(X, 1j), "level must be an array of real numbers"),
    "rewards: huge": (lambda: fitted([1, HUGE]), "rewards must be an array of real numbers"),
    "rewards: masked": (
        lambda: fitted(np.ma.masked_equal([1.0, 2.0], 1.0)),
        "rewards must be an array of real numb",
    ),
    "weights: tiny": (
        lambda: DistributionalLSTD(S, 0.9).fit(X, [1, 2], X, sample_weight=[1e-320, 1e-320]),
        "sample_weight must have weights of 1e-290 or more",
    ),
    "estimator": (lambda: fit_logs("x", []), "estimator must be a DistributionalLSTD, got str"),
    "chunks": (lambda: fit_logs(DistributionalLSTD(S), ["abc"]), r"chunks must be tuples \(X, rewards, .* got str"),
    "no chunks": (lambda: fit_logs(DistributionalLSTD(S), 3), "chunks must be an iterable of chunks, got int"),
}


def fitted(rewards=(1.0, 2.0)):
    return DistributionalLSTD(S, 0.9).fit(X, rewards, X, [True, False])


@pytest.mark.parametrize("call", CALLS)
def test_a_sentence_names_the_argument(call):
    function, sentence = CALLS[call]
    with pytest.raises(ValueError, match=sentence):
        function()


def test_a_narrow_bump_is_zero_elsewhere():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(rbf([0.0, 1.0], [0.0], 1e-200), [[1.0], [0.0]])
        np.testing.assert_array_equal(rbf([0.0, 1.0], [0.0], 1e200), [[1.0], [1.0]])
        assert with_bias(X).shape == (2, 2)
