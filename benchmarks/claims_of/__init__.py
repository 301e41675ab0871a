"""The claims that neyman's methods rest on, each with a quick check; run by ``benchmarks/claims.py``."""

from claims_of import dynamo, goals, prediction, sara, vip
from claims_of.claim import VERDICTS, Claim

CLAIMS: list[Claim] = [*vip.CLAIMS, *prediction.CLAIMS, *sara.CLAIMS, *dynamo.CLAIMS, *goals.CLAIMS]

__all__ = ["CLAIMS", "VERDICTS", "Claim"]
