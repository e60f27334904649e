#include "cli/serve_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/secret.h"
#include "base/text.h"
#include "cli/out.h"
#include "server/server.h"

enum {
    FAULTS_BYTES_MAX = 1 << 20,
    SHOWN_BYTES_MAX = 16 << 20, /* for a file of CONFIG_BYTES_MAX, each value with its name */
};

static int out_of_memory(void)
{
    cli_say("out of memory for the configuration");
    return CLI_UNAVAILABLE;
}

static int code_of(enum status status)
{
    return status == OK ? CLI_OK : status == E_INVALID ? CLI_CONFIG : out_of_memory();
}

static int read_file(const char *path, struct config *config, struct config_faults *faults)
{
    struct slice text = SLICE_EMPTY;
    int code = code_of(config_file_text(config, "configuration", path, &text, faults));
    return code == CLI_OK ? code_of(config_read(config, text, faults)) : code;
}

/* Everything is read: check that it is consistent, and that the store's URL is valid. */
static int check_whole(struct config *config, struct config_faults *faults)
{
    struct err err = {.status = OK};
    int code = code_of(config_check(config, faults));
    if (server_store_check(config->store, &err) != OK) {
        config_fault_at(config, faults, &config->store_at, err.hint[0] == '\0' ? NULL : err.hint,
            "%s", err.text);
        return CLI_CONFIG;
    }
    if (code == CLI_OK && server_queues_check(config, &err) != OK) {
        struct config_place nowhere = {.line = 0};
        config_fault_at(
            config, faults, &nowhere, err.hint[0] == '\0' ? NULL : err.hint, "%s", err.text);
        return CLI_CONFIG;
    }
    if (config->replays == CONFIG_REPLAYS_SOON &&
        server_store_dir(config->store, &config->arena) == NULL) {
        struct config_fault fault = {.is_warning = true, .hint = "leave it at durable"};
        config_fault_add(config, &config->warnings, &fault,
            "evidence.replays: soon has no effect on this store: it applies to the journal, and "
            "replays stay durable");
    }
    return code;
}

static void name_faults(struct config_faults *faults, size_t first, const char *path)
{
    for (size_t i = first; i < faults->count; i++) {
        faults->items[i].file = faults->items[i].line > 0 ? path : NULL;
    }
}

int serve_config_policy(const char *path, struct config *config, struct config_faults *faults)
{
    struct slice text = SLICE_EMPTY;
    size_t first = faults->count;
    int code = code_of(config_file_text(config, "policy file", path, &text, faults));
    if (code == CLI_OK) {
        code = code_of(config_policy_read(config, text, faults));
    }
    name_faults(faults, first, path);
    return code;
}

int serve_config_cases(const char *path, struct config *config, struct config_cases *ret_cases,
    struct config_faults *faults)
{
    struct slice text = SLICE_EMPTY;
    size_t first = faults->count;
    int code = code_of(config_file_text(config, "cases", path, &text, faults));
    if (code == CLI_OK) {
        code = code_of(config_cases_read(config, text, ret_cases, faults));
    }
    name_faults(faults, first, path);
    return code;
}

int serve_config_file(const char *path, struct serve_file *ret_file)
{
    struct slice text = SLICE_EMPTY;
    *ret_file = (struct serve_file){.config = NULL};
    if (config_new(&mem_libc, &ret_file->config, NULL) != OK) {
        return out_of_memory();
    }
    struct config *config = ret_file->config;
    struct config_faults *faults = &ret_file->faults;
    int code = code_of(config_file_text(config, "configuration", path, &text, faults));
    ret_file->is_policy = code == CLI_OK && config_is_policy(&mem_libc, text);
    if (ret_file->is_policy) {
        return code_of(config_policy_read(config, text, faults));
    }
    code = code == CLI_OK ? code_of(config_read(config, text, faults)) : code;
    return code == CLI_OK ? check_whole(config, faults) : code;
}

/* An option that may be given more than once. */
static enum status set_listed(struct cli *cli, const struct config_option *option,
    struct config *config, struct config_faults *faults)
{
    char name[64];
    enum status status = OK;
    const char *value = cli_nth(cli, option->flag, 0);
    (void)snprintf(name, sizeof name, "--%s", option->flag);
    for (size_t i = 0; value != NULL && status == OK; value = cli_nth(cli, option->flag, ++i)) {
        status = config_set(config, option, value, name, i > 0, faults);
    }
    return status;
}

/* once policy test runs the gateway too, with a fake upstream. */
static bool has_fake_upstream(const struct cli *cli)
{
    return strcmp(cli->command->name, "policy") == 0;
}

static bool is_gateway(const struct cli *cli)
{
    return strcmp(cli->command->name, "gateway") == 0 || has_fake_upstream(cli);
}

/* --listen and similar flags apply to the door that the command opens. */
static bool is_flag_of(const struct cli *cli, const struct config_option *option)
{
    bool is_own = option->in == 0 || is_gateway(cli);
    for (const struct config_option *o = config_gateway_options;
         is_own && option->in == 0 && is_gateway(cli) && o->path != NULL; o++) {
        is_own = o->flag == NULL || strcmp(o->flag, option->flag) != 0;
    }
    return is_own && option_find(cli->command, option->flag) != NULL;
}

static const char *given_flag(const struct cli *cli, const struct config_option *option)
{
    if (option->flag == NULL || !is_flag_of(cli, option) || !cli_flag(cli, option->flag)) {
        return NULL;
    }
    return cli_text(cli, option->flag);
}

