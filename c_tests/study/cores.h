//! The cores that a rank's threads run on.
#ifndef STUDY_CORES_H
#define STUDY_CORES_H

/** Finds out which cores this rank has; ranks of one host that the launcher has not bound share its cores evenly. */
void find_cores(void);

/** How many this rank has. */
int core_count(void);

/** Whether ranks of this host share cores, because there are more of them than cores. */
int cores_are_shared(void);

/** Binds the calling thread to the index-th of them, counted modulo their number. */
void pin_to(int index);

/** The calling thread may run on all of them. */
void unpin(void);

#endif
