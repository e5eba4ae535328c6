//! The table of random access: words that are spread over all ranks, and their expected values after updates.
#ifndef STUDY_WORDS_H
#define STUDY_WORDS_H

#include "fabric.h"
#include "job.h"

/* Numbers between the starts of two threads' streams: more than one of them ever uses. */
#define STREAM (UINT64_C(1) << 36)

struct words {
    const struct fabric *fabric;
    uint64_t count;   /* of each rank, a power of two */
    uint64_t checked; /* updates of every thread that have been checked */
    double tolerated; /* part of the words that may be wrong */
    double worst;     /* the largest part that was wrong, after some updates */
};

extern struct words words;

/** Words of each rank by default: so many that a lost update is rare, however many threads have updates in flight. */
uint64_t default_words(int threads);

/** The team must be open, with the fabric of words.fabric; all words get their initial values. */
void open_words(void);

/**
 * After this many updates of each thread: ends the job if too many words are wrong, and resets them. All ranks call it.
 */
void check_words(long updates);

/** The rank that has the word of this random number. */
static inline int owner(uint64_t random)
{
    return (int)(random / words.count % (uint64_t)job.size);
}

/** The address of the word on that rank. */
static inline uint64_t address_of(uint64_t random)
{
    return words.fabric->base[owner(random)] + random % words.count * 8;
}

#endif
