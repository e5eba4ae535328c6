#!/usr/bin/env python3
"""The model of scripts/simulate on small jobs with known answers."""

import os
import sys
import unittest

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../../scripts")
sys.dont_write_bytecode = True
from measure import wireup  # noqa: E402
from measure.wireup import Exchange, Job, Transport  # noqa: E402

SHARED = Transport("t", 100, create=1, unused=1000, connect=10, used=500, message=1, legs=2, latency=100)
OWN = Transport("t", 100, create=1, unused=1000, connect=10, used=500, message=1, legs=2, latency=100, pairs=False)


class Patterns(unittest.TestCase):
    def test_two_ranks_connect_and_exchange_a_message(self):
        # Ask (10), on the way (100), accept the other's (10), its answer (100), send (1), on the way (100), receive.
        for transport in (SHARED, OWN):
            outcome = wireup.pattern("recursive doubling", transport, Job(2, 1, 1))
            self.assertEqual(outcome.time, 322)
            self.assertEqual((outcome.connections, outcome.initiated), (1, 1))
            # Request, answer to the other's, message.
            self.assertEqual(outcome.messages, 3)

    def test_a_core_for_two_ranks_takes_twice_as_long(self):
        outcome = wireup.pattern("recursive doubling", SHARED, Job(2, 2, 1))
        self.assertEqual(outcome.time, 20 + 100 + 20 + 100 + 2 + 100 + 2)

    def test_one_rank_waits_for_nobody(self):
        for name in wireup.PATTERNS:
            self.assertEqual(wireup.pattern(name, SHARED, Job(1, 1, 1)).time, 0)
        self.assertEqual(wireup.pattern("tree", SHARED, Job(1, 1, 1)).time, 0)

    def test_a_million_ranks_connect_to_twenty_peers(self):
        outcome = wireup.pattern("recursive doubling", OWN, Job(1000000, 4, 48))
        self.assertEqual(outcome.initiated, 20)
        # Each step is one after the other: 322 where nothing else is to be done.
        self.assertEqual(outcome.time, 20 * 322)

    def test_of_each_pair_one_opens_the_shared_connection(self):
        # Slow enough that a request of each peer arrives before its turn, but for those that cross in the middle.
        slow = Transport("t", 100, 1, 1000, connect=1000, used=500, message=1, legs=1, latency=1)
        outcome = wireup.pattern("all to all", slow, Job(101, 1, 1))
        self.assertEqual(outcome.connections, 100)
        self.assertLessEqual(outcome.initiated, 52)
        self.assertGreaterEqual(outcome.initiated, 50)
        # A hundred ends of connections, and as many messages in each direction.
        self.assertAlmostEqual(outcome.time, 100 * 1000 + 200, delta=2100)
        every = wireup.pattern("all to all", Transport("t", 100, 1, 1000, 1000, 500, 1, 1, 1, pairs=False),
                               Job(101, 1, 1))
        self.assertEqual(every.initiated, 100)

    def test_neighbours_are_six(self):
        self.assertEqual(wireup.neighbours(1000), [[1, 999, 10, 990, 100, 900]])
        self.assertEqual(wireup.pattern("6 neighbours", OWN, Job(1000, 4, 48)).connections, 6)

    def test_a_tree_of_three_has_one_level(self):
        # Up: connect, send (10 + 1), three on the way, two children taken (2 * 11); down: three times 1, and 100.
        outcome = wireup.pattern("tree", SHARED, Job(3, 1, 1))
        self.assertEqual(outcome.time, (11 + 300 + 22) + (3 + 100))
        self.assertEqual(outcome.connections, 2)
        self.assertEqual(wireup.pattern("tree", SHARED, Job(7, 1, 1)).connections, 3)

    def test_addresses_of_the_job_pass_the_tree(self):
        exchange = Exchange(radix=10, hop=50, bytes_per_us=1000)
        self.assertEqual(exchange.time(Job(4, 4, 48), 100), 0)
        self.assertEqual(exchange.time(Job(400, 4, 48), 100), 2 * 2 * 50 + 40)

    def test_memory_is_of_all_endpoints_and_of_connections(self):
        job = Job(101, 1, 1)
        outcome = wireup.pattern("recursive doubling", OWN, job)
        self.assertEqual(outcome.connections, 7)
        self.assertEqual(wireup.memory(OWN, job, outcome, 100), 100 * 1000 + 7 * 500)


if __name__ == "__main__":
    unittest.main()
