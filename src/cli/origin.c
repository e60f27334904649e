#include "cli/origin.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/remote.h"

enum { LOCK_WAIT_MS = 5000, SOCKET_URL_BYTES_MAX = 128 }; /* sun_path holds 108 */

/* ---- a store, through the library -------------------------------------------------------- */

static int local_found(struct origin *origin, int result, struct once_operation *operation,
    const struct once_error *error, const struct once_operation **ret)
{
    if (result != ONCE_OK) {
        return cli_fail(error);
    }
    once_operation_free(origin->once, origin->held);
    origin->held = operation;
    *ret = operation;
    return CLI_OK;
}

static int local_get(
    struct origin *origin, const char *operation_id, const struct once_operation **ret)
{
    struct once_error error = {0};
    struct once_operation *found = NULL;
    int result = once_get(origin->once, operation_id, &found, &error);
    return local_found(origin, result, found, &error, ret);
}

static int local_lookup(struct origin *origin, const char *scope, const char *principal,
    const char *key, const struct once_operation **ret)
{
    struct once_error error = {0};
    struct once_operation *found = NULL;
    int result = once_lookup(origin->once, scope, principal, key, &found, &error);
    return local_found(origin, result, found, &error, ret);
}

static int local_iterate(struct origin *origin, const struct once_filter *filter,
    once_operation_visit visit, void *context)
{
    struct once_error error = {0};
    int result = once_iterate(origin->once, filter, visit, context, &error);
    return result == ONCE_OK ? CLI_OK : cli_fail(&error);
}

static int local_evidence(struct origin *origin, const char *operation_id, const char *after,
    once_entry_visit visit, void *context)
{
    struct once_error error = {0};
    int result = once_evidence(origin->once, operation_id, after, visit, context, &error);
    return result == ONCE_OK ? CLI_OK : cli_fail(&error);
}

/* Reading a store of our own from its first entry costs little and leaves no trace. */
static int local_near_end(
    struct origin *origin, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES])
{
    (void)origin;
    (void)back;
    ret_cursor[0] = '\0';
    return CLI_OK;
}