static enum status set_one(struct cli *cli, const struct config_option *option,
    struct config *config, struct config_faults *faults)
{
    char name[64];
    const char *flag = given_flag(cli, option);
    const char *variable = option->env == NULL ? NULL : getenv(option->env);
    if (flag != NULL && (option->kind == CONFIG_LIST || option->kind == CONFIG_RULES)) {
        return set_listed(cli, option, config, faults);
    }
    if (flag != NULL) {
        (void)snprintf(name, sizeof name, "--%s", option->flag);
        return config_set(config, option, flag, name, false, faults);
    }
    if (variable != NULL && variable[0] != '\0') {
        return config_set(config, option, variable, option->env, false, faults);
    }
    return OK;
}

static void note_code(int *code, int next)
{
    if (*code == CLI_OK) {
        *code = next;
    }
}

static int set_all(struct cli *cli, const struct config_option *options, struct config *config,
    struct config_faults *faults)
{
    int code = CLI_OK;
    for (const struct config_option *o = options; o->path != NULL; o++) {
        enum status status = set_one(cli, o, config, faults);
        if (code == CLI_OK) {
            code = code_of(status);
        }
    }
    return code;
}

/* The API of a gateway is on the data directory's socket, and elsewhere only if configured: a user
 * who puts a gateway in front of an API did not ask for another port. */
static void leave_api(struct config *config)
{
    if (config->listen_count > 0 && config->listen_at[0].line == 0 &&
        getenv("ONCE_LISTEN") == NULL) {
        config->listen_count = 0;
    }
}

int serve_config(struct cli *cli, struct config **ret_config, struct config_faults *faults)
{
    struct config *config = NULL;
    const char *path = cli_text(cli, "config");
    if (config_new(&mem_libc, &config, NULL) != OK) {
        return out_of_memory();
    }
    *ret_config = config;
    config->gateway.is_on = is_gateway(cli);
    /* Every error of every source is reported; the first decides the exit code. */
    int code = path == NULL ? CLI_OK : read_file(path, config, faults);
    note_code(&code, set_all(cli, config_options, config, faults));
    note_code(&code, set_all(cli, config_gateway_options, config, faults));
    if (has_fake_upstream(cli)) {
        const struct config_option *upstream = config_option_find("gateway.upstream");
        note_code(&code, code_of(config_set(config, upstream, "http://127.0.0.1:1",
                             "the fake upstream", false, faults)));
    }
    if (is_gateway(cli)) {
        leave_api(config);
    }
    if (code == CLI_OK && option_find(cli->command, "policy") != NULL &&
        cli_text(cli, "policy") != NULL) {
        code = serve_config_policy(cli_text(cli, "policy"), config, faults);
    }
    return code == CLI_OK ? check_whole(config, faults) : code;
}

/* ---- printing ---------------------------------------------------------------------------- */

void serve_faults_put(struct buf *out, const char *path, const struct config_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        config_fault_put(out, path, &faults->items[i]);
    }
    if (faults->more > 0) {
        buf_printf(out, "once: and %zu more\n", faults->more);
    }
}

void serve_faults_say(const char *path, const struct config_faults *faults)
{
    struct buf out;
    buf_init(&out, &mem_libc, FAULTS_BYTES_MAX);
    serve_faults_put(&out, path, faults);
    struct slice text = buf_view(&out);
    (void)!write(STDERR_FILENO, text.data, text.len); /* there is nowhere to report a failure */
    buf_release(&out);
}

void serve_faults_json(struct jsonw *json, const char *name, const struct config_faults *faults)
{
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < faults->count; i++) {
        const struct config_fault *fault = &faults->items[i];
        jsonw_open(json, NULL, '{');
        jsonw_str_some(json, "file", fault->file);
        if (fault->line > 0) {
            jsonw_u64(json, "line", fault->line);
            jsonw_u64(json, "column", fault->column);
        }
        jsonw_str(json, "message", fault->text);
        jsonw_str_some(json, "hint", fault->hint);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
}

static int show_json(
    const char *path, const struct config *config, const struct config_faults *faults)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, SHOWN_BYTES_MAX);
    jsonw_str_some(json, "file", path);
    jsonw_bool(json, "ok", faults->count == 0);
    serve_faults_json(json, "faults", faults);
    serve_faults_json(json, "warnings", &config->warnings);
    if (faults->count == 0) {
        jsonw_open(json, "settings", '{');
        config_put_server(json, config);
        jsonw_close(json, '}');
        serve_gateway_json(json, config);
        serve_work_json(json, config);
    }
    return out_json_end(&whole);
}

static void show_text(const char *path, const struct config *config)
{
    char store[SECRET_URL_BYTES_MAX];
    out_text("%s: ok\n", path == NULL ? "no file, defaults" : path);
    for (size_t i = 0; i < config->listen_count; i++) {
        bool is_unix = config_address(config->listen[i]) == CONFIG_ADDRESS_UNIX;
        out_text("%-8s%s%s\n", "listen", config->listen[i],
            config->tls_cert != NULL && !is_unix ? " (TLS)" : "");
    }
    out_text("%-8s%s\n", "store", secret_url_put(store, config->store));
    if (config->has_auth) {
        out_text("%-8s%s\n", "auth", COUNTED(config->token_count, "token", "tokens"));
    } else {
        out_text("%-8soff: every client is tenant default, with every right\n", "auth");
    }
    serve_gateway_text(config);
    serve_work_text(config);
}

int serve_config_show(struct cli *cli, const char *path, const struct config *config,
    const struct config_faults *faults)
{
    if (cli->json) {
        return show_json(path, config, faults);
    }
    serve_faults_say(path, &config->warnings);
    show_text(path, config);
    return out_finish();
}
