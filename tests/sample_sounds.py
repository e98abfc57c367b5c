"""Voices and music for silero-vad and basic-pitch, made in code with seeds."""

import numpy as np

from seqto.types import Arrays


def voice(seconds: float, rate: int, draw: np.random.Generator) -> np.ndarray:
    """Return syllables: a buzzing voice through the resonances of changing vowels, with pauses."""
    count = int(seconds * rate)
    pieces: list[np.ndarray] = []
    while sum(map(len, pieces)) < count:
        pieces.append(_syllable(float(draw.uniform(0.12, 0.3)), rate, draw))
        pieces.append(np.zeros(int(draw.uniform(0.02, 0.15) * rate), np.float32))
    sound = np.concatenate(pieces)[:count]
    return (sound + draw.normal(0, 0.003, count)).astype(np.float32)


_VOWELS = (
    (730, 1090, 2440),
    (270, 2290, 3010),
    (300, 870, 2240),
    (530, 1840, 2480),
    (570, 840, 2410),
)


def _syllable(seconds: float, rate: int, draw: np.random.Generator) -> np.ndarray:
    time = np.arange(int(seconds * rate)) / rate
    pitch = draw.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * draw.uniform(2, 6) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    formants = np.array(_VOWELS[int(draw.integers(len(_VOWELS)))]) * draw.uniform(0.9, 1.15)
    sound = np.zeros_like(time)
    for harmonic in range(1, int(4000 / pitch.mean())):
        heights = (1, 0.5, 0.2) / (1 + ((harmonic * pitch.mean() - formants) / 90) ** 2)
        sound += (heights.sum() + 0.01) * np.sin(harmonic * phase)
    edge = np.minimum(1, np.minimum(time, time[::-1]) / 0.02)
    return (sound * edge / max(np.abs(sound).max(), 1e-6) * draw.uniform(0.2, 0.7)).astype(
        np.float32
    )


def voice_inputs(count: int = 64, seed: int = 0) -> Arrays:
    """Return pieces of 576 samples at 16 kHz: voices, hums and noise. There is no state yet."""
    draw = np.random.default_rng(seed)
    pieces = []
    for index in range(count):
        if index % 3 == 0:
            sound = draw.normal(0, draw.uniform(0.001, 0.05), 576)
        elif index % 3 == 1:
            sound = 0.3 * np.sin(2 * np.pi * draw.uniform(50, 900) / 16000 * np.arange(576))
        else:
            sound = voice(0.5, 16000, draw)[1000:1576]
        pieces.append(sound.astype(np.float32))
    return {"input": np.stack(pieces)}


def music_inputs(count: int = 16, seed: int = 0) -> Arrays:
    """Return two seconds of notes with overtones that fade, at 22,050 Hz."""
    draw = np.random.default_rng(seed)
    return {"serving_default_input_2:0": np.stack([_melody(draw) for _ in range(count)])[..., None]}


def _melody(draw: np.random.Generator, rate: int = 22050, count: int = 43844) -> np.ndarray:
    sound = draw.normal(0, 0.002, count)
    for _ in range(int(draw.integers(3, 9))):
        start, key = int(draw.integers(0, count - 4000)), int(draw.integers(40, 80))
        time = np.arange(min(int(draw.uniform(0.2, 0.8) * rate), count - start)) / rate
        tone = sum(
            np.sin(2 * np.pi * n * 440 * 2 ** ((key - 69) / 12) * time) / n for n in range(1, 6)
        )
        sound[start : start + len(time)] += 0.15 * tone * np.exp(-4 * time)
    return sound.astype(np.float32)
