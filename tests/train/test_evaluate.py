"""Held-out accuracy is measured on the prompts that training sees, and never invented."""

from types import SimpleNamespace

import pytest

pytest.importorskip("trl")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from neyman.tasks import Task, problem
from neyman.train._evaluate import evaluation

WORDS = {"<s>": 0, "<pad>": 1, "one": 2, "two": 3}


@pytest.fixture
def tokenizer():
    core = Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", pad_token="<pad>")
    made.chat_template = "{{ bos_token }}{% for m in messages %} {{ m.content }}{% endfor %}"
    return made


class Policy:
    """Answers "two", and keeps what it was asked."""

    training, device = False, torch.device("cpu")

    def __init__(self):
        self.asked = []

    def eval(self):
        pass

    def train(self, mode):
        pass

    def generate(self, input_ids, attention_mask, **options):
        self.asked += [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        return torch.cat([input_ids, torch.full((len(input_ids), 1), WORDS["two"])], dim=1)


class Judge:
    def __init__(self, *verdicts):
        self.verdicts = list(verdicts)

    def verify(self, completions, answers, problems):
        return self.verdicts


def measured(tokenizer, policy, judge, *prompts):
    task = Task(name="t", train=[problem("x", "y")], test=[problem(prompt, "two") for prompt in prompts])
    trainer = SimpleNamespace(temperature=1.0, max_completion_length=1)
    config = SimpleNamespace(is_exact=False, trainer=trainer)
    return evaluation(config, task, judge, tokenizer, seed=0)(policy, 1)


def test_plain_prompts_get_the_special_tokens_that_training_gives_them(tokenizer):
    policy = Policy()
    result = measured(tokenizer, policy, Judge(True, False), "one", "one two")
    assert policy.asked == tokenizer(text=["one", "one two"])["input_ids"] == [[0, 2], [0, 2, 3]]
    assert result == {"accuracy": 0.5, "problems": 2, "exact": False}


def test_chat_prompts_have_those_of_the_template_alone(tokenizer):
    policy = Policy()
    measured(tokenizer, policy, Judge(True), [{"role": "user", "content": "one"}])
    assert policy.asked == [[0, 2]]


def test_answers_that_could_not_be_judged_are_no_accuracy(tokenizer, caplog):
    assert measured(tokenizer, Policy(), Judge(None, True), "one", "two")["problems"] == 1
    assert measured(tokenizer, Policy(), Judge(None, None), "one", "two") is None
    assert "could be judged" in caplog.text
