"""Logs of a hospital, a shop and a recommender, for docs/logs.md, from data that come with Python packages.

    python examples/log_data.py hospital data      # ICU-Sepsis: patients simulated from a model of real ones
    python examples/log_data.py shop data          # CDNOW: 78 weeks of purchases at an online shop
    python examples/log_data.py recommender data   # Open Bandit: fashion items shown at random, and clicks

The packages are downloaded by pip, and only their data files are used. Needs NumPy and pandas.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

DISCOUNT = 0.99


def package_files(package: str, *names: str) -> list[bytes]:
    """The content of files of a package, which is downloaded but not installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            return [wheel.read(name) for name in names]


class Hospital:
    """ICU-Sepsis (Choudhary and others, 2024): 716 states of a patient and 25 treatments; the reward is survival."""

    def __init__(self):
        assets = "icu_sepsis/envs/assets/"
        dynamics, admissible = package_files(
            "icu-sepsis==2.0.1", f"{assets}dynamics.npz", f"{assets}admissible_actions.txt"
        )
        with np.load(io.BytesIO(dynamics)) as arrays:
            self.step, self.first, self.clinicians = arrays["tx_mat"], arrays["d_0"], arrays["expert_policy"]
            self.reward = (arrays["tx_mat"] * arrays["r_mat"]).sum(axis=2)
            self.rewards = arrays["r_mat"]
        self.ends = np.arange(716) >= 713
        allowed = np.zeros((716, 25), dtype=bool)
        for state, line in enumerate(admissible.decode().strip().splitlines()[1:]):
            allowed[state, [int(word) for word in line.split() if int(word) < 25]] = True
        allowed[~allowed.any(axis=1)] = True
        self.random = allowed / allowed.sum(axis=1, keepdims=True)
        self.optimal = np.eye(25)[self._best(allowed)]

    def _best(self, allowed: np.ndarray) -> np.ndarray:
        """(S,) the treatment of the largest discounted survival, by value iteration."""
        values = np.zeros(716)
        while True:
            worth = np.where(allowed, self.reward + DISCOUNT * self.step @ np.where(self.ends, 0.0, values), -1.0)
            if np.abs(worth.max(axis=1) - values)[~self.ends].max() < 1e-10:
                return worth.argmax(axis=1)
            values = np.where(self.ends, 0.0, worth.max(axis=1))

    def play(self, policy: np.ndarray, patients: int, seed: int) -> pd.DataFrame:
        """A log: a row for each step of each patient."""
        rng, parts = np.random.default_rng(seed), []
        who, state, day = np.arange(patients), rng.choice(716, patients, p=self.first), 0
        below, reached = policy.cumsum(axis=1), self.step.cumsum(axis=2)
        while len(who):
            action = np.minimum((rng.random(len(who))[:, None] > below[state]).sum(axis=1), 24)
            following = np.minimum((rng.random(len(who))[:, None] > reached[state, action]).sum(axis=1), 715)
            over = self.ends[following]
            columns = {"patient": who, "step": day, "state": state, "action": action}
            columns |= {"reward": self.rewards[state, action, following], "over": over}
            parts.append(pd.DataFrame(columns | {"propensity": policy[state, action]}))
            who, state, day = who[~over], following[~over], day + 1
        return pd.concat(parts).sort_values(["patient", "step"], ignore_index=True)

    def truth(self, policy: np.ndarray, discount: float = DISCOUNT) -> tuple[np.ndarray, np.ndarray]:
        """(T + 1,) values that the return can take, and their probabilities."""
        here, survived = np.where(self.ends, 0.0, self.first), []
        step, reward = np.einsum("sa,sat->st", policy, self.step), (policy * self.reward).sum(axis=1)
        while here.sum() > 1e-12:
            survived.append(here @ reward)
            here = np.where(self.ends, 0.0, here @ step)
        return np.append(discount ** np.arange(len(survived)), 0.0), np.append(survived, 1 - sum(survived))


