"""Faults between two processes."""


def cases(bench):
    return []
