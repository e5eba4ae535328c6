/* Counters and faults of the software Tofu, for tests that run on it. */
#ifndef TRANSPORT_WIRE_H
#define TRANSPORT_WIRE_H

/* A counter of the wire by its name in tofuctl's list. */
unsigned long counter(const char *name);
/* "node_down=2", "fail_nth=1,fail_code=-193": see c_tests/tofu/README.md. */
void fault(const char *what);
/* Places this process, which has not called rucp yet, on this node of the machine. */
void be_node(int number);

#endif
