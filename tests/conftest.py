"""What all tests share: the path to their vocabulary, and Hypothesis profiles."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# CI must give the same verdict twice; NEYMAN_HYPOTHESIS=long searches wide and anew, =fuzz wider where inputs are
# tried one by one (`make fuzz`).
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=3000, stateful_step_count=80)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("NEYMAN_FUZZ_EXAMPLES", "500")),
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.load_profile(os.environ.get("NEYMAN_HYPOTHESIS", "ci"))
