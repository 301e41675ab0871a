"""Every error neyman raises on purpose.

The tree::

    NeymanError
    ├── ArgumentError(ValueError)        an argument is outside its legal range
    │   └── InfeasibleError              each argument is legal, together they allow no solution
    ├── ContractError(ValueError)        a host broke the step's contract (unknown rollout, wrong prompt)
    ├── CallOrderError(RuntimeError)     begin / ask / tell / finish were called out of order
    ├── StateError(ValueError)           a saved state cannot be loaded
    ├── RunFailedError(RuntimeError)     a run cannot go on; the message carries the cause
    └── MissingExtraError(ImportError)   an optional dependency is absent; the message has the pip command

Each leaf also is the builtin it stands for, so ``except ValueError`` keeps working. Messages name the fault, the
value, the legal range, and how to mend it. All are picklable: they take one message.
"""

from __future__ import annotations


class NeymanError(Exception):
    """Base of every error that neyman raises on purpose."""


class ArgumentError(NeymanError, ValueError):
    """An argument is outside its legal range."""


class InfeasibleError(ArgumentError):
    """Each argument is legal by itself, but together they allow no solution."""


class ContractError(NeymanError, ValueError):
    """A host broke the contract of a step, e.g. reported a rollout that was never requested."""


class CallOrderError(NeymanError, RuntimeError):
    """The calls of a step came in the wrong order."""


class StateError(NeymanError, ValueError):
    """A saved state cannot be loaded: another version, another prompt set, or damaged."""


class RunFailedError(NeymanError, RuntimeError):
    """A run cannot go on; the message carries the cause that was observed."""


class MissingExtraError(NeymanError, ImportError):
    """An optional dependency is absent; the message has the exact pip command."""


def missing_extra(package: str, extra: str, feature: str) -> MissingExtraError:
    """Build the error for an absent optional dependency.

    Args:
        package: the import that failed.
        extra: the extra of neyman that brings it.
        feature: the part that needs it, as the subject of the sentence.

    Returns:
        The error, ready to be raised.
    """
    return MissingExtraError(
        f"{feature} needs {package.partition('.')[0]}, which is not installed: run pip install '.[{extra}]' in a clone "
        "of neyman (it is on no package index yet)"
    )
