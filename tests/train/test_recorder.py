"""What a run's lines hold, whatever the number of generations in an optimiser step."""

import json
from types import SimpleNamespace

import pytest

import neyman

pytest.importorskip("trl")

from neyman.train._folder import Progress, RunFolder
from neyman.train._recorder import Recorder

CONTROL = SimpleNamespace(should_training_stop=False, should_save=False)


class Bench:
    """A trainer that is a controller and a count of steps."""

    def __init__(self, path, step=0):
        self.controller = neyman.Controller(neyman.preset("uniform"), neyman.Budget(rollouts=8))
        self.state = SimpleNamespace(global_step=step)
        self.folder = RunFolder(path)
        self.recorder = Recorder(
            self.folder,
            self,
            lambda model, step: {"accuracy": 0.5, "problems": 1, "exact": True},
            eval_every=100,
            steps=100,
            rollouts=1000,
            progress=Progress(step=step),
        )

    def generate(self):
        self.controller.begin(["a", "b"])
        self.controller.tell(
            neyman.Outcome(rollout_id=i, prompt_id=r.prompt_id, reward=i % 2)
            for r in self.controller.ask()
            for i in r.rollout_ids
        )
        self.controller.finish()

    def train(self):
        self.recorder.on_train_begin(None, self.state, CONTROL, model=None)

    def substep(self):
        self.recorder.on_substep_end(None, self.state, CONTROL)

    def step(self):
        self.state.global_step += 1
        self.recorder.on_step_end(None, self.state, CONTROL)
        self.recorder.on_log(None, self.state, CONTROL, {"loss": 0.0}, model=None)

    def drawn(self):
        """Return the rollouts of the groups on each step's line, and what was spent until then."""
        lines = [json.loads(line) for line in self.folder.metrics.read_text().splitlines()]
        steps = [line for line in lines if line["event"] == "step"]
        return [(sum(group["rollouts"] for group in line["groups"]), line["rollouts"]) for line in steps]


def test_a_generation_that_trains_twice_has_its_groups_on_one_line(tmp_path):
    bench = Bench(tmp_path)
    bench.train()
    for number in range(4):
        if number % 2 == 0:
            bench.generate()
        bench.step()
    assert bench.drawn() == [(8, 8), (0, 8), (8, 16), (0, 16)]


def test_generations_that_share_a_step_all_have_their_groups_on_its_line(tmp_path):
    bench = Bench(tmp_path)
    bench.train()
    for _ in range(2):
        bench.generate()
        bench.substep()
        bench.substep()
        bench.generate()
        bench.step()
    assert bench.drawn() == [(16, 16), (16, 32)]


def test_a_run_resumed_within_a_generation_leaves_its_groups_to_the_line_that_has_them(tmp_path):
    bench = Bench(tmp_path, step=1)
    bench.generate()
    bench.train()
    bench.step()
    bench.generate()
    bench.step()
    assert bench.drawn() == [(0, 8), (8, 16)]
