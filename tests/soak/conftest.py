"""What is no test here: the process that is killed loads torch and TRL, which only it needs."""

collect_ignore = ["trainee.py"]
