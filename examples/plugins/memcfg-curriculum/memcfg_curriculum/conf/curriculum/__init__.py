"""Files of the group `curriculum`."""
