"""Drawing observations as pictures without the environment that made them.

A picture is an RGB array (H, W, 3); a `Palette` turns it into indices of colours.
"""

from __future__ import annotations

import numpy as np

BLACK, GRAY, BLUE, ORANGE = (
    np.array(list(bytes.fromhex(colour)), np.uint8) for colour in ("16191d", "4a5058", "56B4E9", "E69F00")
)
# Colours of MinAtar's channels: Okabe and Ito's, then tints of them.
COLOURS = (
    *("#56B4E9", "#E69F00", "#8C8C8C", "#009E73", "#CC79A7"),
    *("#F0E442", "#D55E00", "#0072B2", "#B5E3CF", "#F4CFE0"),
)


class Palette:
    """The colours of pictures, in the order in which they appear; beyond 256 the nearest one is used."""

    def __init__(self) -> None:
        self._index_of = np.full(1 << 24, -1, np.int16)  # by colour, as 0xRRGGBB
        self._codes: list[int] = []

    @property
    def colours(self) -> np.ndarray:
        """(P, 3) uint8."""
        return np.array(self._codes or [0], ">u4").view(np.uint8).reshape(-1, 4)[:, 1:]

    def indices(self, picture: np.ndarray) -> np.ndarray:
        """Indices (H, W) uint8 of the colours of an RGB picture (H, W, 3)."""
        wide = picture.astype(np.int32)
        codes = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
        for code in np.unique(codes[self._index_of[codes] < 0]).tolist():
            if len(self._codes) < 256:
                self._codes.append(code)
                self._index_of[code] = len(self._codes) - 1
            else:
                wanted = np.array([code >> 16, code >> 8 & 255, code & 255])
                self._index_of[code] = np.argmin(((self.colours.astype(int) - wanted) ** 2).sum(axis=1))
        return self._index_of[codes].astype(np.uint8)


def draw_channels(frame: np.ndarray, channels: list[int], colours: np.ndarray) -> np.ndarray:
    """Frames of zeros and ones: the first of ``channels`` that is set in a cell gives its colour."""
    index = np.zeros(frame.shape[:2], int)
    for i, channel in reversed(list(enumerate(channels, start=1))):
        index[frame[..., channel] > 0] = i
    return colours[index]


def draw_gray(frame: np.ndarray, scale: float) -> np.ndarray:
    """Frames of one brightness per pixel, from 0 to ``scale``; of several channels the last."""
    gray = frame if frame.ndim == 2 else frame[..., -1]
    gray = np.clip(np.asarray(gray, np.float32) * (255 / scale), 0, 255).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=-1)


def draw_cart(frame: np.ndarray, height: int = 240, width: int = 480) -> np.ndarray:
    """CartPole: a cart with its pole, on a track that ends where the episode would."""
    position, angle = float(frame[0]), float(frame[2])
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    rows, columns = 186 - rows, columns - width / 2 - position / 2.4 * (width / 2 - 16)
    picture = np.tile(BLACK, (height, width, 1))
    picture[200:203, 16:-16] = GRAY
    picture[(abs(columns) <= 35) & (abs(rows) <= 14)] = BLUE
    along = columns * np.sin(angle) + rows * np.cos(angle)
    across = columns * np.cos(angle) - rows * np.sin(angle)
    # Soft edges, in few steps: each is another colour.
    pole = np.rint(np.clip(5.5 - abs(across), 0, 1) * 4) / 4 * ((along >= 0) & (along <= 150))
    return np.rint(picture + pole[..., None] * (ORANGE.astype(float) - picture)).astype(np.uint8)


def draw_bars(frame: np.ndarray) -> np.ndarray:
    """Vectors: a bar for each number, up for positive ones, squashed as x / (1 + |x|)."""
    values = np.ravel(np.asarray(frame, np.float32))
    bar = max(2, min(24, 320 // values.size))
    picture = np.tile(BLACK, (120, bar * values.size, 1))
    for i, height in enumerate(np.rint(values / (1 + abs(values)) * 56).astype(int)):
        rows, columns = sorted((60 - height, 60)), slice(i * bar, max(i * bar + 1, (i + 1) * bar - 1))
        picture[slice(*rows), columns] = BLUE if height > 0 else ORANGE
    picture[60] = GRAY
    return picture


def draw_observation(observation: np.ndarray) -> np.ndarray:
    """A vector as bars; a picture (H, W), (H, W, 3) or (3, H, W) as it is; of a stack (N, H, W) the last one.

    Channels of zeros and ones, (H, W, C), have a colour each. Numbers of a picture are uint8, or lie in [0, 1].
    """
    shape = observation.shape
    if observation.size == 0 or len(shape) not in (1, 2, 3):
        allowed = "a vector, a picture (H, W) or (H, W, 3), a stack (N, H, W) or channels (H, W, C)"
        raise ValueError(f"observation must be {allowed}, got shape {shape}")
    if not np.isfinite(observation).all():
        raise ValueError("observation must be finite, got NaN or infinity")
    if len(shape) == 1:
        return draw_bars(observation)
    scale = 255.0 if observation.dtype == np.uint8 and observation.max() > 1 else 1.0
    if observation.min() < 0 or observation.max() > scale:
        found = f"{observation.dtype} from {observation.min():g} to {observation.max():g}"
        raise ValueError(f"observation must be a picture of uint8 or of numbers in [0, 1], got {found}")
    if len(shape) == 3 and shape[2] != 3 and shape[0] < min(shape[1:]):
        observation = np.moveaxis(observation, 0, -1) if shape[0] == 3 else observation[-1]
    if observation.ndim == 3 and observation.shape[2] == 3:
        return np.rint(observation * (255 / scale)).astype(np.uint8)
    if observation.ndim == 3 and observation.shape[2] > 1 and np.isin(observation, (0, 1)).all():
        colours = [list(bytes.fromhex(COLOURS[i % len(COLOURS)][1:])) for i in range(observation.shape[2])]
        return draw_channels(observation, list(range(len(colours))), np.array([BLACK, *colours], np.uint8))
    return draw_gray(observation, scale)
