/*
 * once mcp --serve: Once itself as an MCP server, on standard input and output or for a session of
 * --listen. The tools are mcp_tools'; here are the messages.
 *
 * One message is read, answered and written before the next: an agent waits for its answers, and a
 * store is opened by one at a time anyway.
 */
#include "cli/mcp_serve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/macros.h"
#include "cli/mcp_tools.h"
#include "mcp/lines.h"
#include "mcp/reply.h"
#include "mcp/scan.h"

enum {
    TREE_BYTES_MAX = 1 << 29,
    ARENA_BYTES_MAX = 256 << 20,
    ANSWER_BYTES_MAX = 64 << 20,
    CACHE_MS = 3600000, /* the tools are those of the program */
};

#define LATEST    "2025-11-25" /* for a client that opens a session with a version we do not know */
#define STATELESS "2026-07-28"

static const char *const versions[] = {
    STATELESS, LATEST, "2025-06-18", "2025-03-26", "2024-11-05", NULL};

static const char instructions[] =
    "Once makes things happen once. Before you do something that must not happen twice, call "
    "once_begin with a key that names it; do it only if the decision is first_seen; then call "
    "once_seal. What is unknown must not be repeated: tell the user.";

struct own_server {
    struct mcp_own *own;
    struct buf out;     /* the answer */
    struct buf answer;  /* of a tool */
    struct arena arena; /* of a message */
    bool is_alone;      /* nobody reads our answers any more */
};

/* A request. */
struct own_request {
    struct slice text;
    const struct json_value *root;
    const struct json_value *params;
    struct slice id;
    struct slice method;
    struct slice version; /* in _meta; empty: of a session */
};

