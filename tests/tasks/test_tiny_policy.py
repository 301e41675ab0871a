import dataclasses

import numpy as np
import pytest

from neyman.errors import ArgumentError
from neyman.tasks import (
    ExactMatch,
    PolicyConfig,
    build_policy,
    exact_success_rates,
    load_policy,
    problem,
    reward_function,
    rules,
    rules_policy,
    rules_task,
    tiny_policy,
    to_dataset,
)
from neyman.tasks.tiny_policy import character_tokenizer, new_model, warm_start

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def half_taught(tmp_path_factory):
    """A policy taught for few steps: its rates are spread, and it also makes mistakes of every kind."""
    torch.set_num_threads(1)
    cache = tmp_path_factory.mktemp("policies")
    return rules_policy("ushape", cache=cache, steps=120, batch=128)


def short(**options):
    return PolicyConfig(**({"steps": 2, "batch": 4, "width": 16, "heads": 2, "feed_forward": 16} | options))


def weights(folder):
    return load_policy(folder)[0].state_dict()


def test_each_character_is_one_token_and_unknown_ones_are_an_error():
    tokenizer = character_tokenizer(rules.ALPHABET)
    text = "P0918=\n".strip()
    assert tokenizer(text)["input_ids"] == [rules.ALPHABET.index(c) for c in text]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == len(rules.ALPHABET) + 1
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == len(rules.ALPHABET)
    with pytest.raises(Exception, match="UNK"):
        tokenizer("z")


def test_white_space_is_a_character_like_any_other():
    tokenizer = character_tokenizer("ab \n")
    assert tokenizer.decode(tokenizer("a  b\n ")["input_ids"]) == "a  b\n "


def test_the_default_has_about_a_tenth_of_a_million_parameters_and_can_have_ten_times_that():
    size = {
        w: sum(p.numel() for p in new_model(PolicyConfig(width=w, feed_forward=2 * w)).parameters())
        for w in (64, 256)
    }
    assert 50_000 < size[64] < 150_000
    assert 900_000 < size[256] < 1_400_000


def test_building_twice_gives_the_same_weights_and_leaves_the_callers_rng_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = build_policy(short(), rules.demonstrate, name="x", cache=tmp_path / "a")
    assert torch.equal(expected, torch.rand(3))
    second = build_policy(short(), rules.demonstrate, name="x", cache=tmp_path / "b")
    other = build_policy(short(seed=1), rules.demonstrate, name="x", cache=tmp_path / "b")
    assert first.name == second.name != other.name
    a, b, c = weights(first), weights(second), weights(other)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


def test_a_built_policy_is_not_built_again(tmp_path):
    calls = []

    def teach(rng, size):
        calls.append(size)
        return rules.demonstrate(rng, size)

    folder = build_policy(short(), teach, name="x", cache=tmp_path)
    assert calls == [4, 4]
    assert build_policy(short(), teach, name="x", cache=tmp_path) == folder
    assert calls == [4, 4]
    assert build_policy(short(), teach, name="y", cache=tmp_path) != folder
    assert build_policy(short(steps=3), teach, name="x", cache=tmp_path) != folder


def test_the_cache_knows_the_code(tmp_path, monkeypatch):
    folder = build_policy(short(), rules.demonstrate, name="x", cache=tmp_path)
    monkeypatch.setattr(tiny_policy, "_source", lambda: "edited")
    assert build_policy(short(), rules.demonstrate, name="x", cache=tmp_path) != folder


def test_an_interrupted_build_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    from transformers import PreTrainedTokenizerFast

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedTokenizerFast, "save_pretrained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_policy(short(), rules.demonstrate, name="x", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert build_policy(short(), rules.demonstrate, name="x", cache=tmp_path).is_dir()


def test_the_cache_folder_follows_the_convention(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tiny_policy.cache_folder() == tmp_path / "neyman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tiny_policy.cache_folder() == tmp_path / ".cache" / "neyman"


def test_configurations_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="width must be a multiple"):
        PolicyConfig(width=60, heads=4)
    with pytest.raises(ArgumentError, match="alphabet"):
        PolicyConfig(alphabet="aa")
    with pytest.raises(ArgumentError, match=r"layers must be >= 1"):
        PolicyConfig(layers=0)
    with pytest.raises(ArgumentError, match=r"use the character 'A'"):
        warm_start(new_model(short(alphabet="01")), short(alphabet="01"), lambda rng, n: [("0", "A")] * n)


def test_warm_start_learns_completions_of_mixed_lengths():
    config = short(alphabet="ab=", steps=150, batch=32, width=32, learning_rate=1e-2)
    pairs = [("a=", "bb"), ("bb=", "a"), ("=", "abab")]
    model, seen = new_model(config), []
    warm_start(
        model,
        config,
        lambda rng, n: [pairs[i] for i in rng.integers(0, 3, n)],
        lambda s, loss: seen.append(s),
    )
    assert seen == list(range(1, 151))
    rates = exact_success_rates(model, character_tokenizer("ab="), [problem(p, a) for p, a in pairs])
    assert rates.dtype == np.float64
    assert rates.min() > 0.95
    assert not model.training


