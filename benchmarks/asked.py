"""Flags of the `neyman` commands that the benchmarks run, by file name in results/, without data and folders."""

from __future__ import annotations

# The demo again under other conditions: file name -> (heading, command of neyman).
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "demo_other_seeds": ("The demo on five other seeds", ["train", "--seeds", "10", "11", "12", "13", "14"]),
    "demo_twice_as_long": (
        "The demo at twice the budget, with `vip`",
        ["train", "--trainer.steps", "96", "--baselines", "uniform", "vip"],
    ),
    "hard": (
        "The hard regime, 16 prompts x 8 rollouts a step",
        ["train", "--task.regime", "hard", "--trainer.steps", "80"],
    ),
    "hard_small_groups": (
        "The hard regime, 32 prompts x 4 rollouts a step",
        ["train", "--task.regime", "hard", "--trainer.steps", "80", "--trainer.prompts-per-step", "32",
         "--trainer.group-size", "4"],
    ),
}  # fmt: skip

# The same commands on another kind of processor, whose rounding warm-starts another policy: copied from there by hand.
ELSEWHERE: dict[str, tuple[str, list[str]]] = {
    "demo_elsewhere": ("The demo on another kind of processor (AMD EPYC)", ["demo"]),
    "demo_elsewhere_other_seeds": (
        "The demo on five other seeds, on that processor",
        ["train", "--seeds", "10", "11", "12", "13", "14"],
    ),
}

# Flags of the lab and of replay, without output folders.
LAB = ["--regimes", "hard,ushape,easy", "--strategies", "core", "--seeds", "5",
       "--rates", "3e-4,6e-4,1.2e-3,2.4e-3,4.8e-3", "--rollouts", "16000"]  # fmt: skip
ALL = ["--regimes", "hard,ushape", "--strategies", "all", "--seeds", "5", "--rates", "6e-4,1.2e-3,2.4e-3",
       "--rollouts", "16000"]  # fmt: skip
SIZES = ["--strategies", "uniform,dynamic-sampling,neyman,oracle", "--seeds", "5", "--group-sizes", "2,4,8",
         "--rollouts", "16000"]  # fmt: skip
# At two rates that surround each regime's best.
LAB_SIZES = {
    "lab_sizes_hard": ["--regimes", "hard", *SIZES, "--rates", "1.2e-3,2.4e-3"],
    "lab_sizes": ["--regimes", "ushape,easy", *SIZES, "--rates", "3e-4,6e-4"],
}
ASIDE = ["--regimes", "hard,ushape", "--strategies", "uniform,neyman,oracle", "--seeds", "5", "--rates", "6e-4,1.2e-3",
         "--rollouts", "16000"]  # fmt: skip
# The lab under other conditions: file name -> (the difference, flags).
CONDITIONS: dict[str, tuple[str, list[str]]] = {
    "lab_metadata": ("beliefs get family and first digit", ["--features", "metadata"]),
    "lab_hidden": ("beliefs get the first policy's state on the prompt", ["--features", "hidden"]),
    "lab_many_epochs": ("256 prompts, each visited many times", ["--pool", "256"]),
    "lab_noise": ("a tenth of all verdicts flipped", ["--reward-noise", "0.1"]),
    "lab_grpo": ("advantages are GRPO's", ["--estimator", "grpo"]),
    "lab_reinforce": ("advantages are REINFORCE++'s", ["--estimator", "reinforce++"]),
    "lab_lengths": ("wrong answers cost 4 times the tokens", ["--failure-tokens", "16"]),
    "lab_drift": ("weights also move at random", ["--drift", "0.3"]),
}
LABS = {
    "lab": LAB,
    "lab_all": ALL,
    **LAB_SIZES,
    **{name: [*ASIDE, *flags] for name, (_, flags) in CONDITIONS.items()},
}
REPLAY = ["--seeds", "5", "--passes", "20"]
# Published rules, or other forms of them, where our defaults differ: without a floor, without fading, uncorrected.
PUBLISHED = ["--strategies", "sara:variant=published,dynamo:variant=published,vip:variant=published,dps:revisit=1000,"
             "mopps:fade=1,mopps:explore=mean,mopps:explore=mean:fade=1,greso:fade=1,curriculum:revisit=1000,"
             "reinforce-ada:until=balance", *REPLAY]  # fmt: skip
# The cost of a floor under exploration, for `neyman` and for others.
FRONTIER = ["--strategies", "neyman:revisit=1.5,neyman:revisit=5,neyman:revisit=8,neyman:revisit=16,"
            "curriculum:revisit=2.8,dps:revisit=2.8", *REPLAY]  # fmt: skip
REPLAYS = {"replay": REPLAY, "replay_published": PUBLISHED, "replay_frontier": FRONTIER}
