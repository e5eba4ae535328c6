//! The cores that a rank's threads run on.
#ifndef STUDY_CORES_H
#define STUDY_CORES_H

/** Determines the cores of this rank; ranks of one host that the launcher has not bound share its cores evenly. */
void find_cores(void);

/** Number of cores of this rank. */
int core_count(void);

/** Whether ranks of this host share cores, because there are more of them than cores. */
int cores_are_shared(void);

/** Binds the calling thread to the index-th of them, counted modulo their number. */
void bind_to_core(int index);

/** Lets the calling thread run on all of them. */
void unpin(void);

#endif
