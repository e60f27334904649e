/* The addresses of the doors. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/check.h"
#include "server/impl.h"

enum {
    OWN_SOCKET_MODE = 0600, /* a peer that may open it is an operator */
    SOCKET_MODE = 0660,     /* other users through their group */
};

/* One address of a door. *ret_number is its number. */
static enum status bind_address(struct server *server, size_t door, const char *address,
    unsigned mode, const struct http_tls_options *tls, unsigned *ret_number, struct err *err)
{
    unsigned number = 0;
    const char *text = NULL;
    enum status status = http_server_listen(server->http, address, mode, tls, &number, &text, err);
    if (status != OK) {
        return status;
    }
    ASSERT(number == server->listener_count && number < SERVER_LISTENERS_MAX);
    server->listeners[number] = (struct server_bound){.door = door, .text = text};
    server->listener_count++;
    *ret_number = number;
    return OK;
}

/* The operator's address: a socket in the data directory, for users who may open the directory. */
static enum status bind_own(struct server *server, size_t door, struct err *err)
{
    char address[sizeof((struct sockaddr_un *)0)->sun_path + sizeof "unix:"];
    const char *dir = server->facts.dir;
    if (dir == NULL) {
        return OK;
    }
    int len = snprintf(address, sizeof address, "unix:%s/once.sock", dir);
    if (len < 0 || (size_t)len - strlen("unix:") >= sizeof((struct sockaddr_un *)0)->sun_path) {
        struct log_field fields[] = {LOG_TEXT("directory", slice_str(dir)),
            LOG_TEXT("message", SLICE_LIT("the path of the data directory is too long for a "
                                          "socket in it; use --server with the other commands"))};
        log_event(server->log, LOG_WARN, "no_own_socket", fields, 2);
        return OK;
    }
    return bind_address(server, door, address, OWN_SOCKET_MODE, NULL, &server->own_listener, err);
}

static enum status bind_door(struct server *server, size_t door, struct err *err)
{
    if (server_doors[door].listen == NULL) {
        return OK;
    }
    struct server_addresses all = server_doors[door].listen(server->config);
    struct http_tls_options tls = {.cert_file = all.tls_cert, .key_file = all.tls_key};
    enum status status = OK;
    if (strcmp(server_doors[door].name, SERVER_OWN_DOOR) == 0) {
        status = bind_own(server, door, err);
    }
    for (size_t i = 0; status == OK && i < all.count; i++) {
        bool is_unix = config_address(all.items[i]) == CONFIG_ADDRESS_UNIX;
        unsigned number = 0;
        status = bind_address(server, door, all.items[i], SOCKET_MODE,
            all.tls_cert == NULL || is_unix ? NULL : &tls, &number, err);
    }
    return status;
}

enum status server_listen(struct server *server, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && server_doors[i].name != NULL; i++) {
        status = bind_door(server, i, err);
    }
    return status;
}

const char *server_address(const struct server *server, const char *door, size_t which)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        const struct server_bound *bound = &server->listeners[i];
        if (i != server->own_listener && strcmp(server_doors[bound->door].name, door) == 0 &&
            which-- == 0) {
            return bound->text;
        }
    }
    return NULL;
}
