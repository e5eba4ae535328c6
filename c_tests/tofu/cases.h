/* The cases of test.c: each has an active side and a passive one, on nodes 0 and 1 unless they say otherwise. */
#ifndef SOFT_TOFU_CASES_H
#define SOFT_TOFU_CASES_H

#include "side.h"

void counters_active(int socket);
void contenders_die_active(int socket);
void descriptors_active(int socket);
void descriptors_passive(int socket);
void dies_active(int socket);
void dies_passive(int socket);
void polled_active(int socket);
void errors_active(int socket);
void errors_passive(int socket);
void faults_active(int socket);
void faults_passive(int socket);
void forked_threads_active(int socket);
void full_active(int socket);
void full_passive(int socket);
void hops_active(int socket);
void hops_passive(int socket);
void killed_active(int socket);
void mapped_active(int socket);
void mapped_killed_passive(int socket);
void mapped_passive(int socket);
void mapped_posters_passive(int socket);
void killed_often_active(int socket);
void killed_often_passive(int socket);
void limits_active(int socket);
void names_active(int socket);
void nothing_passive(int socket);
void one_sided_active(int socket);
void one_sided_passive(int socket);
void passive_waits(int socket);
void posters_active(int socket);
void posters_passive(int socket);
void ranks_active(int socket);
void ranks_passive(int socket);
void reorder_active(int socket);
void reorder_passive(int socket);
void shared_active(int socket);
void shared_passive(int socket);
void stadds_active(int socket);
void stags_end_active(int socket);
void threads_active(int socket);
void time_active(int socket);

#endif