def hospital(folder: Path) -> None:
    """4,000 patients treated as clinicians do, and a policy that never treated anybody."""
    model = Hospital()
    model.play(model.clinicians, 4000, seed=1).to_csv(folder / "hospital.csv", index=False)
    policy = 0.5 * model.clinicians + 0.5 * model.optimal
    np.save(folder / "hospital_policy.npy", policy)
    for name, of in (("clinicians", model.clinicians), ("hospital_policy.npy", policy)):
        values, probs = model.truth(of)
        print(f"true mean of {name}: {values @ probs:.4f}, survival {1 - probs[-1]:.4f}")


def shop(folder: Path, last_week: int = 39) -> None:
    """Customers by week: what is known of each, and what each spends. And the same customers now."""
    (master,) = package_files("Lifetimes==0.11.3", "lifetimes/datasets/CDNOW_master.txt")
    bought = pd.read_csv(io.BytesIO(master), sep=r"\s+", skiprows=1, names=["customer", "day", "items", "spend"])
    day = pd.to_datetime(bought["day"].astype(str))
    bought["week"] = (day - pd.Timestamp("1997-01-01")).dt.days // 7
    spend = bought[bought["spend"] > 0].pivot_table(
        index="customer", columns="week", values="spend", aggfunc="sum", fill_value=0.0
    )
    spend = spend.reindex(columns=range(78), fill_value=0.0)
    paid = spend.to_numpy()
    log = _customers(spend.index.to_numpy(), paid, last_week)
    log[log["week"] < last_week].to_parquet(folder / "shop.parquet", index=False)
    now = log[log["week"] == last_week].drop(columns="spend")
    now["came"] = (paid[:, last_week:] @ 0.9 ** np.arange(78 - last_week))[now["row"]]
    now.drop(columns="row").to_parquet(folder / "shop_now.parquet", index=False)
    print(f"{len(now):,} customers; what they spent from week {last_week} on, discounted: {now['came'].mean():.2f}")


def _customers(names: np.ndarray, paid: np.ndarray, last_week: int) -> pd.DataFrame:
    first, parts = (paid > 0).argmax(axis=1), []
    for week in range(1, last_week + 1):
        row = np.flatnonzero(first < week)
        before = paid[row, :week]
        times, newest = (before > 0).sum(axis=1), week - 1 - (before[:, ::-1] > 0).argmax(axis=1)
        columns = {"customer": names[row], "row": row, "week": week, "since": np.log1p(week - newest)}
        columns |= {"times": np.log1p(times), "average": np.log1p(before.sum(axis=1) / times)}
        # Whole dollars: with few different rewards the equations need one pass over the log.
        columns |= {"age": np.log1p(week - first[row]), "spend": paid[row, week].round()}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts).sort_values(["customer", "week"], ignore_index=True)


def recommender(folder: Path) -> None:
    """Items shown at random, and how often the shop's own policy showed each in each position."""
    shown, own = (
        pd.read_csv(io.BytesIO(content), usecols=["item_id", "position", "click", "propensity_score"])
        for content in package_files(
            "obp==0.4.1", *(f"obp/dataset/obd/{name}/all/all.csv" for name in ("random", "bts"))
        )
    )
    shown = shown.assign(visit=np.arange(len(shown)), over=True)
    shown.to_csv(folder / "recommender.csv", index=False)
    counts = pd.crosstab(own["position"], own["item_id"]).reindex(columns=range(80), fill_value=0)
    np.save(folder / "recommender_policy.npy", counts.div(counts.sum(axis=1), axis=0).to_numpy())
    print(f"clicks: {shown['click'].mean():.5f} in the log, {own['click'].mean():.5f} where the shop's policy ran")


def main() -> None:
    """Write the files of one story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("story", choices=["hospital", "shop", "recommender"])
    parser.add_argument("folder", type=Path, help="where to write the files")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    {"hospital": hospital, "shop": shop, "recommender": recommender}[options.story](options.folder)


if __name__ == "__main__":
    main()
