#include "cli/backend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/remote.h"
#include "lib/inspect.h"

enum {
    LOCK_WAIT_MS = 5000,
    SOCKET_URL_BYTES_MAX = 128,       /* sun_path holds 108 */
    PAGE_ARENA_BYTES_MAX = 256 << 20, /* a page of operations or entries, and its tree */
    FOUND_BYTES_MAX = 512 << 20,      /* an outcome, escaped in a document, and its tree */
};

/* Whether the command is for every tenant. */
static bool is_of_all(const struct cli *cli)
{
    return option_find(cli->command, "all-tenants") != NULL && cli_flag(cli, "all-tenants");
}

/* ---- a store, through the library -------------------------------------------------------- */

/* The operation as its document, in the arena; NULL stays NULL. */
static int document_of(struct backend *backend, const struct once_operation *from, bool has_bodies,
    struct arena *arena, const struct operation **ret, struct err *err)
{
    struct operation *operation = arena_alloc(arena, sizeof *operation);
    *ret = NULL;
    if (from == NULL) {
        return ONCE_OK;
    }
    enum status status = operation == NULL
                             ? err_set(err, E_NOMEM, "out of memory")
                             : operation_of(backend->once, from, has_bodies, arena, operation, err);
    *ret = status == OK ? operation : NULL;
    return (int)status;
}

static int local_found(struct backend *backend, int result, struct once_operation *found,
    const struct once_error *error, const struct operation **ret)
{
    struct err err = {0};
    if (result != ONCE_OK) {
        return cli_fail(error);
    }
    result = document_of(backend, found, true, backend->found, ret, &err);
    once_operation_free(backend->once, found);
    return result == ONCE_OK ? CLI_OK : cli_fail_err(&err);
}

static int local_peek(struct backend *backend, const char *id, const struct operation **ret)
{
    struct err err = {0};
    struct once_operation *found = NULL;
    int result = once_get(backend->once, id, &found, NULL);
    if (result == ONCE_OK) {
        result = document_of(backend, found, false, backend->found, ret, &err);
        once_operation_free(backend->once, found);
    }
    return result;
}

static int local_get(struct backend *backend, const char *id, const struct operation **ret)
{
    struct once_error error = {0};
    struct once_operation *found = NULL;
    int result = once_get(backend->once, id, &found, &error);
    return local_found(backend, result, found, &error, ret);
}

/* Each operation of a listing as its document. */
struct each {
    struct backend *backend;
    operation_visit visit;
    void *context;
    struct err err;
};

static int visit_document(void *context, const struct once_operation *operation)
{
    struct each *each = context;
    const struct operation *document = NULL;
    arena_clear(&each->backend->arena);
    if (document_of(each->backend, operation, false, &each->backend->arena, &document,
            &each->err) != ONCE_OK) {
        return 1;
    }
    return each->visit(each->context, document);
}

static int local_iterate(
    struct backend *backend, const struct once_filter *filter, operation_visit visit, void *context)
{
    struct once_error error = {0};
    struct each each = {.backend = backend, .visit = visit, .context = context};
    int result = is_of_all(backend->cli)
                     ? inspect_iterate_all(backend->once, filter, visit_document, &each, &error)
                     : once_iterate(backend->once, filter, visit_document, &each, &error);
    return result != ONCE_OK       ? cli_fail(&error)
           : each.err.status != OK ? cli_fail_err(&each.err)
                                   : CLI_OK;
}

static int local_evidence(struct backend *backend, const char *operation_id, const char *after,
    once_entry_visit visit, void *context)
{
    struct once_error error = {0};
    int result =
        is_of_all(backend->cli)
            ? inspect_evidence_all(backend->once, operation_id, after, visit, context, &error)
            : once_evidence(backend->once, operation_id, after, visit, context, &error);
    return result == ONCE_OK ? CLI_OK : cli_fail(&error);
}

/* Reading our own store from its first entry is cheap and leaves no evidence. */
static int local_near_end(
    struct backend *backend, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES])
{
    (void)backend;
    (void)back;
    ret_cursor[0] = '\0';
    return CLI_OK;
}

static int local_submit(struct once *once, const struct once_call *call,
    struct once_answer **ret_answer, struct once_error *error)
{
    return call->begin != NULL     ? once_begin(once, call->begin, ret_answer, error)
           : call->seal != NULL    ? once_seal(once, call->seal, ret_answer, error)
           : call->release != NULL ? once_release(once, call->release, ret_answer, error)
           : call->unknown != NULL ? once_unknown(once, call->unknown, ret_answer, error)
           : call->renew != NULL   ? once_renew(once, call->renew, ret_answer, error)
                                   : once_resolve(once, call->resolve, ret_answer, error);
}

