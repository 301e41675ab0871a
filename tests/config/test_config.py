"""Settings: what is legal, what is refused and in which words, and the way to TOML and back."""

import tomllib

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("tomlkit")

from hypothesis import given, settings
from hypothesis import strategies as st

import neyman
from neyman.beliefs import Counts
from neyman.config import TASKS, Config, from_mapping, read_toml, to_toml
from neyman.errors import ArgumentError, MissingExtraError
from neyman.presets import parse_options


def test_nothing_given_is_the_embedded_default():
    config = from_mapping({})
    assert (
        config.model.path,
        config.task.type,
        config.strategy.name,
        config.baselines,
    ) == ("tiny", "rules", "neyman", ("uniform",))
    assert len(config.seeds) >= 3
    assert config.is_exact


def test_every_field_is_described():
    sections = [
        Config,
        *TASKS.values(),
        *(Config.model_fields[n].annotation for n in ("model", "strategy", "trainer")),
    ]
    silent = [
        f"{section.__name__}.{name}"
        for section in sections
        for name, field in section.model_fields.items()
        if not field.description and section is not Config
    ]
    assert silent == []


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"task": {"regime": "ushape"}, "seeds": [4], "baselines": []},
        {
            "model": {"path": "m"},
            "task": {"type": "reasoning_gym", "name": "countdown", "config": {"max_value": 9}},
        },
        {
            "strategy": {
                "name": "sara",
                "options": {"schedule": [2, 4], "threshold": 0.3, "after_commit": "grow"},
            }
        },
        {"trainer": {"micro_batch": 64, "report_to": ["trackio"], "options": {"epsilon": 0.1, "top_p": 0.9}}},
        {"strategy": {"options": {"quoted": 'a "b" \\ c\n', "deep": {"x": [1, 2.5, True]}}}},
    ],
)
def test_resolved_settings_come_back_from_toml(values):
    config = from_mapping(values)
    assert config == from_mapping(tomllib.loads(to_toml(config)))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8),
        st.one_of(
            st.booleans(),
            st.integers(-(2**60), 2**60),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
            st.lists(st.integers(-9, 9), max_size=3),
        ),
        max_size=4,
    )
)
def test_any_options_come_back_from_toml(options):
    config = from_mapping({"strategy": {"options": options}})
    assert options == from_mapping(tomllib.loads(to_toml(config))).strategy.options


