"""What scripts/bench and scripts/osu are made of: running libraries in turn, and showing what came out."""
