"""The command's words: help, short errors with the way out, and directories that are refused."""

import subprocess
import sys

import pytest

pytest.importorskip("tyro")
pytest.importorskip("rich")

from neyman import __version__, cli
from neyman.config import from_mapping, to_toml
from neyman.train import RunFolder


@pytest.fixture
def neyman(monkeypatch, capsys):
    """Run the command in this process without training; return its status and what it said."""
    started = []

    def train(config, out, *, jobs, console):
        started.append((config, out, jobs))
        run = RunFolder(out / "uniform-seed0")
        run.begin({})
        run.append({"event": "eval", "step": 0})
        return 0

    monkeypatch.setattr("neyman.train.train_here", train)

    def run(*words):
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        # Boxes break lines where the terminal ends.
        return left.value.code, " ".join((said.out + said.err).replace("│", " ").split())

    run.started = started
    return run


def test_help_names_the_commands_without_loading_what_trains():
    code = (
        "import sys, neyman.cli\n"
        "try: neyman.cli.main(['--help'])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(
        f"neyman {command}" in done.stdout for command in ("train", "report", "demo", "replay", "plan")
    )
    heavy = {"torch", "transformers", "trl", "datasets", "matplotlib", "pandas"}
    assert set() == heavy & set(done.stderr.split())


def test_every_setting_stands_in_the_help(neyman):
    status, said = neyman("train", "--help")
    assert status == 0
    for flag in (
        "--trainer.learning-rate",
        "--strategy.options",
        "--task.regime",
        "--seeds",
        "--out",
        "--resume",
    ):
        assert flag in said


def test_the_version_is_the_package_s(neyman):
    assert (0, f"neyman {__version__}") == neyman("--version")


def test_no_command_shows_the_usage_and_fails(neyman):
    status, said = neyman()
    assert status == 2
    assert said.startswith("usage: neyman COMMAND")


def test_flags_override_the_file_which_overrides_the_defaults(neyman, tmp_path):
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text("[trainer]\nsteps = 7\ngroup_size = 8\n[strategy]\nname = 'vip'\noptions = {lower = 3}\n")
    words = [
        "--trainer.steps",
        "9",
        "--strategy.options",
        "lower=2",
        "upper=16",
        "--seeds",
        "5",
        "--jobs",
        "3",
    ]
    status, said = neyman("train", file, "--out", out, *words)
    assert status == 0, said
    ((config, where, jobs),) = neyman.started
    assert (out, 3) == (where, jobs)
    assert (config.trainer.steps, config.trainer.group_size, config.trainer.prompts_per_step) == (9, 8, 16)
    assert (config.strategy.name, config.strategy.options) == ("vip", {"lower": 2, "upper": 16})
    assert config.seeds == (5,)
    assert to_toml(config) == (out / "config.toml").read_text()


def test_a_section_s_name_stands_for_its_choice(neyman, tmp_path):
    words = [
        "--model",
        "some/model",
        "--task",
        "reasoning_gym",
        "--task.name",
        "countdown",
        "--strategy",
        "sara",
    ]
    status, said = neyman("train", "--out", tmp_path / "out", *words)
    assert status == 0, said
    config = neyman.started[0][0]
    assert (
        config.model.path,
        config.task.type,
        config.task.name,
        config.strategy.name,
    ) == ("some/model", "reasoning_gym", "countdown", "sara")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "neyman: the command must be one of train, report, demo, "),
        (["train"], "Missing from neyman train: --out"),
        (["train", "none.toml", "--out", "o"], "neyman: the configuration none.toml cannot be read"),
        (
            ["train", "--out", "o", "--trainer.steps", "0"],
            "steps should be greater than or equal to 1, got 0",
        ),
        (["train", "--out", "o", "--trainer.stepz", "3"], "Perhaps you meant: --trainer.steps"),
        (["train", "--out", "o", "--strategy", "vipp"], "did you mean 'vip'?"),
        (
            ["train", "--out", "o", "--task", "math"],
            "neyman: task.type must be one of rules, reasoning_gym, data, got",
        ),
        (["train", "--out", "o", "--model", "m", "--task", "data"], "--task.path"),
        (["train", "--out", "o", "--strategy.options", "lower"], "written key=value, got 'lower'"),
        (["train", "--out", "o", "--jobs", "0"], "neyman: --jobs must be >= 1, got 0"),
        (["report", "none"], "neyman: path must be a directory that holds runs, got 'none'"),
    ],
)
def test_mistakes_are_short_and_start_nothing(neyman, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, said = neyman(*words)
    assert status == 2
    assert message in said
    assert "Traceback" not in said
    assert neyman.started == []
    assert list(tmp_path.iterdir()) == []


def data(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "{i}+0=", "answer": "{i}"}}\n' for i in rows))
    return ["--model", "some/model", "--task", "data", "--task.path", path]


