/* Memory that the other one of two processes exposes, and that this one maps as well. */
#ifndef EXPOSED_H
#define EXPOSED_H

#include "party.h"

/* It was mapped before the fork. */
extern unsigned char *there;

/* Starts the other process, whose `act` begins with register_memory() or register_length(). */
ucp_rkey_h open_memory(party_t *self, size_t size, void (*act)(party_t *));
void       register_memory(party_t *self);
/* This many bytes from there on, even if there are fewer. */
void register_length(party_t *self, size_t length);
/* Notifies the other process that this is the end, and outlives it. */
void close_memory(party_t *self, ucp_rkey_h rkey);

ucs_status_ptr_t put(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey);
ucs_status_ptr_t get(party_t *self, void *data, size_t size, size_t offset, ucp_rkey_h rkey);

#endif
