"""One step of rollout generation: the messages that pass, the account, and the decisions behind `Controller`."""