def test_data_paths_are_saved_absolute(tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    monkeypatch.chdir(tmp_path)
    config = from_mapping({"model": {"path": "m"}, "task": {"type": "data", "path": "mine.jsonl"}})
    assert tmp_path / "mine.jsonl" == config.task.path


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainer": {"stepz": 3}}, "trainer.stepz is no setting; did you mean 'steps'?"),
        ({"trainr": {}}, "trainr is no setting; did you mean 'trainer'?"),
        ({"model": {"zzz": 1}}, "model.zzz is no setting; legal are path, gguf_file, dtype"),
        ({"trainer": {"steps": 0}}, "trainer.steps should be greater than or equal to 1, got 0"),
        (
            {"trainer": {"learning_rate": float("nan")}},
            "trainer.learning_rate should be a finite number, got nan",
        ),
        ({"trainer": 3}, "trainer should be a valid dictionary"),
        (
            {"task": {"type": "maths"}},
            "task.type must be one of 'rules', 'reasoning_gym', 'data', got 'maths'",
        ),
        ({"task": {"type": "data"}}, "task.path is missing: JSONL"),
        ({"task": {"type": "data", "path": "/none.jsonl"}}, "task.path /none.jsonl does not exist"),
        ({"task": {"regim": "hard"}}, "task.regim is no setting; did you mean 'regime'?"),
        ({"strategy": {"name": "vipp"}}, "strategy.name must be one of uniform, vip"),
        ({"strategy": {"name": "vipp"}}, "got 'vipp'; did you mean 'vip'?"),
        ({"baselines": ["unifrom"]}, "did you mean 'uniform'?"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seeds must be different and >= 0, got [1, 1]"),
        (
            {"trainer": {"micro_batch": 3}},
            "trainer.micro_batch must divide prompts_per_step x group_size = 128, got 3",
        ),
        ({"task": {"type": "reasoning_gym", "name": "countdown"}}, "give --model the folder"),
        (
            {"trainer": {"options": {"max_steps": 2, "top_p": 0.9}}},
            "trainer.options must be further fields, but max_steps is decided by trainer.steps: leave",
        ),
        (
            {"trainer": {"options": {"seed": 1, "output_dir": "x"}}},
            "decided by seeds; output_dir is decided by",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(values, message):
    with pytest.raises(ArgumentError) as caught:
        from_mapping(values)
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_dynamo_brings_its_token_factor_under_both_algorithms(algorithm):
    config = from_mapping({"trainer": {"algorithm": algorithm}, "baselines": ["dynamo"]})
    assert config.build_strategy("dynamo").modulation is not None


def test_every_mistake_is_named_at_once():
    with pytest.raises(ArgumentError) as caught:
        from_mapping({"trainer": {"steps": 0, "betta": 1.0}, "seeds": "many"})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "trainer.steps",
        "trainer.betta",
        "seeds",
    ]


def test_checks_between_settings_wait_until_all_are_there():
    partial = from_mapping({"task": {"type": "reasoning_gym", "name": "countdown"}}, partial=True)
    assert partial.task.type == "reasoning_gym"


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        from_mapping({}).trainer.steps = 3


def test_toml_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(ArgumentError, match=r"a\.toml cannot be read"):
        read_toml(path)
    path.write_text("steps = = 3")
    with pytest.raises(ArgumentError, match=r"a\.toml is not TOML: .*line 1"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ArgumentError, match=r"a\.toml cannot be read"):
        read_toml(path)


def test_words_become_typed_options():
    words = ["lower=4", "threshold=0.3", "close=fixed_spend", "schedule=[2, 4]", "keep=true", "note=a=b"]
    assert parse_options(words) == {
        "lower": 4,
        "threshold": 0.3,
        "close": "fixed_spend",
        "schedule": [2, 4],
        "keep": True,
        "note": "a=b",
    }
    with pytest.raises(ArgumentError, match="key=value, got 'lower'"):
        parse_options(["lower"])
    with pytest.raises(ArgumentError, match="option 'lower' is given twice, the second time as 'lower=8'"):
        parse_options(["lower=4", "upper=9", "lower=8"])


def test_the_strategy_is_built_from_its_options():
    config = from_mapping(
        {
            "strategy": {
                "name": "vip",
                "options": {"lower": 3, "upper": 8},
                "belief": "counts",
                "belief_options": {"discount": 0.5},
            }
        }
    )
    strategy = config.build_strategy("vip")
    assert isinstance(strategy.belief, Counts)
    assert (
        strategy.name,
        strategy.estimator,
        strategy.allocate.lower,
        strategy.allocate.upper,
    ) == ("vip", "rloo", 3, 8)
    assert config.build_strategy("uniform").name == "uniform"


def test_lists_reach_a_strategy_as_tuples():
    config = from_mapping({"strategy": {"name": "sara", "options": {"schedule": [2, 4]}}})
    assert config.build_strategy("sara").verdict.looks(4) == (2, 4)


@pytest.mark.parametrize(
    ("trainer", "lower"),
    [
        ({"group_size": 4}, 2),
        ({"group_size": 8}, 4),
        ({"group_size": 4, "algorithm": "grpo"}, 3),
        ({"group_size": 4, "algorithm": "reinforce++"}, 2),
        ({"group_size": 2}, 2),
    ],
)
def test_small_groups_leave_vip_something_to_allocate(trainer, lower):
    config = from_mapping({"strategy": {"name": "vip"}, "trainer": trainer})
    assert lower == config.build_strategy("vip").allocate.lower


@pytest.mark.parametrize(
    ("trainer", "estimator"),
    [
        ({}, "rloo"),
        ({"algorithm": "grpo"}, "grpo"),
        ({"algorithm": "grpo", "loss_type": "dr_grpo"}, "dr_grpo"),
        ({"algorithm": "grpo", "options": {"scale_rewards": "none"}}, "dr_grpo"),
        ({"algorithm": "reinforce++", "loss_type": "dr_grpo"}, "reinforce++"),
    ],
)
def test_the_estimator_follows_the_trainer(trainer, estimator):
    assert estimator == from_mapping({"trainer": trainer}).estimator


@pytest.mark.parametrize("name", ["sara", "vip", "neyman.presets.uniform:build"])
def test_every_arm_trains_under_reinforce_plus_plus_where_the_algorithm_says_so(name):
    trainer = {"algorithm": "reinforce++"}
    config = from_mapping({"strategy": {"name": name}, "trainer": trainer, "baselines": ["reinforce-ada"]})
    assert {"reinforce++"} == {config.build_strategy(arm).estimator for arm in (name, "reinforce-ada")}
    config = from_mapping(
        {"strategy": {"name": "sara", "options": {"estimator": "grpo"}}, "trainer": trainer}
    )
    assert config.build_strategy("sara").estimator == "reinforce++"


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_a_strategy_that_names_reinforce_plus_plus_beside_another_algorithm_is_refused(algorithm):
    strategy = {"name": "sara", "options": {"estimator": "reinforce++"}}
    config = from_mapping({"strategy": strategy, "trainer": {"algorithm": algorithm}})
    with pytest.raises(ArgumentError, match=r"set --trainer.algorithm reinforce\+\+ and leave estimator out"):
        config.build_strategy("sara")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"options": {"lowr": 4}}, "has no option lowr"),
        ({"belief": "beta"}, "strategy.belief must be one of"),
        ({"belief": "neyman.beliefs:Nope"}, "strategy.belief 'neyman.beliefs:Nope' cannot be imported"),
        ({"belief": "counts", "belief_options": {"x": 1}}, "strategy.belief_options"),
        ({"belief_options": {"x": 1}}, "need a strategy.belief by name"),
        ({"name": "math:sqrt"}, "sqrt"),
    ],
)
def test_a_strategy_that_cannot_be_built_says_why(strategy, message):
    config = from_mapping({"strategy": strategy})
    with pytest.raises((ArgumentError, TypeError), match=message):
        config.build_strategy(config.strategy.name)


