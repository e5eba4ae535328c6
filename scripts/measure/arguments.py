"""Types of arguments of the scripts."""

import argparse


def numbers(least, most):
    """The type of a list of whole numbers with commas, each of `least` to `most`."""

    def parse(text):
        found = [int(word) for word in text.split(",") if word.isascii() and word.isdigit()]
        if len(found) != len(text.split(",")) or not all(least <= one <= most for one in found):
            raise argparse.ArgumentTypeError(f"numbers of {least} to {most:,} with commas between them, not '{text}'")
        return found

    return parse