static bool is_version(struct slice text, const char *const *of)
{
    for (; *of != NULL; of++) {
        if (slice_is(text, *of)) {
            return true;
        }
    }
    return false;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* {"jsonrpc":"2.0","id":…,"result":{ … the caller writes members and calls end_result. */
static void begin_result(
    struct own_server *server, const struct own_request *request, struct jsonw *json)
{
    *json = (struct jsonw){.out = &server->out};
    jsonw_open(json, NULL, '{');
    jsonw_str(json, "jsonrpc", "2.0");
    jsonw_raw(json, "id", request->id);
    jsonw_open(json, "result", '{');
    if (request->version.len > 0) {
        jsonw_str(json, "resultType", "complete");
    }
}

static void end_result(struct jsonw *json)
{
    jsonw_close(json, '}');
    jsonw_close(json, '}');
}

static void put_info(struct jsonw *json, const char *name)
{
    jsonw_open(json, name, '{');
    jsonw_str(json, "name", "once");
    jsonw_str(json, "title", "Once");
    jsonw_str(json, "version", ONCE_VERSION);
    jsonw_close(json, '}');
}

static void put_capabilities(struct jsonw *json)
{
    jsonw_raw(json, "capabilities", SLICE_LIT("{\"tools\":{}}"));
}

static void put_cache(struct jsonw *json)
{
    jsonw_i64(json, "ttlMs", CACHE_MS);
    jsonw_str(json, "cacheScope", "public");
}

static void put_versions(struct jsonw *json, const char *name)
{
    jsonw_open(json, name, '[');
    jsonw_str(json, NULL, STATELESS);
    jsonw_close(json, ']');
}

static void initialize(struct own_server *server, const struct own_request *request)
{
    struct jsonw json;
    struct slice asked = json_string(request->params, "protocolVersion");
    bool is_known = is_version(asked, versions + 1); /* 2026-07-28 has no initialize */
    begin_result(server, request, &json);
    jsonw_bytes(&json, "protocolVersion", is_known ? asked : SLICE_LIT(LATEST));
    put_capabilities(&json);
    put_info(&json, "serverInfo");
    jsonw_str(&json, "instructions", instructions);
    end_result(&json);
}

static void discover(struct own_server *server, const struct own_request *request)
{
    struct jsonw json;
    begin_result(server, request, &json);
    put_versions(&json, "supportedVersions");
    put_capabilities(&json);
    jsonw_str(&json, "instructions", instructions);
    put_cache(&json);
    jsonw_open(&json, "_meta", '{');
    put_info(&json, "io.modelcontextprotocol/serverInfo");
    jsonw_close(&json, '}');
    end_result(&json);
}

static void ping(struct own_server *server, const struct own_request *request)
{
    struct jsonw json;
    begin_result(server, request, &json);
    end_result(&json);
}

static void put_schema(struct jsonw *json, const struct mcp_own_tool *tool)
{
    jsonw_open(json, "inputSchema", '{');
    jsonw_str(json, "type", "object");
    jsonw_open(json, "properties", '{');
    for (const struct mcp_own_argument *a = tool->arguments; a->name != NULL; a++) {
        const char *schema = a->schema == NULL ? "\"type\":\"string\"" : a->schema;
        jsonw_open(json, a->name, '{');
        buf_str(json->out, schema);
        json->comma = schema[0] != '\0';
        jsonw_str(json, "description", a->says);
        jsonw_close(json, '}');
    }
    jsonw_close(json, '}');
    jsonw_open(json, "required", '[');
    for (const struct mcp_own_argument *a = tool->arguments; a->name != NULL; a++) {
        if (a->is_required) {
            jsonw_str(json, NULL, a->name);
        }
    }
    jsonw_close(json, ']');
    jsonw_close(json, '}');
}

static void list(struct own_server *server, const struct own_request *request)
{
    struct jsonw json;
    begin_result(server, request, &json);
    jsonw_open(&json, "tools", '[');
    for (const struct mcp_own_tool *tool = mcp_own_tools; tool->name != NULL; tool++) {
        jsonw_open(&json, NULL, '{');
        jsonw_str(&json, "name", tool->name);
        jsonw_str(&json, "description", tool->says);
        put_schema(&json, tool);
        jsonw_raw(&json, "annotations", slice_str(tool->annotations));
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    if (request->version.len > 0) {
        put_cache(&json);
    }
    end_result(&json);
}

/* The document twice: as text for a model, and as a structure for a program. */
static void put_called(
    struct own_server *server, const struct own_request *request, const struct mcp_ask *ask)
{
    struct jsonw json;
    begin_result(server, request, &json);
    jsonw_open(&json, "content", '[');
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "type", "text");
    jsonw_bytes(&json, "text", buf_view(&server->answer));
    jsonw_close(&json, '}');
    jsonw_close(&json, ']');
    if (server->answer.len > 0 && server->answer.data[0] == '{') {
        jsonw_raw(&json, "structuredContent", buf_view(&server->answer));
    }
    jsonw_bool(&json, "isError", ask->has_failed);
    end_result(&json);
}

static void call(struct own_server *server, const struct own_request *request)
{
    struct slice name = json_string(request->params, "name");
    static const struct json_value none = {.type = JSON_OBJECT};
    const struct json_value *arguments = json_find(request->params, SLICE_LIT("arguments"));
    const struct mcp_own_tool *tool = mcp_own_tools;
    while (tool->name != NULL && !slice_is(name, tool->name)) {
        tool++;
    }
    arguments = arguments == NULL || arguments->type == JSON_NULL ? &none : arguments;
    if (tool->name == NULL) {
        mcp_reply_error(&server->out, request->id, MCP_INVALID_PARAMS, "there is no such tool");
        return;
    }
    if (arguments->type != JSON_OBJECT) {
        mcp_reply_error(
            &server->out, request->id, MCP_INVALID_PARAMS, "the arguments must be an object");
        return;
    }
    if (tool->rights != 0 && (server->own->rights & tool->rights) == 0) {
        mcp_reply_text(&server->out, &(struct mcp_reply){.id = request->id}, true,
            SLICE_LIT("Nothing was done: your token has no right to use this tool. Tell the user"));
        return;
    }
    struct mcp_ask ask = {
        .own = server->own, .text = request->text, .arguments = arguments, .out = &server->answer};
    buf_clear(&server->answer);
    arena_clear(&server->own->cli.arena);
    tool->run(&ask);
    if (buf_status(&server->answer) != OK) {
        buf_clear(&server->answer);
        buf_str(&server->answer, "the answer is too large");
        ask.has_failed = true;
    }
    put_called(server, request, &ask);
}

/* Refuses an unsupported version, and lists the supported ones. */
static void refuse_version(struct own_server *server, const struct own_request *request)
{
    struct jsonw json = {.out = &server->out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "jsonrpc", "2.0");
    jsonw_raw(&json, "id", request->id);
    jsonw_open(&json, "error", '{');
    jsonw_i64(&json, "code", MCP_UNSUPPORTED_VERSION);
    jsonw_str(&json, "message", "the protocol version is not supported");
    jsonw_open(&json, "data", '{');
    put_versions(&json, "supported");
    jsonw_bytes(&json, "requested", request->version);
    jsonw_close(&json, '}');
    jsonw_close(&json, '}');
    jsonw_close(&json, '}');
}

/* ---- messages -------------------------------------------------------------------------------- */

static void answer(struct own_server *server, const struct own_request *request)
{
    static const struct {
        const char *method;
        bool is_of_sessions; /* MCP 2026-07-28 no longer has it */
        void (*run)(struct own_server *server, const struct own_request *request);
    } methods[] = {{"initialize", true, initialize}, {"server/discover", false, discover},
        {"ping", true, ping}, {"tools/list", false, list}, {"tools/call", false, call}};
    if (request->version.len > 0 && !slice_is(request->version, STATELESS)) {
        refuse_version(server, request);
        return;
    }
    for (size_t i = 0; i < COUNT(methods); i++) {
        if (slice_is(request->method, methods[i].method) &&
            (request->version.len == 0 || !methods[i].is_of_sessions)) {
            methods[i].run(server, request);
            return;
        }
    }
    mcp_reply_error(&server->out, request->id, MCP_METHOD_NOT_FOUND, "there is no such method");
}

/* Appends the answer, if there is one. */
static void take_message(
    struct own_server *server, struct slice text, const struct json_value *root)
{
    const struct json_value *id = json_find(root, SLICE_LIT("id"));
    struct own_request request = {.text = text,
        .root = root,
        .params = json_find(root, SLICE_LIT("params")),
        .method = json_string(root, "method")};
    request.version = json_string(
        json_find(request.params, SLICE_LIT("_meta")), "io.modelcontextprotocol/protocolVersion");
    if (request.method.len == 0 && json_is(root, JSON_OBJECT) && id != NULL) {
        return; /* an answer: we asked nothing */
    }
    if (request.method.len == 0 ||
        (id != NULL && !json_is(id, JSON_STRING) && !json_is(id, JSON_NUMBER))) {
        mcp_reply_error(&server->out, SLICE_EMPTY, MCP_INVALID_REQUEST, "this is not a request");
        return;
    }
    if (id != NULL) {
        request.id = json_raw(text, id);
        answer(server, &request);
    } /* else a notification, and none changes anything here */
}

/* An array of messages (MCP 2025-03-26) is answered by one. */
static void take_batch(struct own_server *server, struct slice text, const struct json_value *root)
{
    size_t count = 0;
    for (uint32_t i = 0; i < root->count; i++) {
        size_t before = server->out.len;
        buf_char(&server->out, count == 0 ? '[' : ',');
        size_t begun = server->out.len;
        take_message(server, text, &root->items[i]);
        if (server->out.len == begun) {
            server->out.len = before;
        } else {
            count++;
        }
    }
    if (count > 0) {
        buf_char(&server->out, ']');
    }
}

static void take_line(struct own_server *server, struct slice line)
{
    const struct json_value *root = NULL;
    struct err err = {.status = OK};
    buf_clear(&server->out);
    arena_clear(&server->arena);
    if (json_read(line, &server->arena, &root, &err) != OK) {
        mcp_reply_error(&server->out, SLICE_EMPTY, MCP_PARSE_ERROR, err.text);
    } else if (root->type == JSON_ARRAY && root->count > 0) {
        take_batch(server, line, root);
    } else {
        take_message(server, line, root);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* False: nobody reads our answers any more. */
static bool write_answer(struct own_server *server)
{
    size_t at = 0;
    if (server->out.len == 0) {
        return true;
    }
    buf_char(&server->out, '\n');
    if (buf_status(&server->out) != OK) {
        buf_clear(&server->out);
        mcp_reply_error(&server->out, SLICE_EMPTY, MCP_INTERNAL_ERROR, "the answer is too large");
        buf_char(&server->out, '\n');
    }
    while (at < server->out.len) {
        ssize_t put = write(STDOUT_FILENO, server->out.data + at, server->out.len - at);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* A line of standard input. */
static void take_input(void *context, struct slice line)
{
    struct own_server *server = context;
    if (!server->is_alone && slice_trim(line).len > 0) {
        take_line(server, line);
        server->is_alone = !write_answer(server);
    }
}

static void take_too_long(void *context)
{
    struct own_server *server = context;
    buf_clear(&server->out);
    mcp_reply_error(&server->out, SLICE_EMPTY, MCP_INVALID_REQUEST,
        "the message is larger than Once reads (16 MiB); nothing was done");
    server->is_alone = server->is_alone || !write_answer(server);
}

static int serve(struct own_server *server, struct mcp_lines *lines)
{
    while (!server->is_alone) {
        char *room = mcp_lines_room(lines);
        if (room == NULL) {
            cli_say("out of memory");
            return CLI_UNAVAILABLE;
        }
        ssize_t got = read(STDIN_FILENO, room, MCP_LINES_CHUNK_BYTES);
        if (got > 0) {
            mcp_lines_came(lines, (size_t)got);
        } else if (got == 0 || errno != EINTR) {
            mcp_lines_end(lines);
            break; /* the client has gone */
        }
    }
    return CLI_OK;
}

static bool init(struct own_server *server, const struct cli *cli)
{
    *server = (struct own_server){.own = mem_zalloc(&mem_libc, 1, sizeof *server->own)};
    if (server->own == NULL) {
        return false;
    }
    server->own->cli = *cli;
    arena_init(&server->own->cli.arena, &mem_libc, ARENA_BYTES_MAX);
    arena_init(&server->arena, &mem_libc, TREE_BYTES_MAX);
    buf_init(&server->out, &mem_libc, 8U * ANSWER_BYTES_MAX);
    buf_init(&server->answer, &mem_libc, ANSWER_BYTES_MAX);
    return true;
}

static void release(struct own_server *server)
{
    buf_release(&server->answer);
    buf_release(&server->out);
    arena_release(&server->arena);
    arena_release(&server->own->cli.arena);
    mem_free(&mem_libc, server->own);
}

int mcp_serve(struct cli *cli)
{
    struct mcp_lines lines;
    struct own_server server;
    struct mcp_own_commands *submitted = arena_zalloc(&cli->arena, sizeof *submitted);
    if (submitted == NULL || !init(&server, cli)) {
        cli_say("out of memory");
        return CLI_UNAVAILABLE;
    }
    (void)pthread_mutex_init(&submitted->mutex, NULL);
    server.own->principal = cli_text(cli, "principal");
    server.own->agent = "";
    server.own->rights = ~0U;
    server.own->submitted = submitted;
    mcp_lines_init(&lines, &mem_libc, LIMIT_JSON_BYTES_MAX);
    lines.line = take_input;
    lines.too_long = take_too_long;
    lines.context = &server;
    int code = serve(&server, &lines);
    mcp_lines_release(&lines);
    release(&server);
    return code;
}

/* ---- a session ------------------------------------------------------------------------------- */

/* A token in the place of the one that this process was given. */
static void use_token(struct cli *cli, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    const struct option_def *option = cli->command->options;
    bool is_bearer = strncasecmp(authorization, scheme, sizeof scheme - 1) == 0;
    while (option->name != NULL && strcmp(option->name, "token") != 0) {
        option++;
    }
    if (is_bearer && option->name != NULL && cli->given_count < CLI_OPTIONS_GIVEN_MAX) {
        cli->given[cli->given_count++] =
            (struct cli_given){.option = option, .value = authorization + sizeof scheme - 1};
    }
}

static void take_parcel(
    struct own_server *server, struct mcp_channel *channel, const struct mcp_parcel *parcel)
{
    take_line(server, buf_view(&parcel->line));
    if (buf_status(&server->out) != OK) {
        buf_clear(&server->out);
        mcp_reply_error(&server->out, scan_find(buf_view(&parcel->line), "id"), MCP_INTERNAL_ERROR,
            "the answer is too large");
    }
    if (server->out.len > 0) {
        mcp_channel_send(channel, buf_view(&server->out), SLICE_EMPTY);
    }
}

void mcp_serve_session(const struct cli *cli, const struct mcp_session_facts *facts,
    struct mcp_own_commands *submitted)
{
    struct own_server server;
    struct mcp_channel *channel = facts->channel;
    const char *principal = cli_text(cli, "principal");
    if (!init(&server, cli)) {
        cli_say("out of memory");
        return;
    }
    server.own->principal = principal == NULL ? facts->principal : principal;
    server.own->agent = facts->principal;
    server.own->rights = facts->rights;
    server.own->submitted = submitted;
    use_token(&server.own->cli, facts->authorization);
    for (;;) {
        struct pollfd fd = {.fd = channel->readable, .events = POLLIN};
        (void)poll(&fd, 1, -1);
        mcp_channel_clear(channel);
        enum mcp_channel_state state =
            mcp_channel_state(channel); /* read before the last message is taken */
        struct mcp_parcel *parcel = NULL;
        while ((parcel = mcp_channel_take(channel)) != NULL) {
            take_parcel(&server, channel, parcel);
            mcp_parcel_free(channel, parcel);
        }
        if (state != MCP_CHANNEL_OPEN) {
            break;
        }
    }
    release(&server);
}