def test_a_strategy_of_ones_own_is_imported():
    config = from_mapping({"strategy": {"name": "neyman.strategy:Strategy", "options": {"name": "mine"}}})
    assert config.build_strategy("neyman.strategy:Strategy").name == "mine"


def test_the_rules_task_brings_its_own_features():
    config = from_mapping({"task": {"train_size": 5}})
    task = config.task.build()
    learns, counts = neyman.preset("vip"), neyman.preset("uniform")
    assert config.build_features(task, learns).shape == (5, 26)
    assert config.build_features(task, counts) is None
    none = from_mapping({"strategy": {"features": "none"}})
    assert none.build_features(task, learns) is None
    named = from_mapping({"strategy": {"features": "some/model"}, "baselines": ["uniform"]})
    assert named.build_features(task, learns) == "some/model"
    assert named.build_features(task, counts) is None, "a baseline was not asked for with features"
    asked = from_mapping({"strategy": {"features": "some/model"}, "baselines": []})
    assert asked.build_features(task, counts) == "some/model", "the adapter says that they are of no use"


def test_data_becomes_a_task_with_its_verifier(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"q": "{i}+0=", "a": {i}}}\n' for i in range(40)))
    config = from_mapping(
        {"model": {"path": "m"}, "task": {"type": "data", "path": str(path), "prompt": "q", "answer": "a"}}
    )
    task = config.task.build()
    assert len(task.train) + len(task.test) == 40
    assert config.task.build_verifier().verify(["3", "4"], ["3", "3"], []) == [True, False]


