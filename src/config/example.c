/* The example file: every setting with its default, what it costs, and what to do if unsure. */
#include <stdio.h>
#include <string.h>

#include "config/impl.h"

enum { COLUMNS = 98 };

/* A paragraph as comment lines. */
static void put_prose(struct buf *out, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > COLUMNS) {
            buf_char(out, '\n');
            column = 0;
        }
        buf_str(out, column == 0 ? "# " : " ");
        buf_slice(out, slice_of(text, word));
        column += (column == 0 ? 2 : 1) + word;
        text += word + (text[word] == ' ');
    }
    buf_char(out, '\n');
}

static void put_facts(struct buf *out, const struct config_option *option)
{
    char line[512];
    const char *absent = option->absent == NULL ? "not set by default" : option->absent;
    (void)snprintf(line, sizeof line, "%s: %s%s%s%s%s%s%s.", option->path,
        option->fallback == NULL && option->absent == NULL ? "" : "default ",
        option->fallback == NULL ? absent : option->fallback, option->env == NULL ? "" : "; also $",
        option->env == NULL ? "" : option->env, option->flag == NULL ? "" : ", --",
        option->flag == NULL ? "" : option->flag,
        option->at_start ? "; a change needs a restart" : "");
    put_prose(out, line);
}

static void put_tokens(struct buf *out)
{
    buf_str(out,
        "#  tokens:\n"
        "#    - sha256: \"0000000000000000000000000000000000000000000000000000000000000000\"\n"
        "#      tenant: acme\n"
        "#      rights: [execute, operate, audit, confirm]\n"
        "#      name: checkout service\n");
}

/* Whether it is a setting of a route or of an entry: their example is shown as a whole. */
static bool is_inner(const struct config_option *option)
{
    return option->in == CONFIG_IN_ROUTE || (option->in & (CONFIG_IN_ENTRY | CONFIG_IN_QUEUE)) != 0;
}

/* Write the help text, then the setting at its place. */
static void put_option(struct buf *out, const struct config_option *option)
{
    char unsure[512];
    const char *dot = strrchr(option->path, '.');
    size_t depth = 0;
    for (const char *c = option->path; *c != '\0'; c++) {
        depth += *c == '.';
    }
    put_facts(out, option);
    put_prose(out, option->help);
    (void)snprintf(unsure, sizeof unsure, "If unsure: %s", option->unsure);
    put_prose(out, unsure);
    if (option->kind == CONFIG_OWN && !is_inner(option)) {
        put_tokens(out);
    } else if (!is_inner(option)) {
        buf_printf(out, "#%*s%s: %s\n", (int)(2 * depth), "", dot == NULL ? option->path : dot + 1,
            option->fallback == NULL ? option->example : option->fallback);
    }
    buf_char(out, '\n');
}

/* Open the maps that begin with this setting: "gateway", "timeout". */
static void put_maps(struct buf *out, const char *path, const char *before)
{
    size_t depth = 0;
    for (const char *dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        size_t len = (size_t)(dot - path) + 1;
        const char *name = dot;
        while (name > path && name[-1] != '.') {
            name--;
        }
        if (strncmp(path, before, len) != 0) {
            buf_printf(out, "#%*s%.*s:\n", (int)(2 * depth), "", (int)(dot - name), name);
        }
        depth++;
    }
}

static void put_options(struct buf *out, const struct config_option *options, bool inner)
{
    const char *before = "";
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (o->help != NULL && is_inner(o) == inner) {
            put_maps(out, inner ? "" : o->path, before);
            put_option(out, o);
            before = o->path;
        }
    }
}

/* The settings of named entries that belong in exactly these places. */
static void put_rows(struct buf *out, const struct config_option *options, unsigned in)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (o->help != NULL && o->in == in) {
            put_option(out, o);
        }
    }
}

static void put_routes(struct buf *out)
{
    put_prose(out,
        "gateway.routes: by default one route for every path. The first route that matches a "
        "request applies. Requests that match no route pass through, not fenced. A route needs a "
        "match. It may have any setting above except those of the whole gateway (listen, tls, "
        "health, spool_dir, spool_memory, spool_max, connections_max, idle), and its own "
        "settings override the section's. SIGHUP reads routes again.");
    put_prose(out, "If unsure: Leave it out: every path is fenced.");
    buf_str(out, "#  routes:\n"
                 "#    - match: \"POST,PUT /v1/payments/**\"\n"
                 "#      upstream: http://127.0.0.1:3000\n"
                 "#      profile: guardia\n"
                 "#      timeout: {total: 20s}\n"
                 "#    - match: /hooks/**\n"
                 "#      kind: webhook\n"
                 "#      key: {header: X-GitHub-Delivery}\n"
                 "#      principal: none\n"
                 "#      window: 14d\n"
                 "#    - match: /v1/**\n"
                 "\n");
    put_options(out, config_gateway_options, true);
}

static void put_commands(struct buf *out)
{
    put_prose(out,
        "commands: the registry of intents that agents and chat systems submit to POST "
        "/v1/commands, by entity.action. once registry lists it; SIGHUP reads it again.");
    buf_str(out, "#commands:\n"
                 "#  order.refund:\n"
                 "#    class: I3\n"
                 "#    justification: \"the provider has no idempotency keys\"\n"
                 "#    shield: [S3]\n"
                 "#    critical: true\n"
                 "#    ttl: 72h\n"
                 "#    confirm: confirm\n"
                 "#    prompt: \"Refund order {target.order_id}?\"\n"
                 "#    handler: http://127.0.0.1:9000/refund\n"
                 "#    redact: [/args/card]\n"
                 "#    args:\n"
                 "#      amount: {type: integer, required: true, min: 1}\n"
                 "#      currency: {type: string, required: true, normalise: upper}\n"
                 "#      card: {type: string}\n"
                 "#  order.cancel:\n"
                 "#    handler: http://127.0.0.1:9000/cancel\n"
                 "#    effects:\n"
                 "#      - effect: payment.refund\n"
                 "#        payload: {charge: \"{outcome.charge}\", amount: \"{outcome.amount}\"}\n"
                 "#  message.received: {class: I1, handler: \"http://127.0.0.1:9000/message\"}\n"
                 "\n");
    put_options(out, config_command_options, true);
}

