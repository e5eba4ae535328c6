/* Checks that end the program at the first failure. The program defines check_report(), which prints it and ends. */
#ifndef RUCP_CHECK_H
#define RUCP_CHECK_H

#include <stdarg.h>
#include <stdio.h>

/* Prints the failure, in one write because other processes may fail as well, and ends the program or the whole job. */
void check_report(const char *failure) __attribute__((noreturn));

__attribute__((format(printf, 2, 3), noreturn)) static inline void check_failed(const char *condition,
                                                                                const char *format, ...)
{
    char    message[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    check_report(message[1] == '\0' ? condition : message + 1);
}

#define CHECK_TEXT(line) #line
#define CHECK_LINE(line) CHECK_TEXT(line)

/* CHECK(condition) or CHECK(condition, FORMAT...), where FORMAT is a literal; without it the condition is printed. */
#define CHECK(condition, ...) \
    ((condition) ? (void)0 : check_failed(__FILE__ ":" CHECK_LINE(__LINE__) ": " #condition, " " __VA_ARGS__))

#endif
