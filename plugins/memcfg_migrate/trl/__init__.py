"""TRL: the configs of its trainers, its scripts' YAML files, and Python files that build a trainer."""