@pytest.mark.parametrize(
    ("words", "rows", "message"),
    [
        (["--strategy", "vip", "--strategy.options", "lowr=3"], None,
         "--strategy.options of vip: preset 'vip' has no option lowr"),
        (["--strategy", "vip", "--strategy.options", "lower=1"], None,
         "--strategy.options of vip: lower must be >= 2, got 1"),
        (["--strategy", "vip", "--strategy.options", "belief=counts"], None,
         "--strategy.options of vip: belief must be a neyman."),
        (["--strategy", "math:sqrt"], None,
         "--strategy 'math:sqrt' does not take --strategy.options []: math.sqrt() takes exactly one"),
        (["--strategy", "vip", "--strategy.options", "lower=9"], None,
         "strategy 'vip' does not fit the trainer's step of 128 rows (--trainer.group-size=8 x 16 prompts): lower=9 "
         "rollouts for each of 16 prompts are 144; set --trainer.group-size to 9 or more, or lower to 8 or less"),
        (["--baselines", "sara", "--trainer.max-rollouts", "64"], None, "--trainer.max-rollouts must be at least"),
        (["--trainer.prompts-per-step", "2000"], None,
         "--trainer.prompts-per-step 2000 needs as many training prompts, but the task has 1024: no step"),
        (["--task.test-share", "0.4"], range(18), "--trainer.prompts-per-step 16 needs as many training prompts, but"),
        ([], [*range(30), 3], "pass --task.duplicates drop (keep the first) or"),
        (["--task.test-share", "0.001"], range(30), "--task.test-share 0.001 holds none of the 30 problems"),
        (["--task.prompt", "question"], range(30), "field 'question' is missing; the fields there are 'prompt', 'ans"),
    ],
)  # fmt: skip
def test_what_cannot_start_writes_nothing_and_names_the_flag(neyman, tmp_path, words, rows, message):
    out = tmp_path / "out"
    given = [] if rows is None else data(tmp_path, rows)
    status, said = neyman("train", "--out", out, *given, *words)
    assert status == 2
    assert message in said
    assert "Traceback" not in said
    assert not out.exists()
    assert neyman.started == []


@pytest.mark.parametrize("task", ["3", "[1]", '"rules"'])
def test_a_task_that_is_no_table_is_refused_beside_a_flag_for_its_type(neyman, tmp_path, task):
    path = tmp_path / "run.toml"
    path.write_text(f"task = {task}\n")
    status, said = neyman("train", path, "--task.type", "rules", "--out", tmp_path / "out")
    assert status == 2
    assert "neyman: task" in said
    assert not neyman.started


def test_a_training_that_never_began_may_be_started_again_with_other_settings(neyman, tmp_path):
    out = tmp_path / "out"
    (out / "policy").mkdir(parents=True)
    (out / "policy" / "weights").touch()
    (out / "vip-seed0").mkdir()
    (out / "vip-seed0" / "run.json").touch()
    (out / "prepare.log").touch()
    (out / "config.toml").write_text(to_toml(from_mapping({"seeds": [1]})))
    status, said = neyman("train", "--out", out, "--seeds", 2)
    assert status == 0, said
    assert neyman.started[0][0].seeds == (2,)
    left = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert left == {"config.toml", "uniform-seed0"}
    assert "seeds = [2]" in (out / "config.toml").read_text()


