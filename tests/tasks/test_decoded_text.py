"""Texts that are read from outputs."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from suite_tasks import SingleOutputSuite

from seqto.errors import ConfigError, DatasetError, ModelError
from seqto.identity import identity
from seqto.tasks.decoded_text import DecodedText
from seqto.types import Outputs, Targets

pytest.importorskip("sacrebleu", reason="needs the extra 'text'")
pytest.importorskip("rapidfuzz", reason="needs the extra 'text'")

SYMBOLS = ["-", " ", *"abcdefgh"]
TEXTS = [
    "".join(np.random.RandomState(n).choice(SYMBOLS[1:], 12 + n, p=[0.2, *[0.1] * 8]))
    for n in range(20)
]


def scores(tokens: list[int], height: float = 4.0) -> np.ndarray:
    """Return logits of these tokens, one per position."""
    return (height * np.eye(len(SYMBOLS))[tokens]).astype(np.float32)


def ctc(text: str) -> list[int]:
    """Return tokens that CTC reads as this text."""
    return [token for symbol in text for token in (SYMBOLS.index(symbol),) * 2 + (0,)]


@pytest.fixture
def symbols(tmp_path: Path) -> str:
    path = tmp_path / "symbols.txt"
    path.write_text("\n".join(SYMBOLS) + "\n")
    return str(path)


class TestCtc(SingleOutputSuite):
    noise = (0.05, 1.5, 10.0)

    @pytest.fixture
    def task(self, symbols: str) -> DecodedText:
        return DecodedText(decoding="ctc", vocabulary=symbols)

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logits": tuple(scores(ctc(text)) for text in TEXTS)}

    @pytest.fixture
    def targets(self) -> Targets:
        return TEXTS

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        return [{"wrong": np.zeros(shape)} for shape in ((20, 9), (20, 3, 1), (20, 3, 4, 4))]


class TestGreedy(TestCtc):
    @pytest.fixture
    def task(self) -> DecodedText:
        return DecodedText(decoding="greedy", end=0, loss="bleu")

    @pytest.fixture
    def reference(self) -> Outputs:
        # What stands behind the end is no text.
        tokens = [[SYMBOLS.index(symbol) for symbol in text] for text in TEXTS]
        return {"logits": tuple(scores([*each, 0, 3, 3]) for each in tokens)}

    @pytest.fixture
    def targets(self) -> Targets:
        return [[SYMBOLS.index(symbol) for symbol in text] for text in TEXTS]


def ids(*texts: str) -> Outputs:
    numbers = ([SYMBOLS.index(each) for each in text] for text in texts)
    return {"ids": tuple(np.array(each, np.int64) for each in numbers)}


def losses(task: DecodedText, wanted: str, found: str) -> float:
    return float(task.metric.losses(ids(wanted), ids(found))[0])


def test_ctc_drops_repetitions_and_blanks(symbols: str) -> None:
    task = DecodedText(decoding="ctc", vocabulary=symbols)
    read = {"logits": scores([2, 2, 0, 2, 3, 3, 0, 0])[None]}
    assert task.scores(read, ["aab"])["cer"].value == 0
    other = DecodedText(decoding="ctc", blank=9, vocabulary=symbols)
    assert other.scores({"logits": scores([9, 2, 2, 9, 2])[None]}, ["aa"])["cer"].value == 0


def test_greedy_reads_up_to_the_end(symbols: str) -> None:
    task = DecodedText(decoding="greedy", end=9, vocabulary=symbols)
    read = {"logits": scores([2, 2, 3, 9, 4])[None]}
    assert task.scores(read, ["aab"])["cer"].value == 0
    assert list(task.metric.losses(read, {"logits": scores([2, 2, 3, 9, 5])[None]})) == [0]


def test_what_stands_behind_the_end_does_no_harm() -> None:
    task = DecodedText(decoding="greedy", end=9)
    reference = {"logits": scores([2, 3, 9, 4, 4])[None]}
    behind = {"logits": scores([2, 3, 9, 6, 7])[None]}
    at_the_end = {"logits": scores([2, 3, 8, 4, 4])[None]}
    assert list(task.harm(reference).per_sample(behind)) == [0]
    assert task.harm(reference).per_sample(at_the_end)[0] > 0.1


def test_the_loss_is_the_share_of_characters_to_change() -> None:
    task = DecodedText(decoding="greedy")
    assert losses(task, "abcd", "abcd") == 0
    assert losses(task, "abcd", "abed") == 0.25
    assert losses(task, "abcd", "bcd") == 0.25
    assert losses(task, "ab", "cdefgh") == 1
    assert losses(task, "", "a") == 1
    assert losses(task, "a", "") == 1


def test_bleu_is_that_of_sacrebleu(symbols: str) -> None:
    import sacrebleu

    task = DecodedText(decoding="greedy", loss="bleu", vocabulary=symbols)
    wanted, found = "a bc d ef gh ab", "a bc d fe gh ab"
    bleu = sacrebleu.sentence_bleu(found, [wanted]).score / 100
    assert losses(task, wanted, found) == pytest.approx(1 - bleu)
    assert losses(task, wanted, wanted) == 0
    assert 0.1 < bleu < 0.9


def test_figures_are_those_of_jiwer_and_sacrebleu(symbols: str) -> None:
    import sacrebleu

    jiwer = pytest.importorskip("jiwer", reason="needs the extra 'text'")
    found = [" ".join((text[:5] + text[6:] + "a").split()) for text in TEXTS]
    wanted = [" ".join(text.split()) for text in TEXTS]
    task = DecodedText(decoding="greedy", vocabulary=symbols)
    figures = task.scores(ids(*found), wanted)
    assert list(figures) == ["cer", "wer", "bleu"]
    assert figures["cer"].value == pytest.approx(jiwer.cer(wanted, found))
    assert figures["wer"].value == pytest.approx(jiwer.wer(wanted, found))
    bleu = sacrebleu.corpus_bleu(found, [wanted], force=True).score / 100
    assert figures["bleu"].value == pytest.approx(bleu)
    for each in figures.values():
        assert each.low < each.value < each.high


def test_short_texts_have_a_bleu_too(symbols: str) -> None:
    task = DecodedText(decoding="greedy", vocabulary=symbols)
    assert task.scores(ids("ab cd", "ef"), ["ab cd", "ef"])["bleu"].value == 1
    assert task.scores(ids("ab cd", "ef"), ["ab cd", "fe"])["bleu"].value < 1


def test_without_names_tokens_are_compared() -> None:
    task = DecodedText(decoding="greedy")
    figures = task.scores(ids("abcd", "ef"), [[2, 3, 4, 6], [6, 7]])
    assert list(figures) == ["cer", "bleu"]
    assert figures["cer"].value == 1 / 6
    with pytest.raises(DatasetError, match="'abcd'.*task.vocabulary="):
        task.scores(ids("abcd"), ["abcd"])


def test_numbers_of_tokens_are_harmed_by_edits() -> None:
    task = DecodedText(decoding="greedy")
    found = task.harm(ids("abcd", "ab")).per_sample(ids("abcd", "cdefgh"))
    assert list(found) == [0, 3]
    ctc = DecodedText(decoding="ctc").harm({"ids": np.array([[2, 2, 0, 3]])})
    assert list(ctc.per_sample({"ids": np.array([[0, 2, 3, 3]])})) == [0]


def test_negative_numbers_are_padding() -> None:
    task = DecodedText(decoding="greedy")
    padded = {"ids": np.array([[2, 3, -1, -1]])}
    assert list(task.metric.losses(padded, ids("ab"))) == [0]


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5)])
def test_several_rows_of_tokens_are_refused(shape: tuple[int, ...]) -> None:
    outputs = {"beams": np.zeros(shape, np.int64)}
    with pytest.raises(ModelError, match=r"'beams' has the shape \[3, 4.*task=text"):
        DecodedText(decoding="greedy").metric.losses(outputs, outputs)


@pytest.mark.parametrize(("left_out", "blank"), [(0, 0), (1, 0), (2, 0), (1, 9)])
def test_vocabularies_may_leave_out_the_blank(tmp_path: Path, left_out: int, blank: int) -> None:
    # PaddleOCR's leave out the blank at the front, and the space at the end.
    model = [*"abcdefgh", " "]
    model.insert(blank, "-")
    lines = {0: model, 1: [*"abcdefgh", " "], 2: [*"abcdefgh"]}[left_out]
    (tmp_path / "dict.txt").write_text("\n".join(lines))
    task = DecodedText(decoding="ctc", blank=blank, vocabulary=str(tmp_path / "dict.txt"))
    tokens = [model.index(each) for each in "a bh"]
    outputs = {"logits": scores(tokens)[None]}
    assert task.scores(outputs, ["a bh"])["cer"].value == 0
    assert task.scores(outputs, [tokens])["cer"].value == 0


def test_lines_may_have_the_numbers_of_tokens(tmp_path: Path) -> None:
    lines = [f"{each} {number}" for number, each in enumerate(["<blk>", "▁", *"abcdefgh"])]
    (tmp_path / "tokens.txt").write_text("\n".join(reversed(lines)) + "\n")
    task = DecodedText(decoding="ctc", vocabulary=str(tmp_path / "tokens.txt"))
    outputs = {"logits": scores([2, 0, 1, 3])[None]}
    assert task.scores(outputs, ["a b"])["wer"].value == 0


def test_a_symbol_may_stand_for_a_space(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("\n".join(["<pad>", "|", *"abcdefgh"]))
    path = str(tmp_path / "tokens.txt")
    outputs = {"logits": scores([2, 0, 1, 3])[None]}
    spaced = DecodedText(decoding="ctc", vocabulary=path, space="|")
    assert spaced.scores(outputs, ["a b"])["wer"].value == 0
    plain = DecodedText(decoding="ctc", vocabulary=path)
    assert plain.scores(outputs, ["a b"])["wer"].value == 1


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("a\nb\nc")
    task = DecodedText(decoding="ctc", vocabulary=str(tmp_path / "tokens.txt"))
    outputs = {"logits": scores([1, 2])[None]}
    with pytest.raises(ConfigError, match="has 3 symbols, but the model has 10 tokens"):
        task.scores(outputs, ["ab"])


def test_a_vocabulary_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="task.vocabulary=.*cannot be read"):
        DecodedText(decoding="ctc", vocabulary=str(tmp_path / "missing.txt"))


def test_tokens_that_the_model_does_not_have_are_refused() -> None:
    outputs = {"logits": scores([1, 2])[None]}
    with pytest.raises(ConfigError, match="task.blank=10 .* from 0 to 9"):
        DecodedText(decoding="ctc", blank=10).metric.losses(outputs, outputs)
    with pytest.raises(ConfigError, match="task.end=12"):
        DecodedText(decoding="greedy", end=12).metric.losses(outputs, outputs)


def test_a_tokenizer_names_tokens(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'text'")
    words = {"[PAD]": 0, "the": 1, "cat": 2, "sat": 3, "[END]": 4}
    model = tokenizers.models.WordLevel(words, unk_token="[PAD]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.add_special_tokens(["[PAD]", "[END]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    task = DecodedText(decoding="greedy", end=4, vocabulary=str(tmp_path))
    outputs = {"ids": np.array([[1, 2, 3, 4, 1]])}
    assert task.scores(outputs, ["the cat sat"])["wer"].value == 0
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read as a tokenizer"):
        DecodedText(decoding="greedy", vocabulary=str(tmp_path / "broken.json"))


def test_what_identifies_it_is_the_content_of_the_vocabulary(tmp_path: Path, symbols: str) -> None:
    task = DecodedText(decoding="ctc", vocabulary=symbols)
    other = tmp_path / "other.txt"
    other.write_text(Path(symbols).read_text())
    same = DecodedText(decoding="ctc", vocabulary=str(other))
    assert identity(task) == identity(same)
    other.write_text("\n".join(reversed(SYMBOLS)))
    assert identity(DecodedText(decoding="ctc", vocabulary=str(other))) != identity(same)


def test_missing_libraries_are_told_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sacrebleu" else found(name)
    )
    with pytest.raises(ConfigError, match=r"needs sacrebleu.*pip install 'seqto\[text\]'"):
        DecodedText(decoding="ctc")


@pytest.mark.parametrize("target", [1.5, [[1, 2]], None])
def test_targets_that_are_no_texts_are_refused(target: object) -> None:
    with pytest.raises(DatasetError, match="a target is .* expects a text"):
        DecodedText(decoding="greedy").scores(ids("ab"), [target])


def test_empty_targets_are_refused(symbols: str) -> None:
    with pytest.raises(DatasetError, match="every target is an empty text"):
        DecodedText(decoding="greedy", vocabulary=symbols).scores(ids("ab"), [""])
