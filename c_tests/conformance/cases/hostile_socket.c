/*
 * A program attacks the TCP port of a worker: bytes that no worker sends, hellos with a wrong field, many connections
 * that say nothing, connections that close at once. Each is closed; the worker goes on, with a connected peer and with
 * a new one, and keeps no descriptor of the attackers. The format of a hello is that of src/wire/tcp_hello.rs.
 */
#define _GNU_SOURCE
#include "victim_socket.h"

#include "../../random.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { NOISE = 10000, PORTS = 8, HOSTS = 16 };

typedef struct {
    uint64_t magic;
    uint32_t purpose, losses;
    uint64_t from, to, secret, client_id;
} hello_t;

/* --- its address --- */

static struct sockaddr_in hosts[HOSTS];
static int                host_count;

/* The ports at which the process listens. */
static int listening_ports(pid_t pid, in_port_t *ports)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int                      count    = 0;
    char                     line[512];

    for (int i = 0; i < 2; i++) {
        FILE *table = fopen(tables[i], "r");
        while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
            unsigned      port, state;
            unsigned long inode;
            if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", &port,
                       &state, &inode) == 3 &&
                state == 0x0a && count < PORTS && has_socket(pid, inode)) {
                ports[count++] = htons((uint16_t)port);
            }
        }
        if (table != NULL) {
            fclose(table);
        }
    }
    return count;
}

/* Every address of this host, with every port of the process. */
static void find_hosts(pid_t pid)
{
    in_port_t       ports[PORTS];
    int             count = listening_ports(pid, ports);
    struct ifaddrs *all;

    WANT_TRUE(count > 0 && getifaddrs(&all) == 0);
    for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) {
            continue;
        }
        for (int i = 0; i < count && host_count < HOSTS; i++) {
            hosts[host_count]            = *(struct sockaddr_in *)(void *)one->ifa_addr;
            hosts[host_count++].sin_port = ports[i];
        }
    }
    freeifaddrs(all);
    WANT_TRUE(host_count > 0);
}

static int connect_to(int host)
{
    struct timeval limit = {SECONDS, 0};
    int            fd    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    WANT_TRUE(connect(fd, (struct sockaddr *)&hosts[host], sizeof(hosts[host])) == 0);
    return fd;
}

/* --- attacks --- */

static void send_bytes(const void *data, size_t length)
{
    for (int host = 0; host < host_count; host++) {
        int fd = connect_to(host);
        send(fd, data, length, MSG_NOSIGNAL);
        WANT_TRUE(is_closed(fd));
        close(fd);
    }
}

static void noise(void)
{
    static unsigned char bytes[NOISE];
    unsigned             state = 4711;
    party_t              self;

    open_victim(&self);
    find_hosts(self.other);
    send_bytes("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n\r\n", 52);
    for (int value = 0; value < 256; value += 255) {
        memset(bytes, value, sizeof(bytes));
        send_bytes(bytes, 100);
    }
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (unsigned char)(next_random(&state) >> 16);
        }
        send_bytes(bytes, sizeof(bytes));
        check_answers(&self);
    }
    close_victim(&self);
}

/* Hellos without the secret of the address, for each purpose, also from the peer's own uid, and of another version. */
static void hellos(void)
{
    party_t                   self;
    ucp_worker_address_attr_t attr  = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    hello_t                   hello = {.from = 12345, .secret = 1};

    open_victim(&self);
    find_hosts(self.other);
    memcpy(&hello.magic, "rucptcp\x01", 8);
    WANT(UCS_OK, ucp_worker_address_query((ucp_address_t *)(void *)self.theirs, &attr));
    for (uint32_t purpose = 0; purpose < 6; purpose++) {
        for (int named = 0; named < 2; named++) {
            hello.purpose = purpose;
            hello.to      = named ? attr.worker_uid : 0;
            hello.from    = purpose == 4 ? attr.worker_uid : hello.from + 1;
            hello.losses  = named ? UINT32_MAX : 0;
            send_bytes(&hello, sizeof(hello));
        }
        check_answers(&self);
    }
    hello.magic += (uint64_t)1 << 56;
    send_bytes(&hello, sizeof(hello));
    close_victim(&self);
}

static int connect_nth(int n)
{
    return connect_to(n % host_count);
}

static void silence(void)
{
    party_t self;

    open_victim(&self);
    find_hosts(self.other);
    check_silence(&self, connect_nth, "rucptcp\x01", 8);
    close_victim(&self);
}

static const case_t cases[] = {
    {"hostile_socket: noise", noise},
    {"hostile_socket: hellos with a wrong field", hellos},
    {"hostile_socket: silence", silence},
};

CHECK_MAIN(cases)
