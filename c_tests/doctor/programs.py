"""Faults of programs: what they load, and their MPI."""


def cases(bench):
    return []
