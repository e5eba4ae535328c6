/* What the software Tofu counts and breaks, for tests that run on it. */
#ifndef TRANSPORT_WIRE_H
#define TRANSPORT_WIRE_H

/* A counter of the wire by its name in tofuctl's list. */
unsigned long counter(const char *name);
/* "node_down=2", "fail_nth=1,fail_code=-193": see c_tests/tofu/README.md. */
void fault(const char *what);
/* This process, which has not called rucp yet, is this node of the machine. */
void be_node(int number);

#endif