static int local_resolve(
    struct origin *origin, const struct origin_settle *settle, struct origin_resolved *ret_resolved)
{
    struct once_error error = {0};
    ASSERT(origin->answer == NULL);
    if (once_resolve(origin->once, &settle->resolve, &origin->answer, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    *ret_resolved = (struct origin_resolved){
        .decision = origin->answer->decision,
        .repeated = origin->answer->repeated != 0,
        .operation = origin->answer->operation,
    };
    return CLI_OK;
}

static void local_let_go(struct origin *origin)
{
    once_answer_free(origin->once, origin->answer);
    once_operation_free(origin->once, origin->held);
    origin->answer = NULL;
    origin->held = NULL;
    (void)once_close(origin->once, NULL); /* only looked; what was answered is durable (P2) */
    origin->once = NULL;
}

/* A reader sees the store as it was when opened, so it is opened again. */
static int local_refresh(struct origin *origin, bool *ret_ready)
{
    struct once_error error = {0};
    struct cli_open how = {.read_only = true, .must_exist = true};
    local_let_go(origin);
    int result = cli_try_open(origin->cli, how, &origin->once, &error);
    *ret_ready = result == ONCE_OK;
    /* A writer may be at it. */
    return result == ONCE_OK || result == ONCE_E_UNAVAILABLE ? CLI_OK : cli_fail(&error);
}

static const struct origin_ops local_ops = {
    .get = local_get,
    .lookup = local_lookup,
    .iterate = local_iterate,
    .evidence = local_evidence,
    .near_end = local_near_end,
    .resolve = local_resolve,
    .refresh = local_refresh,
    .close = local_let_go,
};

/* ---- which one --------------------------------------------------------------------------- */

int origin_named_server(struct cli *cli, struct remote **ret_remote)
{
    const char *url = cli_text(cli, "server");
    bool store_given = cli_flag(cli, "store");
    if (store_given && cli_flag(cli, "server")) {
        return cli_usage(cli, "%s: give --server or --store, not both", cli->command->name);
    }
    *ret_remote = NULL;
    if (url == NULL || store_given) { /* a flag wins over a variable */
        return CLI_OK;
    }
    bool is_socket = strncmp(url, "unix:", 5) == 0;
    if (cli_flag(cli, "tenant") && !is_socket) {
        return cli_usage(cli, "%s: --tenant does not go with --server: the token says whose it is",
            cli->command->name);
    }
    struct remote_options options = {
        .url = url,
        .token = cli_text(cli, "token"),
        .tenant = is_socket && cli_flag(cli, "tenant") ? cli_text(cli, "tenant") : NULL,
        .cacert = cli_text(cli, "cacert"),
    };
    return remote_new(&options, ret_remote);
}

/* Somebody answers at the socket: one that a killed server left behind refuses. */
static bool is_served(const char *path, int64_t *ret_pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof peer;
    if (strlen(path) >= sizeof address.sun_path || stat(path, &info) != 0 ||
        !S_ISSOCK(info.st_mode)) {
        return false;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool served = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (served && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0) {
        *ret_pid = peer.pid; /* 0 when it is in another PID namespace */
    }
    if (fd >= 0) {
        (void)close(fd); /* only tried */
    }
    return served;
}

void origin_own_server(struct cli *cli, struct origin_server *ret_server)
{
    const char *dir = cli_store_dir(cli, cli_text(cli, "store"));
    char *url = arena_alloc(&cli->arena, SOCKET_URL_BYTES_MAX);
    *ret_server = (struct origin_server){0};
    if (dir == NULL || url == NULL) {
        return;
    }
    int used = snprintf(url, SOCKET_URL_BYTES_MAX, "unix:%s/once.sock", dir);
    if (used < SOCKET_URL_BYTES_MAX && is_served(url + 5, &ret_server->pid)) {
        ret_server->url = url;
    }
}

/* *ret is NULL when there is none. */
static int find_own_server(struct cli *cli, struct remote **ret_remote)
{
    struct origin_server server;
    origin_own_server(cli, &server);
    *ret_remote = NULL;
    if (server.url == NULL) {
        return CLI_OK;
    }
    struct remote_options options = {.url = server.url, .tenant = cli_text(cli, "tenant")};
    return remote_new(&options, ret_remote);
}

static int find_server(struct cli *cli, struct remote **ret_remote)
{
    int code = origin_named_server(cli, ret_remote);
    return code == CLI_OK && *ret_remote == NULL ? find_own_server(cli, ret_remote) : code;
}

int origin_open(struct cli *cli, struct origin *ret_origin)
{
    struct remote *remote = NULL;
    *ret_origin = (struct origin){.cli = cli};
    int code = find_server(cli, &remote);
    if (code == CLI_OK && remote != NULL) {
        origin_init_remote(ret_origin, cli, remote);
    } else if (code == CLI_OK) {
        code = cli_open_to_look(cli, &ret_origin->once);
        ret_origin->ops = code == CLI_OK ? &local_ops : NULL;
    }
    return code;
}

int origin_open_to_change(struct cli *cli, struct origin *ret_origin)
{
    struct remote *remote = NULL;
    struct cli_open how = {.must_exist = true, .lock_wait_ms = LOCK_WAIT_MS};
    *ret_origin = (struct origin){.cli = cli};
    int code = find_server(cli, &remote);
    if (code == CLI_OK && remote != NULL) {
        origin_init_remote(ret_origin, cli, remote);
    } else if (code == CLI_OK) {
        code = cli_open(cli, how, &ret_origin->once);
        ret_origin->ops = code == CLI_OK ? &local_ops : NULL;
    }
    return code;
}

void origin_close(struct origin *origin)
{
    if (origin->ops != NULL) {
        origin->ops->close(origin);
    }
    origin->ops = NULL;
}
