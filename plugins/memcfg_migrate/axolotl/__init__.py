"""axolotl: one flat YAML file."""
