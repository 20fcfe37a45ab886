"""The Krylov solver against a dense solve."""

import numpy as np
import pytest

from cramerl.linear.krylov import solve_fixed_point


@pytest.mark.parametrize("size", [1, 6, 120])
@pytest.mark.parametrize("radius", [0.5, 0.99])
def test_fixed_points_are_those_of_a_dense_solve(size, radius):
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    matrix *= radius / np.abs(np.linalg.eigvals(matrix)).max()
    constant = rng.normal(size=(size, 1))
    found = solve_fixed_point(lambda x: matrix @ x, constant, 1e-10, max_products=5000)
    assert found.residual <= 1e-10
    np.testing.assert_allclose(found.solution, np.linalg.solve(np.eye(size) - matrix, constant), rtol=1e-7, atol=1e-8)


def test_far_fewer_products_than_the_iteration():
    """A walk on a ring with a discount of 0.999: the iteration takes 20,000 products for these digits."""
    step = np.roll(np.eye(50), 1, axis=1)
    matrix = 0.999 * (step + step.T) / 2
    found = solve_fixed_point(lambda x: matrix @ x, np.eye(50)[0], 1e-10, max_products=1000)
    assert found.products < 200


def test_stops_where_rounding_allows_no_more_and_at_the_limit():
    constant = np.array([1e8, 1.0])
    assert solve_fixed_point(lambda x: 0.9 * x[::-1], constant, 1e-30, max_products=10_000).products < 1000
    assert solve_fixed_point(lambda x: 2.0 * x[::-1], constant, 0.0, max_products=6).products < 20
    assert solve_fixed_point(lambda x: 0.5 * x, np.zeros(3), 1e-12, max_products=10).residual == 0
