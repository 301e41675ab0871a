"""neyman makes every rollout count: which prompts, how many rollouts, when to stop."""
