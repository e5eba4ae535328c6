"""Parts of `scripts/bench --only peers`: all ways in which messages go within a host, measured in turn."""