def test_exact_rates_do_not_depend_on_the_batch_and_keep_the_mode(half_taught):
    model, tokenizer = load_policy(half_taught)
    problems = [*rules_task("ushape", train_size=20, test_size=0).train, problem("A1=", "123456")]
    whole = exact_success_rates(model, tokenizer, problems)
    parts = exact_success_rates(model.train(), tokenizer, problems, batch_size=3)
    np.testing.assert_allclose(whole, parts, rtol=1e-5, atol=1e-9)
    assert model.training
    with pytest.raises(ArgumentError, match="text prompts"):
        exact_success_rates(model, tokenizer, [problem([{"role": "user", "content": "A"}], "1")])


def test_exact_rates_equal_a_token_by_token_product(half_taught):
    model, tokenizer = load_policy(half_taught)
    item = rules_task("ushape", train_size=1, test_size=0).train[0]
    ids = tokenizer(item.prompt)["input_ids"]
    expected = 1.0
    for token in [*tokenizer(item.answer)["input_ids"], tokenizer.eos_token_id]:
        with torch.no_grad():
            expected *= float(model(torch.tensor([ids])).logits[0, -1].softmax(-1)[token])
        ids = [*ids, token]
    assert exact_success_rates(model, tokenizer, [item])[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("longest", [rules.COMPLETION_TOKENS, rules.COMPLETION_TOKENS + 4])
def test_sampled_rollouts_succeed_at_the_exact_rate(half_taught, longest):
    model, tokenizer = load_policy(half_taught)
    task = rules_task("ushape", train_size=40, test_size=0)
    # Prompts of several lengths, so that left padding is at work.
    problems = [*task.train, problem("A12=", "1"), problem("=", "5")]
    rates = exact_success_rates(model, tokenizer, problems)
    draws = 200
    inputs = tokenizer([p.prompt for p in problems], return_tensors="pt", padding=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        out = model.generate(
            **inputs,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=longest,
            num_return_sequences=draws,
        )
    texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    answers = [p.answer for p in problems for _ in range(draws)]
    right = np.array(ExactMatch().verify(texts, answers, []), dtype=float).reshape(-1, draws).mean(axis=1)
    error = np.sqrt(rates * (1 - rates) / draws)
    # Four standard errors each, plus one draw where the rate is so small that the normal bound is not one.
    assert (np.abs(right - rates) <= 4 * error + 1.0 / draws).all()
    total = np.sqrt((error**2).mean() / len(rates))
    assert abs(right.mean() - rates.mean()) <= 4 * total
    assert (rates > 0.3).any()
    assert (rates < 0.1).any()


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "mean"), [("hard", 0.2), ("ushape", 0.5), ("easy", 0.75)])
def test_the_default_policys_success_rates_spread_as_the_regime_says(tmp_path, regime, mean):
    model, tokenizer = load_policy(rules_policy(regime, cache=tmp_path))
    task = rules_task(regime, test_size=400)
    for problems in (task.train, task.test):
        rates = exact_success_rates(model, tokenizer, problems)
        shown = np.array([p.metadata["demonstrated_rate"] for p in problems])
        assert abs(rates.mean() - mean) < 0.1
        assert np.corrcoef(rates, shown)[0, 1] > 0.4
        assert rates.std() > 0.2
        if regime != "easy":
            assert (rates < 0.1).mean() > 0.15
        assert ((rates > 0.1) & (rates < 0.9)).mean() > 0.2
        assert (rates > 0.9).mean() > 0.03


@pytest.mark.slow
def test_the_stock_grpo_trainer_trains_it(half_taught, tmp_path):
    trl = pytest.importorskip("trl")
    task = rules_task("ushape", train_size=64, test_size=0)
    model, tokenizer = load_policy(half_taught)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    args = trl.GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        per_device_train_batch_size=128,
        num_generations=4,
        max_completion_length=rules.COMPLETION_TOKENS,
        learning_rate=1e-3,
        beta=0.0,
        max_steps=2,
        logging_steps=1,
        disable_tqdm=True,
        gradient_checkpointing=False,
    )
    trainer = trl.GRPOTrainer(
        model=str(half_taught),
        reward_funcs=reward_function(ExactMatch()),
        args=args,
        train_dataset=to_dataset(task.train),
        processing_class=tokenizer,
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    assert all(0.0 < entry["rewards/exactmatch/mean"] < 1.0 for entry in logs)
    assert all(entry["grad_norm"] > 0.0 for entry in logs)
    after = trainer.model.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_configs_are_values():
    assert PolicyConfig() == PolicyConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        PolicyConfig().steps = 1
