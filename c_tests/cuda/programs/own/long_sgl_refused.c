/*
 * Lists of ten thousand pieces where neither process can open memory of the other's device: messages carry all of them,
 * and the owner's driver is called as seldom as the initiator's.
 */
#define REFUSED 1
#include "long_sgl.c"