def test_resuming_what_never_began_with_the_same_settings_keeps_what_was_prepared(neyman, tmp_path):
    out = tmp_path / "out"
    (out / "policy").mkdir(parents=True)
    (out / "config.toml").write_text(to_toml(from_mapping({})))
    assert neyman("train", "--out", out, "--resume")[0] == 0
    assert (out / "policy").exists()


def test_two_trainings_in_one_directory_are_refused(neyman, tmp_path):
    from filelock import FileLock

    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".lock"):
        status, said = neyman("train", "--out", out)
    assert status == 2
    assert "another process is training in --out" in said
    assert neyman.started == []


@pytest.mark.parametrize("absent", ["tyro", "pydantic", "rich", "tomlkit"])
def test_without_its_extra_the_command_says_what_to_install(absent):
    code = f"import sys; sys.modules[{absent!r}] = None; from neyman.__main__ import main; main(['demo'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("neyman: ")
    assert f"needs {absent}, which is not installed: run pip install '.[" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_a_training_says_what_to_install(neyman, tmp_path, monkeypatch):
    import neyman.train._start as start

    monkeypatch.setattr(start, "find_spec", lambda name: None)
    status, said = neyman("train", "--out", tmp_path / "out")
    assert status == 2
    assert (
        "neyman train needs torch, which is not installed: run pip install '.[train,cli]' in a clone" in said
    )
    assert not (tmp_path / "out").exists()


def test_the_installed_command_is_this_one():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"neyman": "neyman.__main__:main"}
    done = subprocess.run(
        [sys.executable, "-m", "neyman", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"neyman {__version__}"


def test_debug_shows_where_an_error_came_from(neyman, tmp_path):
    with pytest.raises(Exception, match=r"none\.toml cannot be read"):
        cli.main(["train", str(tmp_path / "none.toml"), "--debug"])


def test_a_directory_with_a_training_is_refused_with_both_ways_out(neyman, tmp_path):
    out = tmp_path / "out"
    assert neyman("train", "--out", out)[0] == 0
    status, said = neyman("train", "--out", out)
    assert status == 2
    assert "already holds a training; go on with it by --resume, or give another --out" in said
    assert len(neyman.started) == 1


def test_a_directory_of_something_else_is_refused_even_for_resume(neyman, tmp_path):
    (tmp_path / "precious.txt").touch()
    status, said = neyman("train", "--out", tmp_path, "--resume")
    assert status == 2
    assert "is not empty and holds no training" in said
    (tmp_path / "file").touch()
    assert "must be a directory" in neyman("train", "--out", tmp_path / "file")[1]


def test_resume_goes_on_with_the_saved_settings(neyman, tmp_path):
    out = tmp_path / "out"
    assert neyman("train", "--out", out, "--trainer.steps", 9)[0] == 0
    assert neyman("train", "--out", out, "--resume", "--jobs", 1)[0] == 0
    assert neyman("train", f"--out={out}", "--resume")[0] == 0
    assert [config.trainer.steps for config, _, _ in neyman.started] == [9, 9, 9]


def test_resume_with_other_settings_names_what_differs(neyman, tmp_path):
    out, file = tmp_path / "out", tmp_path / "mine.toml"
    file.write_text("seeds = [1]")
    assert neyman("train", "--out", out)[0] == 0
    status, said = neyman("train", file, "--out", out, "--resume", "--trainer.steps", 9)
    assert status == 2
    steps = from_mapping({}).trainer.steps
    assert f"trainer.steps: {steps} there, 9 here" in said
    assert "seeds: (0, 1, 2" in said
    assert len(neyman.started) == 1


def test_resume_of_nothing_starts(neyman, tmp_path):
    assert neyman("train", "--out", tmp_path / "new", "--resume")[0] == 0
    assert len(neyman.started) == 1


def test_the_demo_is_the_default(neyman, tmp_path):
    assert neyman("demo", "--out", tmp_path / "demo")[0] == 0
    assert from_mapping({}) == neyman.started[0][0]
