//! The table of random access: words that are spread over all ranks, and what they must be after updates.
#ifndef STUDY_WORDS_H
#define STUDY_WORDS_H

#include "fabric.h"
#include "job.h"

/* Numbers between the beginnings of two threads' streams: more than one of them ever uses. */
#define STREAM (UINT64_C(1) << 36)

struct words {
    const struct fabric *fabric;
    uint64_t count;   /* of each rank, a power of two */
    uint64_t checked; /* updates of every thread that have been checked */
    double tolerated; /* part of the words that may be wrong */
    double worst;     /* the largest part that was, after some updates */
};

extern struct words words;

/** Words of each rank by default: so many that a lost update is rare, however many threads have updates under way. */
uint64_t default_words(int threads);

/** The team must be open, with the fabric that words.fabric is; all words get their first values. */
void open_words(void);

/** After so many updates of each thread: ends the job if too many words are wrong, and begins anew. All ranks call it. */
void check_words(long updates);

/** The rank that has the word of this random number. */
static inline int owner(uint64_t random)
{
    return (int)(random / words.count % (uint64_t)job.size);
}

/** And its address there. */
static inline uint64_t address_of(uint64_t random)
{
    return words.fabric->base[owner(random)] + random % words.count * 8;
}

#endif
