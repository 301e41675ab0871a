"""Prompts with verified answers, and the embedded policy that needs no download."""