static int copy_answer(struct backend *backend, const struct once_answer *from,
    struct backend_answer *ret_answer, struct once_error *error)
{
    struct err err = {0};
    struct arena *arena = backend->found;
    struct backend_answer answer = {.decision = from->decision,
        .repeated = from->repeated != 0,
        .fence = from->decision == ONCE_FIRST_SEEN ? from->fence : 0,
        .attempt = from->decision == ONCE_FIRST_SEEN ? from->attempt : 0,
        .retry_after_ms = from->retry_after_ms};
    memcpy(answer.operation_id, from->operation_id, sizeof answer.operation_id);
    int result = document_of(backend, from->operation, true, arena, &answer.operation, &err);
    if (result == ONCE_OK && arena_copy(arena, slice_str(from->diff), &answer.diff) != OK) {
        result = err_set(&err, E_NOMEM, "out of memory");
    }
    if (result == ONCE_OK) {
        *ret_answer = answer;
    } else {
        backend_error(error, result, "%s", err.text);
    }
    return result;
}

static int local_call(struct backend *backend, const struct once_call *call,
    struct backend_answer *ret_answer, struct once_error *error)
{
    struct once_answer *answer = NULL;
    int result = local_submit(backend->once, call, &answer, error);
    if (result == ONCE_OK) {
        result = copy_answer(backend, answer, ret_answer, error);
        once_answer_free(backend->once, answer);
    }
    return result;
}

static void local_let_go(struct backend *backend)
{
    (void)once_close(backend->once, NULL); /* only read, or answered and so durable (P2) */
    backend->once = NULL;
}

/* A reader sees the store as it was when it was opened, so it is opened again. */
static int local_refresh(struct backend *backend, bool *ret_ready)
{
    struct once_error error = {0};
    struct cli_open how = {.read_only = true, .must_exist = true};
    (void)once_close(backend->once, NULL); /* only read */
    backend->once = NULL;
    int result = cli_try_open(backend->cli, how, &backend->once, &error);
    *ret_ready = result == ONCE_OK;
    /* A writer may be holding it at the moment. */
    return result == ONCE_OK || result == ONCE_E_UNAVAILABLE ? CLI_OK : cli_fail(&error);
}

static const struct backend_ops local_ops = {
    .peek = local_peek,
    .get = local_get,
    .iterate = local_iterate,
    .evidence = local_evidence,
    .near_end = local_near_end,
    .call = local_call,
    .refresh = local_refresh,
    .close = local_let_go,
};

static void init_local(struct backend *backend, struct once *once)
{
    backend->ops = &local_ops;
    backend->once = once;
}

void backend_error(struct once_error *error, int result, const char *format, ...)
{
    va_list args;
    if (error == NULL) {
        return;
    }
    *error = (struct once_error){.result = result};
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
}

/* ---- choosing the backend ---------------------------------------------------------------- */

/* The tenant for a server's own socket. */
static const char *tenant_of(const struct cli *cli)
{
    return is_of_all(cli) ? "*" : cli_text(cli, "tenant");
}

/* The Request-Id of once run; NULL: each process makes its own. */
static const char *request_id_of(const struct cli *cli)
{
    return option_find(cli->command, "request-id") == NULL ? NULL : cli_text(cli, "request-id");
}

const char *backend_place_option(struct cli *cli, char *ret_text, size_t size)
{
    const char *server = cli_flag(cli, "store") ? NULL : cli_text(cli, "server");
    const char *url = cli_text(cli, "store");
    const char *usual = option_find(cli->command, "store")->fallback;
    ret_text[0] = '\0';
    if (server != NULL) {
        (void)snprintf(ret_text, size, " --server %s", server);
    } else if (strcmp(url, usual) != 0) {
        /* To be pasted: "?" and "&" in a URL have a meaning in a shell. */
        const char *shown = cli_store_shown(cli);
        const char *quote = strpbrk(shown, " ?&*;") != NULL ? "'" : "";
        (void)snprintf(ret_text, size, " --store %s%s%s", quote, shown, quote);
    }
    return ret_text;
}

int backend_named_server(struct cli *cli, struct remote **ret_remote)
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
    bool names_tenant = cli_flag(cli, "tenant") || is_of_all(cli);
    if (names_tenant && !is_socket) {
        return cli_usage(cli, "%s: --%s does not go with --server: the token says whose it is",
            cli->command->name, is_of_all(cli) ? "all-tenants" : "tenant");
    }
    struct remote_options options = {
        .url = url,
        .token = cli_text(cli, "token"),
        .tenant = names_tenant ? tenant_of(cli) : NULL,
        .cacert = cli_text(cli, "cacert"),
        .request_id = request_id_of(cli),
    };
    return remote_new(&options, ret_remote);
}