static void put_sources(struct buf *out)
{
    put_prose(out,
        "inbox: sources of webhooks and events, by name. The sender posts to /in/NAME on the API's "
        "address. SIGHUP reads them, and their secrets, again.");
    buf_str(out, "#inbox:\n"
                 "#  sources:\n"
                 "#    shop-payments:\n"
                 "#      preset: stripe\n"
                 "#      secrets: [{file: /run/secrets/whsec}, {env: OLD_WHSEC}]\n"
                 "#      handler: http://127.0.0.1:9000/stripe\n"
                 "#      order: {source_id: /data/object/id, version: /created}\n"
                 "#      tenant: acme\n"
                 "#    whatsapp:\n"
                 "#      preset: meta\n"
                 "#      secrets: [{file: /run/secrets/meta}]\n"
                 "#      command: message.received\n"
                 "#      envelope:\n"
                 "#        actor_id: \"{event.entry.0.changes.0.value.messages.0.from}\"\n"
                 "#        target: {phone: "
                 "\"{event.entry.0.changes.0.value.metadata.phone_number_id}\"}\n"
                 "#        args: {text: \"{event.entry.0.changes.0.value.messages.0.text.body}\"}\n"
                 "\n");
    put_rows(out, config_source_options, CONFIG_IN_ENTRY);
    put_rows(out, config_source_options, CONFIG_IN_ENTRY | CONFIG_IN_QUEUE);
    put_prose(out,
        "inbox.queues: brokers whose messages are events, by name. A queue has the settings "
        "below, and those of a source except preset, secrets, mode, verify_token and signature. "
        "A source and a queue cannot have the same name. SIGHUP reads them again.");
    buf_str(out, "#  queues:\n"
                 "#    orders:\n"
                 "#      from: redis://127.0.0.1:6379/orders?group=once\n"
                 "#      format: cloudevents\n"
                 "#      handler: http://127.0.0.1:9000/orders\n"
                 "\n");
    put_rows(out, config_source_options, CONFIG_IN_QUEUE);
}

static void put_effects(struct buf *out)
{
    put_prose(out,
        "connectors: how effects reach one provider, by name. Changes are recorded in the "
        "evidence. Secrets are read from files and variables; SIGHUP reads all of it again.");
    buf_str(out, "#connectors:\n"
                 "#  pay:\n"
                 "#    url: https://api.pay.example\n"
                 "#    auth: {bearer_file: /run/secrets/pay}\n"
                 "#    idempotency: {header: Idempotency-Key, keeps: 24h}\n"
                 "#    lookup: {get: \"/v1/charges/by-key/{idempotency_key}\"}\n"
                 "#    rate: 50\n"
                 "\n");
    put_options(out, config_connector_options, true);
    put_prose(out,
        "effects: the types of effect that POST /v1/effects takes, by name. A type that cannot "
        "be protected against a lost answer does not load.");
    buf_str(out, "#effects:\n"
                 "#  payment.capture:\n"
                 "#    connector: pay\n"
                 "#    request: {path: \"/v1/charges/{target.order_id}\"}\n"
                 "#    provider_ref: /id\n"
                 "#    irreversible: true\n"
                 "#    compensate:\n"
                 "#      effect: payment.refund\n"
                 "#      payload: {charge: \"{provider_ref}\", amount: \"{payload.amount}\"}\n"
                 "#    redact: [/card]\n"
                 "#  payment.refund:\n"
                 "#    connector: pay\n"
                 "#    request: {path: /v1/refunds}\n"
                 "\n");
    put_options(out, config_effect_options, true);
}

static void put_mcp(struct buf *out)
{
    put_prose(out,
        "mcp: how once mcp --config FILE treats the tools of an MCP server, by name. A star is any "
        "run of characters; the first entry that matches a tool applies to it. Tools that their "
        "server marks as read-only always pass. once serve ignores this section.");
    buf_str(out, "#mcp:\n"
                 "#  tools:\n"
                 "#    send_*: {key: require, window: 24h}\n"
                 "#    search: {key: pass}\n"
                 "\n");
    put_options(out, config_mcp_tool_options, true);
}

void config_example_put(struct buf *out)
{
    put_prose(out,
        "once.yaml: every setting of once serve and once gateway, commented out, with its default. "
        "A comment begins with a hash and a space, a setting with a hash alone. To set one, remove "
        "that hash and the one before the name of its section.");
    buf_str(out, "#\n");
    put_prose(out,
        "Flags override ONCE_* variables, variables override this file, and this file overrides "
        "the defaults. Unknown settings are errors. Durations: 300ms, 30s, 5m, 24h, 14d. Sizes: "
        "64KiB, 10MiB. Paths are relative to the directory in which the server is started. once "
        "check once.yaml checks this file; kill -HUP applies changes that need no restart.");
    buf_char(out, '\n');
    put_options(out, config_options, false);
    put_prose(out,
        "The gateway stands in front of an API and makes it idempotent. Its flags belong to once "
        "gateway.");
    put_options(out, config_gateway_options, false);
    put_routes(out);
    put_commands(out);
    put_sources(out);
    put_effects(out);
    put_mcp(out);
}