def test_the_package_needs_no_command_line_extra():
    assert issubclass(MissingExtraError, ImportError)
    assert not hasattr(neyman, "config") or "config" not in neyman.__all__


def test_a_file_too_small_to_hold_anything_out_is_refused(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f'{{"prompt": "{i} + 1", "answer": "{i + 1}"}}\n' for i in range(3)))
    task = {"type": "data", "path": str(path), "test_share": 0.01}
    config = from_mapping({"model": {"path": "some/model"}, "task": task})
    with pytest.raises(ArgumentError, match=r"holds none of the 3 problems .* out"):
        config.task.build()


@pytest.mark.parametrize("depth", [17, 500, 3000])
def test_settings_nested_too_deeply_are_refused_by_name(depth, tmp_path):
    inner = 1
    for _ in range(depth):
        inner = {"a": [inner]}
    with pytest.raises(ArgumentError, match=r"strategy is nested deeper than 16 levels"):
        from_mapping({"strategy": {"options": inner}})
    with pytest.raises(ArgumentError, match="seeds is nested deeper"):
        from_mapping({"seeds": inner})
    path = tmp_path / "deep.toml"
    path.write_text("seeds = " + "[" * depth * 3 + "]" * depth * 3)
    with pytest.raises(ArgumentError, match=r"nested deeper|is not TOML"):
        from_mapping(read_toml(path))


def test_an_option_nested_too_deeply_to_be_toml_is_text():
    assert parse_options(["a=" + "[" * 3000]) == {"a": "[" * 3000}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "is None: leave it out"),
        ([1, None], "is None"),
        (float("nan"), "finite numbers"),
        ([float("inf")], "finite numbers"),
        (10**30, "64 bits"),
        ("\ud800", "can be written"),
        ({"\ud800": 1}, "can be written"),
        (1j, "has a complex"),
        (b"a", "has a bytes"),
    ],
)
def test_options_that_no_file_can_hold_are_refused_by_name(value, why):
    with pytest.raises(ArgumentError, match=f"strategy.options.*lower.*{why}|strategy.options.*{why}.*lower"):
        from_mapping({"strategy": {"options": {"lower": value}}})
    with pytest.raises(ArgumentError, match=r"trainer.options"):
        from_mapping({"trainer": {"options": {"x": [value]}}})


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "0b" + "1" * 64])
def test_integers_beyond_64_bits_are_refused_by_name(tmp_path, number):
    path = tmp_path / "run.toml"
    for text in (
        f"[trainer]\nsteps = {number}\n",
        f"seeds = [{number}]\n",
        f"[strategy.options]\nx = [{number}]\n",
    ):
        path.write_text(text)
        with pytest.raises(
            ArgumentError, match=r"run\.toml is not TOML: Exceeds the limit|must hold numbers of 64 bits"
        ):
            from_mapping(read_toml(path))
    with pytest.raises(
        ArgumentError, match=r"lower=.*cannot be read|strategy.options.lower must hold numbers of 64 bits"
    ):
        from_mapping({"strategy": {"options": parse_options([f"lower={number}"])}})


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"trainer": {"steps": True}}, "trainer.steps"),
        ({"trainer": {"learning_rate": True}}, "trainer.learning_rate"),
        ({"trainer": {"max_rollouts": True}}, "trainer.max_rollouts"),
        ({"task": {"type": "rules", "seed": False}}, "task.seed"),
        ({"seeds": [True]}, "seeds"),
    ],
)
def test_true_and_false_are_no_numbers(values, name):
    with pytest.raises(ArgumentError, match=f"^{name} must be a number, got"):
        from_mapping(values)


def test_a_flag_stays_one():
    task = {"type": "reasoning_gym", "name": "countdown", "chat": True}
    values = {"model": {"path": "x"}, "task": task, "trainer": {"options": {"use_vllm": True}}}
    config = from_mapping(values)
    assert config.task.chat is True
    assert config.trainer.options == {"use_vllm": True}
