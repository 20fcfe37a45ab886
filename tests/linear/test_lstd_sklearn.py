"""scikit-learn's own checks of an estimator, on `DistributionalLSTD` as a regressor."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.estimator_checks import parametrize_with_checks

from cramerl.linear import DistributionalLSTD


class AsRegressor(RegressorMixin, DistributionalLSTD, BaseEstimator):  # pyright: ignore[reportIncompatibleMethodOverride]
    """scikit-learn's fit(X, y): every transition ends, so that the return is y."""

    @property
    def predict_proba(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        """To scikit-learn this is a classifier's method, whose columns are classes."""
        raise AttributeError("predict_proba")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().fit(X, y, X, np.ones(np.asarray(y).shape[:1]))

    def partial_fit(self, X, y):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().partial_fit(X, y, X, np.ones(np.asarray(y).shape[:1]))


WORDING = "the sentence is the project's (argument, what was given, what is allowed), not scikit-learn's"
EXPECTED_FAILURES = {
    "check_estimators_unfitted": "NotFittedError has scikit-learn's name and bases, without importing it",
    "check_n_features_in_after_fitting": WORDING,
    "check_complex_data": WORDING,
    "check_dtype_object": WORDING,
    "check_estimators_empty_data_messages": WORDING,
    "check_estimators_nan_inf": WORDING,
    "check_fit2d_predict1d": WORDING,
    "check_requires_y_none": WORDING,
    "check_supervised_y_2d": "a column of rewards is refused, not flattened with a warning",
}


@parametrize_with_checks(
    [AsRegressor(regularisation=1e-3, num_atoms=11)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
