"""Files of the group `loss`."""
