/* Tries values of options: for each line of the input, the name of a variable, and each argument, a value, the statuses
 * of ucp_config_read, ucp_init and ucp_worker_create ("-" where it was not called), in a process of its own. */
#include <ucp/api/ucp.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_status(FILE *out, ucs_status_t status)
{
    fprintf(out, status == UCS_OK ? " OK" : " %d", status);
}

static void made_with(FILE *out)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_config_t       *config;
    ucp_context_h       context;
    ucp_worker_h        worker;

    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    print_status(out, status);
    if (status != UCS_OK) {
        fprintf(out, " - -");
        return;
    }
    status = ucp_init(&params, config, &context);
    print_status(out, status);
    if (status != UCS_OK) {
        fprintf(out, " -");
        return;
    }
    status = ucp_worker_create(context, &worker_params, &worker);
    print_status(out, status);
    if (status == UCS_OK) {
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
}

static void try_value(const char *name, const char *value)
{
    char text[64] = "";
    int  pipe_fds[2];

    if (pipe(pipe_fds) != 0) {
        abort();
    }
    pid_t pid = fork();
    if (pid == 0) {
        FILE *out = fdopen(pipe_fds[1], "w");
        setenv(name, value, 1);
        /* for the library's own messages */
        dup2(open("/dev/null", O_WRONLY), 1);
        made_with(out);
        fclose(out);
        _exit(0);
    }
    close(pipe_fds[1]);
    size_t  length = 0;
    ssize_t got;
    while ((got = read(pipe_fds[0], text + length, sizeof(text) - 1 - length)) > 0) {
        length += got;
    }
    close(pipe_fds[0]);
    int end;
    if (pid < 0 || waitpid(pid, &end, 0) != pid) {
        abort();
    }
    printf("%s=%s:%s\n", name, value, WIFEXITED(end) ? text : " crash");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char name[200];

    while (fgets(name, sizeof(name), stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        for (int i = 1; i < argc; i++) {
            try_value(name, argv[i]);
        }
    }
    return 0;
}
