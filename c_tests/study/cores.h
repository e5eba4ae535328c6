//! The cores that a rank's threads run on.
#ifndef STUDY_CORES_H
#define STUDY_CORES_H

/** Finds out which cores this rank has; ranks of one host that the launcher has not bound share its cores evenly. */
void find_cores(void);

/** How many this rank has. */
int core_count(void);

/** Binds the calling thread to the index-th of them, counted modulo their number. */
void pin_to(int index);

#endif