/* Whether a server answers at the socket; one left by a killed server refuses connections. */
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
        *ret_pid = peer.pid; /* 0 if it is in a different PID namespace */
    }
    if (fd >= 0) {
        (void)close(fd); /* only tried */
    }
    return served;
}

void backend_own_server(struct cli *cli, struct backend_server *ret_server)
{
    const char *dir = cli_store_dir(cli, cli_text(cli, "store"));
    char *url = arena_alloc(&cli->arena, SOCKET_URL_BYTES_MAX);
    *ret_server = (struct backend_server){0};
    if (dir == NULL || url == NULL) {
        return;
    }
    int used = snprintf(url, SOCKET_URL_BYTES_MAX, "unix:%s/once.sock", dir);
    if (used < SOCKET_URL_BYTES_MAX && is_served(url + 5, &ret_server->pid)) {
        ret_server->url = url;
    }
}

/* *ret is NULL if no server holds the store. */
static int find_own_server(struct cli *cli, struct remote **ret_remote)
{
    struct backend_server server;
    backend_own_server(cli, &server);
    *ret_remote = NULL;
    if (server.url == NULL) {
        return CLI_OK;
    }
    struct remote_options options = {
        .url = server.url, .tenant = tenant_of(cli), .request_id = request_id_of(cli)};
    return remote_new(&options, ret_remote);
}

int backend_find_server(struct cli *cli, struct remote **ret_remote)
{
    int code = backend_named_server(cli, ret_remote);
    return code == CLI_OK && *ret_remote == NULL ? find_own_server(cli, ret_remote) : code;
}

int backend_get(struct cli *cli, const char *path, const char *hint, struct slice *ret_text)
{
    struct remote *remote = NULL;
    struct remote_answer answer;
    int code = backend_find_server(cli, &remote);
    if (code == CLI_OK && remote == NULL) {
        cli_say("no server to ask");
        cli_hint("%s", hint);
        return CLI_UNAVAILABLE;
    }
    code = code == CLI_OK ? remote_get(remote, path, &cli->arena, &answer) : code;
    *ret_text = code == CLI_OK ? answer.text : SLICE_EMPTY;
    remote_free(remote);
    return code;
}

/* Use a server if there is one; otherwise the caller opens the store. */
static int open_server(struct cli *cli, struct backend *ret_origin)
{
    struct remote *remote = NULL;
    *ret_origin = (struct backend){.cli = cli, .found = &ret_origin->own};
    arena_init(&ret_origin->arena, &mem_libc, PAGE_ARENA_BYTES_MAX);
    arena_init(&ret_origin->own, &mem_libc, FOUND_BYTES_MAX);
    int code = backend_find_server(cli, &remote);
    if (code == CLI_OK && remote != NULL) {
        backend_init_remote(ret_origin, remote);
    }
    return code;
}

int backend_open(struct cli *cli, struct backend *ret_origin)
{
    struct once *once = NULL;
    int code = open_server(cli, ret_origin);
    if (code == CLI_OK && ret_origin->ops == NULL) {
        code = cli_open_to_read(cli, &once);
        if (code == CLI_OK) {
            init_local(ret_origin, once);
        }
    }
    return code;
}

int backend_try_read(struct cli *cli, struct backend *ret_origin)
{
    struct cli_open how = {.read_only = true, .must_exist = true};
    return backend_try_open(cli, how, ret_origin, NULL);
}

int backend_open_to_change(struct cli *cli, struct backend *ret_origin)
{
    struct once_error error = {0};
    struct cli_open how = {.must_exist = true, .lock_wait_ms = LOCK_WAIT_MS};
    int result = backend_try_open(cli, how, ret_origin, &error);
    return result == ONCE_OK ? CLI_OK : error.text[0] == '\0' ? CLI_USAGE : cli_fail(&error);
}

int backend_try_open(
    struct cli *cli, struct cli_open how, struct backend *ret_origin, struct once_error *error)
{
    struct once *once = NULL;
    if (open_server(cli, ret_origin) != CLI_OK) {
        return ONCE_E_INVALID; /* an error of the command line; the message is written */
    }
    if (ret_origin->ops != NULL) {
        return ONCE_OK;
    }
    int result = cli_try_open(cli, how, &once, error);
    if (result == ONCE_OK) {
        init_local(ret_origin, once);
    }
    return result;
}

void backend_close(struct backend *backend)
{
    if (backend->ops != NULL) {
        backend->ops->close(backend);
    }
    backend->ops = NULL;
    arena_release(&backend->arena);
    arena_release(&backend->own);
}
