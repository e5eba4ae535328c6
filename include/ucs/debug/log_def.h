/* The log, for programs that write theirs through the library. */

#ifndef RUCP_UCS_DEBUG_LOG_DEF_H
#define RUCP_UCS_DEBUG_LOG_DEF_H

#include <ucs/config/types.h>
#include <ucs/sys/compiler_def.h>
#include <stdarg.h>
#include <stdint.h>

/* Levels beyond this one are not even compiled. */
#ifndef UCS_MAX_LOG_LEVEL
#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_LAST
#endif

/* Whether a part of the program logs at this level. */
#define ucs_log_component_is_enabled(level, config) \
    ucs_unlikely((level) <= UCS_MAX_LOG_LEVEL && \
                 (level) <= ((ucs_log_component_config_t *)(config))->log_level)

/* Logs one line, if that part of the program logs at this level. */
#define ucs_log_component(level, config, ...) \
    do { \
        if (ucs_log_component_is_enabled(level, config)) { \
            ucs_log_dispatch(__FILE__, __LINE__, __func__, (ucs_log_level_t)(level), config, \
                             __VA_ARGS__); \
        } \
    } while (0)

BEGIN_C_DECLS

/* Writes one line of the log, whatever the level. (By hand: cbindgen knows no variadic functions.) */
void ucs_log_dispatch(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                      ucs_log_component_config_t *config, const char *format, ...)
    UCS_F_PRINTF(6, 7);

END_C_DECLS

#endif /* RUCP_UCS_DEBUG_LOG_DEF_H */
