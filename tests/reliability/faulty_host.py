"""A host in which one kind of fault happens at a given rate, and which keeps its own account of what it did.

Run as a script it drives every strategy below under every fault and rate, compares the account of each run with the
host's own, and prints how many faults there were. It exits with 1 where an account differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import neyman
from neyman import Batch, Budget, Controller, Outcome, Strategy
from neyman.beliefs import Counts
from neyman.errors import ContractError
from neyman.randomness import PromptId
from neyman.step.ledger import Fate
from neyman.testing import Host

RATES = (0.01, 0.1, 0.5, 1.0)
STEPS = 5
BUDGET = 48
_CHECKED = 5  # refusals after which the whole state is compared: the first
POOL = range(60)
_CALLS = 2000  # of ask in one step: more would be a step that does not end

# What a reward function does to a result, seen by a host that reports it.
MISSING: dict[str, Callable[[Outcome], Outcome]] = {
    "raises": lambda o: _without(o, status="failed", error="ValueError: the reward function raised"),
    "hangs": lambda o: _without(o, status="timeout", error="no answer within 5 s"),
    "None": lambda o: _without(o, error="the reward is None"),
    "NaN": lambda o: replace(_without(o, error="the reward is NaN"), reward=float("nan")),
}
# What a careless host passes on: refused as a whole, and then told as failed with the refusal as its cause.
REFUSED: dict[str, Callable[[Outcome], Outcome]] = {
    "infinite": lambda o: replace(o, reward=float("inf")),
    "text": lambda o: replace(o, reward="right"),  # type: ignore[arg-type]
    "a list": lambda o: replace(o, reward=[1.0, 0.0]),  # type: ignore[arg-type]
    "beyond floats": lambda o: replace(o, reward=10**400),
    "not binary": lambda o: replace(o, reward=0.3, success=None),
    "success of text": lambda o: replace(o, success="yes"),  # type: ignore[arg-type]
    "another prompt": lambda o: replace(o, prompt_id=f"not {o.prompt_id}"),
    "another rollout": lambda o: replace(o, rollout_id=o.rollout_id + 10**6),
    "no id": lambda o: replace(o, rollout_id=[o.rollout_id]),  # type: ignore[arg-type]
    "no outcome": lambda o: {"rollout_id": o.rollout_id},  # type: ignore[arg-type, return-value]
}
# What happens on the way: results that come twice, in the next step, only when asked after, or never.
DELIVERY = ("twice", "twice, otherwise", "lost", "lost for good", "late", "dies")
FAULTS = (*MISSING, *REFUSED, *DELIVERY)
# How the ledger names what the host's account names; results that came are of any of the latter.
_GONE = {"failed": Fate.FAILED, "timeout": Fate.TIMEOUT, "aborted": Fate.ABORTED, "late": Fate.LATE}
_VALID = (Fate.TRAINED, Fate.UNIFORM, Fate.ABANDONED, Fate.SURPLUS, Fate.DROPPED, Fate.EXPIRED)


def _without(outcome: Outcome, **details: str) -> Outcome:
    return replace(outcome, reward=None, success=None, **details)  # type: ignore[arg-type]


def exact_counts() -> Counts:
    """Return a belief whose evidence is the number of results that it was told of."""
    return Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)


#: Every way of closing a step: fixed spend in one round and in several, fixed train, carry-over, replay, streaming.
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "uniform": lambda: neyman.preset("uniform"),
    "vip, probe": lambda: neyman.preset("vip", lower=2, upper=48, probe=2, belief=Counts()),
    "neyman": lambda: neyman.preset("neyman", upper=48, belief=Counts()),
    "sara": lambda: neyman.preset("sara", group_size=4),
    "sara, carry": lambda: neyman.preset("sara", group_size=4, max_age=2, over_provision=3.0),
    "sara, fixed spend": lambda: neyman.preset("sara", group_size=8, close="fixed_spend"),
    "dynamic-sampling": lambda: neyman.preset("dynamic-sampling", group_size=4, max_age=1),
    "reinforce-ada": lambda: neyman.preset("reinforce-ada", step=3, most=8, rows=4),
    "ar3po": lambda: neyman.preset("ar3po", stage=2, stages=3),
    "uniform, drop": lambda: neyman.preset("uniform", incomplete="drop", max_tries=3),
}


def controller_of(name: str, seed: int) -> Controller:
    """Return a controller with a belief that only counts."""
    strategy = STRATEGIES[name]().with_options(belief=exact_counts())
    rows = 16 if strategy.close == "fixed_train" else None
    return Controller(
        strategy, Budget(rollouts=BUDGET), train_rows=rows, pool=list(POOL), retries=0.25, seed=seed
    )


@dataclass
class FaultyHost:
    """Generates and verifies, with one kind of fault.

    Args:
        fault: one of `FAULTS`.
        rate: share of rollouts that it hits.
        seed: of the world, the faults and the order in which results come.
        injected: faults so far.
        account: what became of every rollout, by the host's own count: "valid", "failed", "timeout", "aborted",
            "late" or "out".
        wins: successes among the valid ones, by prompt.
        trials: valid results, by prompt.
    """

    fault: str
    rate: float
    seed: int = 0
    injected: int = 0
    account: dict[int, str] = field(default_factory=dict)
    wins: Counter[PromptId] = field(default_factory=Counter)
    trials: Counter[PromptId] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._world = Host(seed=self.seed)
        self._rng = np.random.default_rng(self.seed)
        self._kept: list[Outcome] = []  # results that do not come yet
        self.calls = 0
        self.watch: Callable[[Controller], None] = lambda controller: None

    def step(self, controller: Controller, candidates: Sequence[PromptId]) -> Batch:
        """Run one step; ``watch`` is called after everything that is told."""
        controller.begin(candidates)
        self._tell_late(controller)
        self.calls = 0
        while not controller.is_done:
            self.calls += 1
            assert self.calls < _CALLS, "the step does not end"
            requests = controller.ask(capacity=int(self._rng.integers(1, 24)))
            asked = [outcome for request in requests for outcome in self._world.outcomes(request)]
            for outcome in asked:
                assert self.account.setdefault(outcome.rollout_id, "out") == "out", "an id is given once"
            self._rng.shuffle(asked)  # type: ignore[arg-type]
            if asked:
                self._deliver(controller, asked)
            elif not controller.is_done and not self._notice(controller):
                break
            self.watch(controller)
        return controller.finish()

    def _deliver(self, controller: Controller, outcomes: list[Outcome]) -> None:
        for place, outcome in enumerate(outcomes):
            if self._rng.random() >= self.rate:
                self._tell(controller, outcome)
                continue
            self.injected += 1
            if self.fault == "dies":
                for lost in outcomes[place:]:
                    self._tell(controller, _without(lost, status="aborted", error="the generator died"))
                return
            self._misdeliver(controller, outcome)

    def _misdeliver(self, controller: Controller, outcome: Outcome) -> None:
        if self.fault in MISSING:
            self._tell(controller, MISSING[self.fault](outcome))
        elif self.fault in REFUSED:
            self._tell(
                controller, _without(outcome, status="failed", error=self._refusal(controller, outcome))
            )
        elif self.fault.startswith("twice"):
            self._tell(controller, outcome)
            turned = 1.0 - float(outcome.reward or 0.0)
            again = replace(outcome, reward=turned) if self.fault == "twice, otherwise" else outcome
            controller.tell([again, again])
        else:
            self._kept.append(outcome)

    def _refusal(self, controller: Controller, outcome: Outcome) -> str:
        """Tell what must be refused, and return the refusal; nothing may have changed."""
        checked = self.injected <= _CHECKED
        before = controller.state_dict() if checked else None
        try:
            controller.tell([REFUSED[self.fault](outcome)])
        except ContractError as error:
            assert not checked or controller.state_dict() == before, "a refused call was taken in"
            return str(error)
        raise AssertionError(f"{self.fault} was taken in")

    def _notice(self, controller: Controller) -> bool:
        """Report the rows that did not come, where the host finds out at all; else the step ends early."""
        if self.fault != "lost" or not self._kept:
            return False
        missing, self._kept = self._kept, []
        for outcome in missing:
            self._tell(
                controller, _without(outcome, status="failed", error="the generator returned fewer rows")
            )
        return True

    def _tell_late(self, controller: Controller) -> None:
        """Tell, twice, what came after its step had closed."""
        if self.fault == "late":
            controller.tell(self._kept + self._kept)
            self.account |= dict.fromkeys((outcome.rollout_id for outcome in self._kept), "late")
        self._kept = []

    def _tell(self, controller: Controller, outcome: Outcome) -> None:
        controller.tell([outcome])
        is_missing = outcome.reward is None or outcome.reward != outcome.reward
        status = str(outcome.status) if outcome.status != "ok" else "failed"
        self.account[outcome.rollout_id] = status if is_missing else "valid"
        if not is_missing:
            self.trials[outcome.prompt_id] += 1
            self.wins[outcome.prompt_id] += int(outcome.reward or 0.0)


def drive(fault: str, rate: float, name: str, seed: int = 0) -> tuple[FaultyHost, Controller, list[Batch]]:
    """Run a strategy for a few steps under a fault."""
    host, controller = FaultyHost(fault, rate, seed=seed), controller_of(name, seed)
    batches = [host.step(controller, [(8 * step + i) % len(POOL) for i in range(8)]) for step in range(STEPS)]
    return host, controller, batches


def differences(host: FaultyHost, controller: Controller) -> list[str]:
    """Return where the account and the belief, between two steps, say something else than the host; nothing if none."""
    ledger, told = controller.ledger, Counter(host.account.values())
    held = sum(len(group.valid()) for group in controller._engine.state.carried)
    pairs = {
        "requested": (ledger.requested, len(host.account)),
        "valid": (sum(ledger.rollouts(fate) for fate in _VALID) + held, told["valid"]),
        # What is out when its step closes is late or never comes: in flight until then.
        "in flight": (len(controller._late), told["out"]),
        **{name: (ledger.rollouts(fate), told[name]) for name, fate in _GONE.items()},
    }
    found = [f"{what}: {ours}, and the host says {its}" for what, (ours, its) in pairs.items() if ours != its]
    # All prompts of the pool, so that what is learnt of one without a valid result shows, too.
    wins, trials = controller.strategy.belief.evidence(POOL)
    for prompt_id, *learnt in zip(POOL, wins.tolist(), trials.tolist(), strict=True):
        its = [float(host.wins[prompt_id]), float(host.trials[prompt_id])]
        if learnt != its:
            found.append(f"the belief holds {learnt} of prompt {prompt_id!r}, and the host says {its}")
    return found


def main() -> int:
    """Print how many faults were injected, how many rollouts were asked for, and how many runs balanced.

    Returns:
        0 if the account of every run says what its host says, else 1.
    """
    total: Counter[str] = Counter()
    for fault in FAULTS:
        here: Counter[str] = Counter()
        for rate in RATES:
            for name in STRATEGIES:
                host, controller, _ = drive(fault, rate, name)
                found = differences(host, controller)
                here.update(runs=1, faults=host.injected, asked=len(host.account), balanced=int(not found))
                for difference in found:
                    print(f"{fault} at {rate:.0%}, {name}: {difference}", file=sys.stderr)
        print(f"{fault:20} {here['faults']:8,} faults in {here['asked']:8,} rollouts")
        total.update(here)
    runs, balanced = total["runs"], total["balanced"]
    print(f"{runs:,} runs of {STEPS} steps: {total['faults']:,} faults in {total['asked']:,} rollouts")
    print(f"{balanced:,} of {runs:,} runs balanced: the account and the belief say what the host says")
    return int(balanced != runs)


if __name__ == "__main__":
    sys.exit(main())
