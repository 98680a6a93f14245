"""LLaMA-Factory: one flat YAML file, whose training arguments are those of Transformers."""
