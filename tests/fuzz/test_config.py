"""Settings of any kind: a configuration that can be written and read back, or an error that names the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydantic", reason="pydantic is not installed: pip install 'neyman[cli]'")

from fuzz.mutations import changed, edited, values
from fuzz.tally import count
from neyman.config import Config, from_mapping, read_toml, to_toml
from neyman.errors import ArgumentError, NeymanError
from neyman.presets import PRESETS, parse_options

VALID = {
    "seeds": [0, 1],
    "baselines": ["uniform", "vip"],
    "model": {"path": "tiny", "dtype": "float32", "warm_start_steps": 10},
    "task": {"type": "rules", "regime": "hard", "train_size": 64, "test_size": 16, "seed": 3},
    "strategy": {
        "name": "vip",
        "options": {"lower": 2, "upper": 32},
        "belief": "counts",
        "belief_options": {"discount": 0.9},
    },
    "trainer": {
        "algorithm": "grpo",
        "steps": 3,
        "loss_type": "dapo",
        "options": {"epsilon": 0.2},
        "report_to": ["wandb"],
    },
}


def build(settings: Any) -> Config | None:
    """Return the configuration; None where it is refused, which must be said on lines that name settings."""
    try:
        config = from_mapping(settings)
    except ArgumentError as error:
        said = str(error)
    else:
        assert from_mapping(read_back(config)) == config
        flags_remain(settings, config.model_dump())
        return config
    assert said.strip()
    assert "pydantic" not in said
    assert "Traceback" not in said
    return None


def flags_remain(given: Any, built: Any) -> None:
    """What was true or false is so still, and no number."""
    if isinstance(given, dict):
        for key, value in given.items():
            flags_remain(value, built[key])
    elif isinstance(given, list | tuple):
        for value, kept in zip(given, built, strict=True):
            flags_remain(value, kept)
    elif isinstance(given, bool):
        assert built is given


def read_back(config: Config) -> Any:
    import tomllib

    return tomllib.loads(to_toml(config))


@given(changed(VALID, most=3))
def test_settings_with_other_values(settings: Any) -> None:
    config = build(settings) if isinstance(settings, dict) else None
    count("config, values", "refused" if config is None else "built")


_names = st.sampled_from(
    sorted({*Config.model_fields, "task", "type", "name", "options", "steps", "path", "seed"})
)
_trees = st.recursive(
    values,
    lambda inner: (
        st.dictionaries(_names | st.text(max_size=5), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@given(st.dictionaries(_names | st.text(max_size=5), _trees, max_size=5))
def test_settings_of_any_structure(settings: dict[str, Any]) -> None:
    config = build(settings)
    count("config, structure", "refused" if config is None else "built")


@given(st.integers(1, 3000), st.sampled_from(["list", "table"]), st.sampled_from(sorted(VALID)))
def test_settings_nested_deeply(depth: int, kind: str, section: str) -> None:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner] if kind == "list" else {"a": inner}
    for settings in ({section: inner}, {section: {"options": inner, "belief_options": inner}}):
        config = build(settings)
        assert config is None or depth <= 16
        count("config, depth", "refused" if config is None else "built")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


_TOML = to_toml(from_mapping(VALID)).encode()


def read_and_build(kind: str, path: Path) -> None:
    """Read a file of settings and build from it, or see that its error names it."""
    try:
        settings = read_toml(path)
    except ArgumentError as error:
        said = str(error)
    else:
        count(kind, "refused" if build(settings) is None else "built")
        return
    assert str(path) in said
    count(kind, "no TOML")


@given(edited(_TOML, most=6))
def test_files_with_edited_bytes(folder: Path, data: bytes) -> None:
    path = folder / "run.toml"
    path.write_bytes(data)
    read_and_build("config, bytes", path)


_LITERALS = st.sampled_from(
    ["true", "false", "-1", "2.5", "inf", "nan", "1e400", "9" * 400, "9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000,
     "1979-05-27", "07:32:00", "[]", "[1, true]", "{}", '"text"', "[" + "9" * 5000 + "]"]
)  # fmt: skip


@given(st.sampled_from([n for n, line in enumerate(_TOML.splitlines()) if b" = " in line]), _LITERALS)
def test_files_with_other_literals(folder: Path, line: int, literal: str) -> None:
    lines = _TOML.decode().splitlines()
    key = lines[line].partition(" = ")[0]
    lines[line] = f"{key} = {literal}"
    path = folder / "literal.toml"
    path.write_text("\n".join(lines))
    read_and_build("config, literals", path)


@given(
    st.lists(
        st.text(max_size=20)
        | st.sampled_from(
            ["a=" + "9" * 5000, "a=[[", "a=1e999", "=1", "a=" + "[" * 3000, "a=\n[b]", "a=1\nb=2"]
        )
    )
)
def test_options_of_any_words(words: list[str]) -> None:
    try:
        options = parse_options(words)
    except ArgumentError:
        count("config, options", "refused")
        return
    assert all(isinstance(key, str) for key in options)
    assert len(options) <= len(words)
    count("config, options", "built")


_OPTIONS = st.sampled_from(
    ["lower", "upper", "group_size", "threshold", "probe", "belief", "close", "max_age", "max_tries", "estimator",
     "schedule", "variant", "dead_groups", "keep", "modulation", "discount", "prior", "screen", "step", "rows"]
)  # fmt: skip


@given(st.sampled_from(sorted(PRESETS)), st.dictionaries(_OPTIONS, values, max_size=3))
def test_strategies_with_any_options(name: str, options: dict[str, Any]) -> None:
    try:
        config = from_mapping({"strategy": {"name": name, "options": options}})
        config.build_strategy(name)
    except NeymanError:
        count("config, strategies", "refused")
        return
    count("config, strategies", "built")


_BELIEFS = [("counts", "discount"), ("counts", "prior"), ("binomial-residual", "landmarks"), ("default", "x")]


@given(values, st.sampled_from(_BELIEFS))
def test_beliefs_with_any_options(value: Any, named: tuple[str, str]) -> None:
    belief, option = named
    try:
        config = from_mapping({"strategy": {"belief": belief, "belief_options": {option: value}}})
        config.build_strategy(config.strategy.name)
    except NeymanError:
        count("config, beliefs", "refused")
    else:
        count("config, beliefs", "built")


def test_what_is_written_is_what_was_read() -> None:
    config = from_mapping(VALID)
    assert json.loads(config.model_dump_json()) == json.loads(
        from_mapping(read_back(config)).model_dump_json()
    )
