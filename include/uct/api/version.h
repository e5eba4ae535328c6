/* The version of UCT: below 1, as no usable transport layer is offered (docs/HEADERS.md). */

#ifndef RUCP_UCT_API_VERSION_H
#define RUCP_UCT_API_VERSION_H

/*
 * Open MPI builds its btl/uct for UCT 1.9 and later (5.x) or for minor versions up to 8 (4.1): this version
 * is in neither window, so no release builds a component that has nothing to run on.
 */
#define UCT_VERNO_MAJOR 0
#define UCT_VERNO_MINOR 22
#define UCT_VERNO_PATCH 0
#define UCT_VERNO_EXTRA ""
#define UCT_VERNO_STRING "0.22.0"

#define UCT_MINOR_BIT 16
#define UCT_MAJOR_BIT 24
#define UCT_VERSION(major, minor) (((major) << UCT_MAJOR_BIT) | ((minor) << UCT_MINOR_BIT))
#define UCT_API UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR)

#endif /* RUCP_UCT_API_VERSION_H */
