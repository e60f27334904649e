/*
 * The table of every command, option and exit code, with its help text. Parser, help, manual page,
 * docs/cli.md and completions come from it. Texts that several commands share are macros. A command
 * has a text, options, exit codes, examples, and a row in `commands`. The file is past 800 lines
 * because it is one table: a command would be harder to find in two.
 */
#include "cli/commands.h"

#include <stdint.h>
#include <string.h>

/* ---- rows -------------------------------------------------------------------------------- */

/* An option: its name, the name of its argument, its help; then other members as needed. */
#define OPTION(kind_, name_, argument_, ...)                                                       \
    {                                                                                              \
        .name = name_, .kind = kind_, .argument = argument_, .help = __VA_ARGS__                   \
    }
#define FLAG(name_, ...)     OPTION(OPTION_FLAG, name_, NULL, __VA_ARGS__)
#define TEXT(...)            OPTION(OPTION_TEXT, __VA_ARGS__)
#define PATH(name_, ...)     OPTION(OPTION_FILE, name_, "FILE", __VA_ARGS__)
#define DURATION(name_, ...) OPTION(OPTION_DURATION, name_, "TIME", __VA_ARGS__)
#define SIZE(...)            OPTION(OPTION_SIZE, __VA_ARGS__)
#define NUMBER(...)          OPTION(OPTION_COUNT, __VA_ARGS__)
#define CHOICE(...)          OPTION(OPTION_CHOICE, __VA_ARGS__)

/* ---- rows that several commands share ---------------------------------------------------- */

#define OPT_STORE                                                                                  \
    TEXT("store", "URL",                                                                           \
        "where operations are remembered: journal:DIRECTORY or just a directory, postgres://… "  \
        "or redis://…",                                                                            \
        .fallback = "journal:./once-data", .env = "ONCE_STORE")
/* A paragraph for the commands about records that Once executes itself. */
#define NAMED_BY_BEGINNING                                                                         \
    "The beginning of the id is enough if no other begins with it. If several do, they are "       \
    "listed and nothing changes."
/* For the commands that read or settle operations. */
#define OPT_SERVER                                                                                 \
    TEXT("server", "URL",                                                                          \
        "ask this server instead: http://HOST:PORT, https://HOST or unix:PATH. Not "               \
        "needed on the server's machine: its socket in the store's directory is found",            \
        .env = "ONCE_SERVER"),                                                                     \
        TEXT("token", "TOKEN",                                                                     \
            "the bearer token for --server; prefer the variable, because every user of "           \
            "this machine can see a command line",                                                 \
            .env = "ONCE_TOKEN"),                                                                  \
        PATH("cacert",                                                                             \
            "PEM file with the certificate authorities for --server; by default the system's",     \
            .env = "ONCE_CACERT"),                                                                 \
        TEXT("tenant", "NAME",                                                                     \
            "the tenant, with a store or a server's socket; otherwise the token determines it",    \
            .fallback = "default", .env = "ONCE_TENANT")
/* What commands that change many effects have in common. */
#define MANY_EFFECTS(verbs_, which_)                                                               \
    "Without an id, or with the word effects, once " verbs_ " every " which_ " that the filters "  \
    "match; --scope is the type of an effect. --dry-run lists them, --yes " verbs_ " them; "       \
    "without either, once asks on a terminal and refuses elsewhere. Each one has its own "         \
    "evidence; one that has changed meanwhile is reported and stays as it is. If the "             \
    "server cannot be reached, once says how far it got; run the same line again to "              \
    "continue with the rest."
/* Selects the operations of a command; read by filter.c. */
#define OPT_FILTER                                                                                 \
    TEXT("scope", "SCOPE", "only operations in this scope"),                                       \
        TEXT("key", "KEY", "only operations with this key"),                                       \
        TEXT("principal", "WHO", "only operations that belong to this principal"),                 \
        DURATION("since", "only operations that changed within this time, such as 2h"),            \
        DURATION("older-than", "only operations that have not changed for this time, such as 2h")
#define OPT_JSON        FLAG("json", "print JSON instead of text")
#define OPT_CONFIG(...) PATH("config", __VA_ARGS__, .letter = 'c', .env = "ONCE_CONFIG")
#define OPT_PROFILE                                                                                \
    CHOICE("profile", "NAME", "how keys are required and what refusals look like", .letter = 'p',  \
        .fallback = "ietf", .env = "ONCE_GATEWAY_PROFILE",                                         \
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"})
#define OPT_POLICY                                                                                 \
    PATH("policy", "a policy in the format of idempotency.yml; routes may override it",            \
        .env = "ONCE_GATEWAY_POLICY")
/* For both servers. */
#define OPT_SERVING                                                                                \
    FLAG("test", "check the whole configuration, open nothing, and exit", .letter = 't'),          \
        NUMBER("loops", "N", "threads that serve connections; 0: as many as the load needs",       \
            .fallback = "0", .env = "ONCE_LOOPS"),                                                 \
        DURATION("drain", "how long requests in flight may take to finish after a signal to stop", \
            .fallback = "10s", .env = "ONCE_DRAIN"),                                               \
        CHOICE("log-level", "LEVEL", "the lowest level that is logged", .fallback = "info",        \
            .env = "ONCE_LOG_LEVEL", .choices = {"debug", "info", "warn", "error"}),               \
        CHOICE("log-format", "FORM",                                                               \
            "format of the log; auto is human on a terminal and json otherwise",                   \
            .fallback = "auto", .env = "ONCE_LOG_FORMAT", .choices = {"auto", "json", "human"}),   \
        FLAG("json", "print the lines at start, or the result of --test, as JSON")

#define EXIT(code_, meaning_)                                                                      \
    {                                                                                              \
        .code = code_, .meaning = meaning_                                                         \
    }
#define EXIT_FINE      EXIT(0, "done")
#define EXIT_BAD_USAGE EXIT(64, "invalid command line")
#define EXIT_NO_STORE                                                                              \
    EXIT(69, "the store cannot be used: missing, locked by another process, or no permission")
#define EXIT_CORRUPT_STORE EXIT(65, "the store is damaged; run once verify")
#define EXIT_NO_SERVER                                                                             \
    EXIT(69, "the store or the server cannot be used: missing, locked, no permission, no answer")
#define EXIT_NOT_ALLOWED  EXIT(77, "the token is missing or lacks the right")
#define EXIT_NO_OUTPUT    EXIT(74, "standard output could not be written")
#define EXIT_BAD_VARIABLE EXIT(78, "an ONCE_* variable is invalid")

static const struct exit_def looking_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_CORRUPT_STORE,
    EXIT_NO_STORE, EXIT_NO_OUTPUT, EXIT_BAD_VARIABLE, {0}};

/* ---- run --------------------------------------------------------------------------------- */

static const char *const run_text[] = {
    "Runs the command if it has not run under this key, and records its standard output, "
    "standard error and exit code. A duplicate runs nothing: it prints the same bytes to the "
    "same streams and exits with the same code. Every exit code is final and replayed, including "
    "failures (but see --retry-failed).",
    "The same key with a different command is a conflict and is refused. Compared are the "
    "command and its arguments, the working directory (unless --ignore-cwd), and the variables "
    "named with --env. Standard input is passed to the command and not compared. The store keeps "
    "what is compared, to explain conflicts, so do not put secrets on the command line.",
    "If once cannot know whether the command did its work (it was killed by a signal, or once "
    "itself was), the operation is unknown. Once never runs it again on its own: the next call "
    "exits with 75 and says how to check what happened and how to settle it with once resolve. "
    "If once is killed with SIGKILL, the command may keep running, and its end is not recorded.",
    "The store is locked only briefly, before and after the command and to renew the lease, so "
    "any number of commands can run concurrently. Output is shown as it arrives. The command "
    "writes to pipes instead of a terminal, and its environment has ONCE_OPERATION_ID, "
    "ONCE_FENCE, ONCE_ATTEMPT and ONCE_IDEMPOTENCY_KEY. SIGHUP, SIGINT, SIGQUIT, SIGTERM, "
    "SIGUSR1 and SIGUSR2 are passed on to it.",
    "All of this holds through a server too, named with --server or found because it holds the "
    "store: of any number of machines, one runs the command. If the server cannot be reached "
    "before the command starts, the command is not run (exit 125). Afterwards once tries to "
    "record its end for a minute, or for as long as the lease if that is longer; then the "
    "operation is unknown.",
    "With --json, output is not shown as it arrives. Instead, one document on standard output "
    "has the decision, the operation, the exit code and the command's output.",
    NULL,
};

static const struct option_def run_options[] = {
    TEXT("idempotency-key", "KEY", "the key that names this operation, at most 255 bytes",
        .letter = 'k', .required = true),
    TEXT("scope", "SCOPE", "the namespace of the key", .fallback = "run", .env = "ONCE_SCOPE"),
    TEXT("principal", "WHO", "whom the operation belongs to; two principals may use the same key",
        .env = "ONCE_PRINCIPAL"),
    DURATION("ttl", "how long duplicates are recognised after the command has ended",
        .fallback = "24h", .env = "ONCE_TTL"),
    DURATION("lease",
        "if once dies, how long until the operation is unknown; renewed while the command runs",
        .fallback = "30s", .env = "ONCE_LEASE"),
    CHOICE("on-unknown", "WHAT",
        "if an earlier run is unknown: hold refuses, takeover runs the command again (only for "
        "commands that are safe to repeat)",
        .fallback = "hold", .env = "ONCE_ON_UNKNOWN", .choices = {"hold", "takeover"}),
    FLAG("retry-failed", "run the command again if it ended with an exit code other than 0"),
    DURATION("wait",
        "how long to wait if the operation is in progress elsewhere, or a different process has "
        "locked the store (then at least 5s)",
        .fallback = "10s", .env = "ONCE_WAIT"),
    TEXT("env", "NAME", "also compare the value of this variable; may be repeated",
        .repeated = true),
    FLAG("ignore-cwd", "do not compare the working directory"),
    SIZE("max-output", "SIZE",
        "how much output is recorded, at most 15MiB; beyond it the command keeps running, and a "
        "replay says how much is missing",
        .fallback = "8MiB", .env = "ONCE_MAX_OUTPUT"),
    TEXT("request-id", "ID", "an id for this call in the evidence", .env = "ONCE_REQUEST_ID"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def run_exits[] = {
    EXIT(0, "the command's own exit code, run or replayed; the same for any code not listed here"),
    EXIT_BAD_USAGE, EXIT(65, "conflict: the key was used with a different command"),
    EXIT(74, "the command exited with 0, but its output could not be written here; it is recorded"),
    EXIT(75, "in progress elsewhere, or unknown"), EXIT_BAD_VARIABLE,
    EXIT(125, "once itself failed; the message says whether the command ran"),
    EXIT(126, "the command cannot be executed; the key is free"),
    EXIT(127, "the command was not found; the key is free"), {0}};

static const struct example_def run_examples[] = {
    {"once run --idempotency-key nightly-42 -- ./charge.sh",
        "run ./charge.sh once, however often this line runs"},
    {"once run -k invoice-7 --env AMOUNT --ttl 30d -- ./send-invoice 7",
        "remember it for 30 days; a different AMOUNT under the same key is refused"},
    {"once run -k nightly-42 --server https://once.example -- ./charge.sh",
        "the same on any number of machines: one of them runs it"},
    {0},
};

/* ---- mcp --------------------------------------------------------------------------------- */

static const char *const mcp_text[] = {
    "Starts the command, an MCP server on standard input and output, and passes messages between "
    "it and the client. A repeated tool call (its answer was lost, or an agent asked again) "
    "takes effect once: the server gets the first call, and the others get its result, with "
    "\"io.once/decision\" in its _meta. Everything else passes unchanged, in both directions. "
    "Put this command in place of the server's in the client's configuration.",
    "With --upstream the server is a URL that speaks streamable HTTP, of protocol 2026-07-28 or "
    "of the sessions of 2025-11-25, 2025-06-18 and 2025-03-26. A stream that breaks is resumed "
    "where the server allows it.",
    "With --listen any number of clients connect over streamable HTTP, instead of using standard "
    "input and output. Each session has its own server; messages of protocol 2026-07-28 with the "
    "same credentials share one. Keys belong to a client's credentials, unless --principal is "
    "given, and may also be in the header Idempotency-Key.",
    "With --serve Once is the server: it has tools to begin and seal operations, to submit and "
    "confirm commands, and to show what happened to them, with the rights of --token.",
    "In tools/list once adds two optional arguments, idempotency_key and request_id, which the "
    "server does not see, and idempotentHint to every tool that is not marked as read-only. A "
    "key names one call of one tool. The same key with different arguments is an error that says "
    "what differs. Without a key, the tool and its arguments name the call for two minutes; "
    "--config sets this for each tool (mcp: in once.yaml).",
    "If the server got a call and did not answer, because it died or stayed silent, the call is "
    "unknown: the model is told not to repeat it, and how a person settles it with once resolve. "
    "The same holds if once mcp is killed. Messages go to standard error, like the server's own.",
    NULL,
};

static const struct option_def mcp_options[] = {
    OPT_CONFIG("the configuration; only its section mcp is used, and auth with --listen"),
    TEXT("upstream", "URL", "the server, over streamable HTTP, instead of COMMAND"),
    FLAG("serve", "be an MCP server with Once's own tools"),
    TEXT("listen", "ADDRESS",
        "let clients connect over streamable HTTP, at http://ADDRESS/mcp, such as 127.0.0.1:7420; "
        "an address that other machines can reach needs tokens (auth: in --config)"),
    TEXT("origin", "URL",
        "with --listen: the origin of web pages that may use it, such as https://app.example; "
        "pages of this machine always may; may be repeated",
        .repeated = true),
    TEXT("header", "LINE",
        "a header of each request to --upstream, such as 'Authorization: Bearer …'; or @FILE with "
        "one header per line, to hide them from other users of this machine; may be repeated",
        .letter = 'H', .repeated = true),
    TEXT("principal", "WHO", "whom the calls belong to; two principals may use the same key",
        .env = "ONCE_PRINCIPAL"),
    TEXT("prefix", "TEXT",
        "text before each tool's name in the scope of its keys: for several servers that share a "
        "store and have tools of the same name",
        .fallback = ""),
    OPT_STORE,
    OPT_SERVER,
    {0},
};

static const struct exit_def mcp_exits[] = {
    EXIT(0, "the server's own exit code; the same for any code not listed here"), EXIT_BAD_USAGE,
    EXIT(78, "the configuration or an ONCE_* variable is invalid"), EXIT(125, "once itself failed"),
    EXIT(126, "the command cannot be executed"), EXIT(127, "the command was not found"), {0}};

static const struct example_def mcp_examples[] = {
    {"once mcp -- npx -y @example/payments-mcp",
        "instead of the server's command in the client's configuration"},
    {"once mcp --config once.yaml --store ~/.once/payments -- ./payments-mcp",
        "a policy for each tool, and a separate store"},
    {"once mcp --upstream https://mcp.example/mcp --header @/home/ann/.once/mcp-headers",
        "a server over HTTP, with a token from a file"},
    {"once mcp --listen 127.0.0.1:7420 -- npx -y @example/payments-mcp",
        "for clients that connect to http://127.0.0.1:7420/mcp"},
    {"once mcp --serve --server https://once.example",
        "Once itself as a server; the token is in ONCE_TOKEN"},
    {0},
};

/* ---- send -------------------------------------------------------------------------------- */

static const char *const send_text[] = {
    "Sends one HTTP request so that it takes effect once: the SDK (once/client.h) for the shell. "
    "Every attempt carries the same key. Without --idempotency-key one is generated and printed "
    "to standard error before anything is sent, so that you can send the same operation again "
    "whatever happens. GET, HEAD, OPTIONS and TRACE change nothing and carry no key. The server "
    "must honour Idempotency-Key: the Once gateway, or an API that supports it.",
    "It retries, with growing random pauses, when there is no connection, no answer or only part "
    "of one; after 408, 429 and 5xx; and while the operation is in progress or unknown, because "
    "it may be settled meanwhile. It honours Retry-After. It does not retry after a conflict, a "
    "replayed failure, an invalid certificate or any other answer, and does not follow "
    "redirects. Each attempt has its own Request-Id; with --request-id R the first has R, the "
    "next R.2, and so on.",
    "The body of the answer goes to standard output. On a terminal, or with --verbose, each "
    "attempt is reported on standard error. With --json, one document has the status, the "
    "headers, the body, the key, what is known about the effect, and whether the answer was "
    "replayed.",
    NULL,
};

static const struct option_def send_options[] = {
    TEXT("data", "WHAT",
        "the body: @FILE, - for standard input, or the text itself; it is sent as "
        "application/json unless --header 'Content-Type: ...' says otherwise",
        .letter = 'd'),
    TEXT("header", "LINE",
        "a header, as 'Name: value'; or @FILE with one header per line, to hide them from "
        "other users of this machine; may be repeated",
        .letter = 'H', .repeated = true),
    TEXT("idempotency-key", "KEY",
        "the key that names this operation, at most 255 bytes; generated by default",
        .letter = 'k'),
    TEXT("request-id", "ID", "an id for the first attempt; by default each attempt gets a new one",
        .env = "ONCE_REQUEST_ID"),
    NUMBER("retries", "N", "how many attempts may follow the first", .fallback = "5"),
    DURATION("deadline", "time limit for all attempts and pauses together", .fallback = "60s"),
    DURATION("timeout", "time limit for one attempt", .fallback = "30s"),
    PATH("cacert",
        "PEM file with the certificate authorities for the server; by default the system's",
        .env = "ONCE_CACERT"),
    FLAG("verbose", "report each attempt, and whether the answer was replayed", .letter = 'v'),
    OPT_JSON,
    {0},
};

static const struct exit_def send_exits[] = {EXIT(0, "the answer is 2xx, first or replayed"),
    EXIT(64, "invalid command line; nothing was sent"),
    EXIT(65, "a conflict, any other 4xx, or a redirect (3xx)"),
    EXIT(69, "unavailable: every attempt failed, and none took effect"),
    EXIT(74, "the body could not be written here, or is too large; the operation took effect"),
    EXIT(75, "in progress or unknown: send it again with the same key"), EXIT_BAD_VARIABLE, {0}};

static const struct example_def send_examples[] = {
    {"once send POST http://127.0.0.1:8080/charges -k order-7 -d '{\"cents\":1200}'",
        "charge once, however often this line runs"},
    {"once send PUT https://api.example/things/7 --data @thing.json --retries 10 --deadline 5m",
        "retry for up to five minutes"},
    {0},
};

/* ---- commands that read ------------------------------------------------------------------ */

static const char *const ls_text[] = {
    "Lists operations, the latest change first. --json prints an array of objects. With "
    "--all-tenants each line begins with the tenant.",
    "With --status unknown each line shows how long the operation has been unknown and why. With "
    "--json these are unknown_since, age_ms and reason. On a terminal a long reason is truncated.",
    "If a server holds the store, the server is asked through its socket in the store's "
    "directory, so that only durable operations are shown. Otherwise the store itself is read.",
    "once ls targets lists the connectors and handlers that a server calls by itself, and whether "
    "their breakers are closed, open or half_open.",
    NULL,
};

static const struct option_def ls_options[] = {
    TEXT("status", "STATUS", "only those with this status, such as unknown or blocked"),
    OPT_FILTER,
    NUMBER("limit", "N", "at most N operations; 0 means all", .fallback = "0"),
    FLAG("all-tenants", "of every tenant, with a store or a server's socket"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def ls_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_CORRUPT_STORE,
    EXIT_NO_SERVER, EXIT_NO_OUTPUT, EXIT_NOT_ALLOWED, EXIT_BAD_VARIABLE, {0}};

static const struct example_def ls_examples[] = {
    {"once ls --status unknown", "operations that need manual resolution"},
    {"once ls --server https://once.example",
        "operations of a server, with the token in ONCE_TOKEN"},
    {0},
};

static const struct exit_def found_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "no such operation, or the store is damaged"), EXIT_NO_SERVER, EXIT_NO_OUTPUT,
    EXIT_NOT_ALLOWED, EXIT_BAD_VARIABLE, {0}};

static const char *const show_text[] = {
    "Shows the record of one operation, named by its id, by the beginning of its id, or by "
    "--key, which is looked up in every scope and for every principal unless --scope and "
    "--principal are given. If several match, they are listed and nothing is shown. For an "
    "operation of once run, the recorded output is shown too. With --json, an outcome that was "
    "JSON is printed byte for byte, and so is a first request that was JSON with a canonical "
    "form; anything else is text or base64.",
    "With the id of a command (cmd_), an effect (eff_) or a delivery (dlv_), or the beginning of "
    "one, it shows that, as the server does.",
    NULL,
};

static const struct option_def show_options[] = {
    TEXT("key", "KEY", "the key, instead of an operation id"),
    TEXT("scope", "SCOPE", "the scope of --key; by default any"),
    TEXT("principal", "WHO", "the principal of --key; by default any"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct example_def show_examples[] = {
    {"once show --key nightly-42", "what happened to that run"},
    {0},
};

static const char *const why_text[] = {
    "Explains how an operation got to its current status: the first request under the key, every "
    "decision in order with the rule that led to it, and what to do next. The operation is named "
    "as for once show.",
    NULL,
};

static const struct example_def why_examples[] = {
    {"once why --key nightly-42", "how did that run get to its status?"},
    {0},
};

static const char *const tail_text[] = {
    "Prints the last evidence entries, oldest first, one per line. With --json each line is the "
    "full document of an entry; docs/formats/evidence.md says how its hash follows from it.",
    "With --checkpoint, prints the newest signed checkpoint instead, byte for byte. Keep it on "
    "another machine: once verify --checkpoint then reveals a journal that was truncated, "
    "replaced by an older copy, or rewritten.",
    "Reading evidence through a server leaves an access.read entry. Those of this reader are not "
    "printed.",
    "With --all-tenants each line begins with the tenant; * stands for entries about the whole "
    "store, which no tenant sees: evidence.archived, evidence.interrupted, and some of "
    "config.changed and access.read.",
    NULL,
};

static const struct option_def tail_options[] = {
    NUMBER("lines", "N", "how many entries", .letter = 'n', .fallback = "10"),
    FLAG("follow", "keep printing new entries until interrupted", .letter = 'f'),
    TEXT("operation", "ID", "only entries of this operation"),
    FLAG("checkpoint", "print the newest signed checkpoint, to be kept elsewhere"),
    FLAG("all-tenants", "of every tenant, with a store or a server's socket"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def tail_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_CORRUPT_STORE,
    EXIT(69, "the store or the server cannot be used, or there is no checkpoint yet"),
    EXIT_NO_OUTPUT, EXIT_NOT_ALLOWED, EXIT_BAD_VARIABLE, {0}};

static const struct example_def tail_examples[] = {
    {"once tail -f", "watch decisions as they are made"},
    {"once tail --checkpoint | ssh elsewhere 'cat > note'", "keep a checkpoint on another machine"},
    {0},
};

/* ---- resolve ----------------------------------------------------------------------------- */

static const char *const resolve_text[] = {
    "Settles an unknown operation after somebody has found out whether its effect happened. "
    "executed and failed are final: duplicates get the outcome given here. not_executed frees "
    "the key: the next call runs.",
    "The id may also be that of an uncertain effect, of a delivery, or of a blocked command: "
    "not_executed calls its handler again, and the JSON of --outcome is what duplicates get.",
    "For an operation of a gateway, --http-status with --header and --outcome is the answer that "
    "duplicates get, byte for byte. Without --http-status they get 200, or 422 for failed, with "
    "the JSON of --outcome, or with the operation's id and status. They never get --reason.",
    "Without an id, every unknown operation that the filters match is settled: --dry-run lists "
    "them, --yes settles them; without either, once asks on a terminal and refuses elsewhere. "
    "Each one is settled, with its own evidence, for the attempt that was listed. If one fails, "
    "once says how many were settled; run the same line again to continue with the rest. With "
    "the word effects these are uncertain effects, and --scope is their type.",
    "If a server holds the store, the operation is settled through the server.",
    NAMED_BY_BEGINNING,
    NULL,
};

static const struct option_def resolve_options[] = {
    CHOICE("status", "STATUS", "what happened", .required = true,
        .choices = {"executed", "failed", "not_executed", "acknowledged", "not_sent"}),
    NUMBER("attempt", "N",
        "for an effect or a command: the attempt you checked; if there has been a newer one, "
        "nothing is settled"),
    TEXT("reason", "TEXT",
        "how you found out; kept in the evidence, at most 255 bytes, never shown to clients",
        .required = true),
    TEXT("effect-id", "ID", "the effect's id, such as the provider's charge id"),
    PATH("outcome",
        "what duplicates get: on standard output, or from a server as the outcome, which must "
        "then be JSON unless --http-status is given; @FILE is the same, and - is standard input"),
    NUMBER("http-status", "N", "the HTTP status that duplicates get, from 200 to 599"),
    TEXT("header", "LINE",
        "with --http-status, a header that duplicates get, as 'Name: value'; or @FILE with one "
        "header per line; may be repeated. Content-Type is application/json if --outcome is JSON",
        .letter = 'H', .repeated = true),
    NUMBER(
        "exit-code", "N", "what duplicates exit with; by default 0 for executed and 1 for failed"),
    NUMBER("fence", "N",
        "for an operation or a delivery: the fence of the attempt you checked; if there has been "
        "a newer attempt, nothing is settled"),
    TEXT("actor", "WHO", "who settles it, for the evidence", .env = "USER"),
    OPT_FILTER,
    FLAG("dry-run", "list what the filters match, and settle nothing"),
    FLAG("yes", "settle what the filters match without asking"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def resolve_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "no such operation, or it was settled differently, or a newer attempt has begun"),
    EXIT_NO_SERVER,
    EXIT(75, "still in progress; or the server did not answer, and it may have been settled"),
    EXIT_NOT_ALLOWED, EXIT_BAD_VARIABLE, {0}};

static const struct example_def resolve_examples[] = {
    {"once resolve op_0198… --status not_executed --reason \"no charge at the provider\"",
        "let the next call run it"},
    {"once resolve op_0198… --status executed --reason seen --http-status 201 --outcome @paid.json",
        "give duplicates the answer that the API would have given"},
    {"once resolve --scope 'POST /charges' --since 1h --status not_executed --reason outage --yes",
        "settle everything that a provider's outage left unknown"},
    {0},
};

/* ---- canonical form and keys ------------------------------------------------------------- */

static const char *const canon_text[] = {
    "Reads JSON from standard input and writes exactly the bytes of its canonical form (RFC "
    "8785), followed by a newline only on a terminal. A number that a double cannot hold, such "
    "as 9007199254740993, is lossy: it is written as ECMAScript would write it, and reported.",
    NULL,
};

static const struct option_def canon_options[] = {
    FLAG("strict", "refuse lossy numbers"),
    FLAG("json", "changes nothing: what is printed is JSON"),
    {0},
};

static const struct exit_def canon_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "not JSON, or lossy with --strict; the message has line and column"), EXIT_NO_OUTPUT,
    {0}};

static const struct example_def canon_examples[] = {
    {"echo '{\"b\":2,\"a\":1.0}' | once canon", "prints {\"a\":1,\"b\":2}"},
    {0},
};

static const char *const key_text[] = {
    "Prints the key derived from the JSON object on standard input, as 64 hex digits. command "
    "takes a command envelope, effect an effect envelope, and source an object with tenant_id "
    "and any of source_type, source_id, revision, index_hash and action.",
    NULL,
};

static const struct option_def key_options[] = {
    FLAG("show", "print the canonical bytes that are hashed, instead of the key"),
    OPT_JSON,
    {0},
};

static const struct exit_def key_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "not JSON, or a missing member, a lossy number or a duplicate member"), EXIT_NO_OUTPUT,
    {0}};

static const struct example_def key_examples[] = {
    {"once key source < message.json", "the key of a message from a source"},
    {0},
};

/* ---- checking ---------------------------------------------------------------------------- */

static const char *const verify_text[] = {
    "Reads the whole journal and checks frames, checksums, the chain, that no entry is missing, "
    "bodies against their digests, and the signatures of checkpoints. It can run beside the "
    "writing process. In PostgreSQL and Redis it checks every chain, the checkpoints that tie them "
    "together, and every record, beside any number of processes.",
    "With --server, reads the evidence that the token may see from a server, and checks what can "
    "be checked from outside: each entry against its hash, consecutive entries against the "
    "chain, and the head. Entries of other tenants lie in between, so a missing entry cannot be "
    "detected. What was not checked is printed too.",
    NULL,
};

static const struct option_def verify_options[] = {
    FLAG("redecide", "make every decision again and compare"),
    PATH("checkpoint",
        "a checkpoint kept elsewhere: reveals whether the end of the journal was cut off"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def verify_exits[] = {EXIT(0, "everything checks out"),
    EXIT(1, "damage: the message says where, which operation, and what is still good"),
    EXIT(2, "could not check"), EXIT_BAD_USAGE, EXIT_BAD_VARIABLE, {0}};

static const struct example_def verify_examples[] = {
    {"once verify --redecide", "check the bytes and the decisions"},
    {"once verify --server https://once.example", "check a server's evidence"},
    {0},
};

static const char *const backup_text[] = {
    "Copies the journal to a new directory, which is a store like any other. It works while a "
    "server or once run uses the store: it copies files and needs neither the lock nor the "
    "server. So there is no --server: run it where the store is. Everything acknowledged before "
    "the backup began is in it, and nothing half written. The copy is verified as by once verify "
    "and opened as a store before it gets its name, so a directory of that name is always a "
    "complete backup.",
    "Nothing is overwritten: the directory must not exist. A failed backup leaves nothing "
    "behind; only a kill or a power loss leaves a directory named like DIRECTORY.new-12-3f. The "
    "next backup to DIRECTORY removes it and says so, if no process uses it. The copy holds the "
    "secrets of the store (identity, and body.key if there is one), and only its owner can read "
    "it. Segments in archive/ and the files that secrets.key_file names are not copied: keep "
    "these files, because without them nobody can read the bodies of unsent work.",
    "The backup does not know what was granted after it was made: read docs/operate.md before "
    "you serve from a restored copy.",
    NULL,
};

static const struct option_def backup_options[] = {
    TEXT("store", "URL", "the journal to copy: journal:DIRECTORY, or just a directory",
        .fallback = "journal:./once-data", .env = "ONCE_STORE"),
    OPT_JSON,
    {0},
};

static const struct exit_def backup_exits[] = {EXIT(0, "the backup is whole and verified"),
    EXIT(64, "invalid command line, or the directory exists already"), EXIT_CORRUPT_STORE,
    EXIT(69, "the store cannot be read, or there is not enough room"), EXIT_NO_OUTPUT,
    EXIT_BAD_VARIABLE, {0}};

static const struct example_def backup_examples[] = {
    {"once backup /mnt/backup/once-2026-11-16", "back up ./once-data, in use or not"},
    {"once backup --store journal:/var/lib/once/data /mnt/backup/once", "back up a server's store"},
    {0},
};

static const char *const copy_text[] = {
    "Copies everything that the store FROM holds to the new store TO, which may be of a "
    "different engine: a journal, PostgreSQL or Redis. It copies records of every kind with "
    "their fences, leases, windows, bodies and due times, and all evidence byte for byte with "
    "its checkpoints. So duplicates get the same answers from the new store, unknown operations "
    "stay unknown, and once verify checks the old evidence there. Finally it compares every "
    "entry and record, and verifies the new store.",
    "FROM must not be in use: stop every process first. A process that was killed counts as gone "
    "after 30 seconds. FROM is not changed. Grants that a process of FROM held become unknown when "
    "TO is first served; callers of the API keep their fences and leases.",
    "TO must be new: a directory that does not exist, a PostgreSQL schema right after once "
    "migrate (copy as its owner), or a Redis store of a name that is not in use. Until the copy "
    "is finished, TO cannot be opened. If a copy is stopped or killed, run the same command "
    "again to continue it, as long as FROM has not changed.",
    "The bodies of unsent work are copied as they are, encrypted. From one journal to a "
    "different one, body.key is copied too; otherwise the command says which secrets.key_file "
    "the new store needs. Archived segments of a journal and the table of roles of PostgreSQL "
    "are not copied.",
    NULL,
};

static const struct option_def copy_options[] = {
    FLAG("dry-run", "say what would be copied, and change nothing"),
    OPT_JSON,
    {0},
};

static const struct exit_def copy_exits[] = {EXIT(0, "the copy is whole, compared and verified"),
    EXIT(64, "invalid command line, or TO is not new"), EXIT_CORRUPT_STORE,
    EXIT(69, "a store cannot be reached, or FROM is in use; run it again"), EXIT_NO_OUTPUT,
    EXIT_BAD_VARIABLE, {0}};

static const struct example_def copy_examples[] = {
    {"once copy journal:./once-data postgres://owner@db/app", "move to PostgreSQL"},
    {"once copy --dry-run redis://cache:6379 journal:./once-data", "see what there is to copy"},
    {0},
};

static const char *const migrate_text[] = {
    "Creates the tables of a PostgreSQL store, or upgrades them to the version of this program, "
    "in one transaction. It is safe to run again, and to run from several machines at once: the "
    "others wait. A schema that is newer than this program is refused and not changed.",
    "The role that runs it owns the tables and needs the right to create a schema in the "
    "database. The roles that Once runs as need much less: --grant gives one what once serve, "
    "gateway and run need, without any right to change tables or evidence; --grant-read gives "
    "one what once ls, show, why and psql need to read; --grant-functions lets one call "
    "once_begin, once_seal, once_release and once_effect in its own transactions, for the named "
    "tenant; without a name the role keeps its tenant. The roles must exist.",
    "With --print, it connects to nothing and prints the SQL for an empty database, to be run by "
    "hand.",
    NULL,
};

static const struct option_def migrate_options[] = {
    TEXT("store", "URL",
        "the store: postgres://USER@HOST:PORT/DATABASE, with ?schema=NAME if it is not once",
        .fallback = "journal:./once-data", .env = "ONCE_STORE"),
    TEXT("grant", "ROLE", "let this role run Once; may be repeated", .repeated = true),
    TEXT("grant-read", "ROLE", "let this role read the store; may be repeated", .repeated = true),
    TEXT("grant-functions", "ROLE[=TENANT]",
        "let this role call once_begin, once_seal, once_release and once_effect; may be repeated",
        .repeated = true),
    FLAG("print", "print the SQL instead of running it"),
    OPT_JSON,
    {0},
};

static const struct exit_def migrate_exits[] = {EXIT(0, "the schema has this program's version"),
    EXIT(64, "invalid command line, or the store has no schema"),
    EXIT(69, "the server cannot be reached, does not allow it, or has a newer schema"),
    EXIT_NO_OUTPUT, EXIT_BAD_VARIABLE, {0}};

static const struct example_def migrate_examples[] = {
    {"once migrate --store postgres://owner@db/app --grant once_app",
        "create the schema once, and let the role once_app run Once"},
    {"once migrate --store postgres://db/app --print | less", "read what it would do"},
    {0},
};

static const char *const doctor_text[] = {
    "Checks the store, the server that holds it, if any, and the machine. Each check is PASS, "
    "WARN or FAIL, with what to do about it. With --server, asks a server elsewhere whether it is "
    "ready, whether the token may read operations, and what waits for a person: unknown "
    "operations and deliveries, blocked commands, uncertain effects.",
    NULL,
};

static const struct option_def doctor_options[] = {
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def doctor_exits[] = {EXIT(0, "nothing failed"),
    EXIT(1, "something failed"), EXIT_BAD_USAGE, EXIT_NO_OUTPUT, EXIT_BAD_VARIABLE, {0}};

static const struct example_def doctor_examples[] = {
    {"once doctor --store journal:/var/lib/once", "is this machine fit for that store?"},
    {0},
};

static const char *const bench_text[] = {
    "Measures durable pairs of begin and seal per second within this process, on a temporary "
    "store, or on --store.",
    NULL,
};

static const struct option_def bench_options[] = {
    NUMBER("seconds", "N", "how many seconds to measure", .fallback = "3"),
    NUMBER("threads", "N", "how many threads submit, at most 64", .fallback = "1"),
    NUMBER("in-flight", "N", "concurrent pairs over all threads, at most 16384", .fallback = "512"),
    TEXT("store", "URL", "measure on this store instead of a temporary one"),
    OPT_JSON,
    {0},
};

static const struct example_def bench_examples[] = {
    {"once bench --seconds 5", "how fast is this disk?"},
    {0},
};

static const char *const demo_text[] = {
    "Runs a payment provider that times out after charging, fails before charging and loses "
    "answers; clients that retry, crash and send everything twice; and Once between them. Ends "
    "with a summary and the path of the journal. Takes a few seconds.",
    NULL,
};

static const struct option_def demo_options[] = {
    NUMBER("orders", "N", "how many payments, at most 100000", .fallback = "300"),
    NUMBER("seed", "N", "repeat the same failures; random by default"),
    OPT_JSON,
    {0},
};

static const struct exit_def demo_exits[] = {
    EXIT(0, "every order was charged at most once and all were settled"),
    EXIT(1, "a double charge, or an order that was not settled"), EXIT_BAD_USAGE, EXIT_NO_STORE,
    {0}};

static const struct example_def demo_examples[] = {
    {"once demo", "see Once work"},
    {0},
};

/* ---- the server -------------------------------------------------------------------------- */

static const char *const serve_text[] = {
    "Serves the HTTP API to programs in any language, from one store: fences, and the commands, "
    "effects, inbox and gateway that the configuration describes. By default it listens on "
    "127.0.0.1:7411 and keeps its journal in ./once-data. When it is ready it prints the version, "
    "the URL, the store, how it writes and, on a terminal or a new store, three commands to try. "
    "Logs go to standard error.",
    "A YAML file can set everything (--config; once check --example prints one with every "
    "setting). Flags and ONCE_* variables set the most common things. Flags override variables, "
    "and variables override the file.",
    "SIGHUP reads the configuration again and applies what can change while it runs, such as "
    "tokens, limits, certificates, routes, commands, connectors and sources: all of it, or nothing "
    "if anything is invalid. The log names what needs a restart. On SIGTERM or SIGINT it stops "
    "accepting, finishes requests in flight for up to --drain, flushes, and exits with 0; a second "
    "signal cuts what is left. SIGUSR1 opens the log again: if standard error is a file that was "
    "renamed, the log continues in a new file with the old name.",
    "An address that other machines can reach is refused unless tokens are configured. The data "
    "directory has a socket, once.sock, for anyone who can open the directory; the other "
    "commands find it automatically.",
    NULL,
};

/* Settings among these are also in config/options.c; a test compares the two. */
static const struct option_def serve_options[] = {
    OPT_CONFIG("the YAML configuration file"),
    TEXT("listen", "ADDRESS",
        "where to listen: 127.0.0.1:7411, [::1]:7411 or unix:/path; port 0 takes any free port",
        .letter = 'l', .repeated = true, .fallback = "127.0.0.1:7411", .env = "ONCE_LISTEN"),
    OPT_STORE,
    PATH("tls-cert", "PEM certificate with its chain; TCP addresses then accept only TLS",
        .env = "ONCE_TLS_CERT"),
    PATH("tls-key", "PEM private key of --tls-cert", .env = "ONCE_TLS_KEY"),
    OPT_SERVING,
    {0},
};

static const char *const gateway_text[] = {
    "Stands in front of an HTTP API and makes it idempotent without changing it. A request with "
    "an Idempotency-Key takes effect once. Every duplicate gets the first answer, a different "
    "request under the same key is refused, and an outcome that nobody can know is recorded as "
    "unknown. Reads stream through.",
    "Without a file, every method that the profile fences (by default POST, PUT, PATCH and "
    "DELETE) is fenced on every path. Routes, windows, principals, redaction and reconciliation "
    "are set in the gateway section of a YAML file (--config; once check --example prints one).",
    "A profile is a set of defaults. ietf: the IETF's draft, refusals are problem documents. "
    "guardia: keys must be UUIDs, DELETE is not fenced. adr007: a request without a key runs under "
    "a new one. ops: keys are kept longer, conflicts show a diff. stripe: as Stripe's API, for its "
    "SDKs; only POST is fenced, and only with a key.",
    "The API of Once itself is on the socket in the data directory, which once ls, show, why and "
    "resolve find automatically. Set listen in the file to give it an address too.",
    "SIGHUP, SIGUSR1, SIGTERM and SIGINT work as for once serve. A request still at the upstream "
    "when the drain ends becomes unknown.",
    NULL,
};

static const struct option_def gateway_options[] = {
    OPT_CONFIG("the YAML configuration file"),
    TEXT("listen", "ADDRESS",
        "where clients connect: 127.0.0.1:8080, [::1]:8080 or unix:/path; port 0 takes any "
        "free port",
        .letter = 'l', .repeated = true, .fallback = "127.0.0.1:8080",
        .env = "ONCE_GATEWAY_LISTEN"),
    TEXT("upstream", "URL",
        "the API behind the gateway: http://127.0.0.1:3000 or https://…; several are used in "
        "turn",
        .letter = 'u', .repeated = true, .env = "ONCE_GATEWAY_UPSTREAM"),
    OPT_PROFILE,
    TEXT("on-status", "STATUS=RESULT", "what an answer means: 5xx=release if the API rolls back",
        .repeated = true, .env = "ONCE_GATEWAY_ON_STATUS"),
    OPT_POLICY,
    OPT_STORE,
    OPT_SERVING,
    {0},
};

static const struct exit_def serve_exits[] = {EXIT(0, "stopped by a signal, everything flushed"),
    EXIT_BAD_USAGE, EXIT_CORRUPT_STORE,
    EXIT(69, "the store or an address cannot be used: in use, missing, or no permission"),
    EXIT(70, "the store failed while serving; a restart reads its true state"), EXIT_NO_OUTPUT,
    EXIT(78, "the configuration or an ONCE_* variable is invalid"), {0}};

static const struct example_def serve_examples[] = {
    {"once serve", "on 127.0.0.1:7411 with ./once-data"},
    {"once serve --listen 127.0.0.1:0 --store journal:/var/lib/once",
        "any free port, a different store"},
    {"once serve --config once.yaml --test", "is the whole configuration valid?"},
    {0},
};

static const struct example_def gateway_examples[] = {
    {"once gateway --upstream http://127.0.0.1:3000", "on 127.0.0.1:8080, every write fenced"},
    {"once gateway -l 127.0.0.1:0 -u http://127.0.0.1:3000 --profile stripe",
        "with a different profile"},
    {"once gateway --config once.yaml", "routes from a file"},
    {0},
};

static const char *const check_text[] = {
    "Reads a configuration as once serve would, and opens nothing. Every error is reported with "
    "file, line and column, the line itself, and what was probably meant. FILE can be - for "
    "standard input.",
    "Variables and flags are ignored; once serve --test checks everything together.",
    "A policy file is recognised by its keys (require_headers, ttl, on_conflict and so on). It "
    "is checked as a policy, and each line is explained.",
    NULL,
};

static const struct option_def check_options[] = {
    FLAG("example", "print a file with every setting, its default and its trade-off"),
    OPT_JSON,
    {0},
};

static const struct exit_def check_exits[] = {EXIT(0, "the file is valid"), EXIT_BAD_USAGE,
    EXIT_NO_OUTPUT, EXIT(78, "the file is invalid or cannot be read"), {0}};

static const struct example_def check_examples[] = {
    {"once check once.yaml", "is it valid?"},
    {"once check --example > once.yaml", "a file to start from"},
    {"once check idempotency.yml", "what does this policy mean?"},
    {0},
};

static const char *const retry_text[] = {
    "Sends a dead letter again, or a pending effect now. An effect with an unknown outcome is "
    "refused: check with the provider, then settle it with once resolve.",
    "For a command that was given up: calls its handler again, or retries those of its effects "
    "that were given up.",
    MANY_EFFECTS("retries", "dead letter"),
    NAMED_BY_BEGINNING,
    NULL,
};

static const char *const cancel_text[] = {
    "Settles a pending effect, or a dead letter, as failed. It is not sent.",
    "For a command that has not started, or was given up: rejects it. It may be submitted again.",
    MANY_EFFECTS("cancels", "pending effect"),
    NAMED_BY_BEGINNING,
    NULL,
};

static const char *const compensate_text[] = {
    "Undoes an acknowledged effect with the compensating effect that its type names in the "
    "configuration. This happens once, however often it is asked for. It is refused while nobody "
    "knows whether the effect happened.",
    "For a command: undoes all of its acknowledged effects, in reverse order, once each. It is "
    "refused, before anything starts, if one of them cannot be undone or is uncertain. If the "
    "undoing is blocked, ask again to continue.",
    MANY_EFFECTS("compensates", "acknowledged effect"),
    NAMED_BY_BEGINNING,
    NULL,
};

static const struct option_def effect_options[] = {
    TEXT("reason", "TEXT", "why; kept in the evidence, at most 255 bytes"),
    OPT_FILTER,
    FLAG("dry-run", "list what the filters match, and change nothing"),
    FLAG("yes", "change what the filters match without asking"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def effect_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "no such effect or command, or its status does not allow it"), EXIT_NO_SERVER,
    EXIT_NO_OUTPUT, EXIT(75, "nobody knows whether the effect happened"),
    EXIT(77, "the token lacks the right"), EXIT_BAD_VARIABLE, {0}};

static const struct example_def retry_examples[] = {
    {"once retry eff_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"the provider is back\"",
        "send a dead letter again"},
    {"once retry --scope payment.capture --since 1d --dry-run",
        "which dead letters of a type would be sent again"},
    {0},
};

static const struct example_def cancel_examples[] = {
    {"once cancel eff_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"the order was withdrawn\"",
        "do not send it"},
    {0},
};

static const struct example_def compensate_examples[] = {
    {"once compensate eff_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"returned\"",
        "refund a charge"},
    {"once compensate cmd_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"returned\"",
        "undo everything that a command did"},
    {0},
};

static const char *const confirm_text[] = {
    "Starts a command that awaits its confirmation, with the token from the answer to its first "
    "submission. The token starts it once. Every refusal is the same, whatever is wrong.",
    NAMED_BY_BEGINNING,
    NULL,
};

static const char *const deny_text[] = {
    "Rejects a command that awaits its confirmation. Nothing has begun, so it may be submitted "
    "again. Without --confirmation the right confirm or operate is needed.",
    NAMED_BY_BEGINNING,
    NULL,
};

static const struct option_def confirm_options[] = {
    TEXT("confirmation", "TOKEN",
        "the confirmation token; - reads it from standard input, where nobody sees it",
        .env = "ONCE_CONFIRMATION"),
    TEXT("actor", "WHO", "who answers; must be the command's actor if it is given"),
    TEXT("reason", "TEXT", "why, for the evidence of a denial"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def confirm_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_NO_SERVER,
    EXIT_NO_OUTPUT, EXIT(75, "it was started and is not executed yet, or nobody knows"),
    EXIT(77, "the confirmation is refused, or the token lacks the right"), EXIT_BAD_VARIABLE, {0}};

static const struct example_def confirm_examples[] = {
    {"once confirm cmd_01890a5d-ac96-774b-bcce-b302099a8057 --confirmation - < token",
        "the token from a file"},
    {0},
};

static const struct example_def deny_examples[] = {
    {"once deny cmd_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"not mine\"",
        "an operator's no"},
    {0},
};

static const char *const redeliver_text[] = {
    "Delivers a dead letter again, or a delivery that waits for its next attempt now. Settle an "
    "unknown delivery with once resolve instead, because its handler may have done it.",
    NAMED_BY_BEGINNING,
    NULL,
};

static const char *const skip_text[] = {
    "Makes sure that a dead letter, or a waiting delivery, is never delivered. Its duplicates "
    "are still recognised.",
    NAMED_BY_BEGINNING,
    NULL,
};

static const struct option_def delivery_options[] = {
    TEXT("reason", "TEXT", "why, for the evidence"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def delivery_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "there is no such delivery, or its status does not allow it"), EXIT_NO_SERVER,
    EXIT_NO_OUTPUT, EXIT(75, "nobody knows whether its handler did it"), EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE, {0}};

static const struct example_def redeliver_examples[] = {
    {"once redeliver dlv_01890a5d-ac96-774b-bcce-b302099a8057", "the handler is repaired"},
    {0},
};

static const struct example_def skip_examples[] = {
    {"once skip dlv_01890a5d-ac96-774b-bcce-b302099a8057 --reason \"not ours\"",
        "never deliver it"},
    {0},
};

static const char *const inbox_text[] = {
    "once inbox test SOURCE shows how a source of the configuration would read a request: which "
    "secret verifies it, the keys and versions of its events, and how long duplicates are "
    "recognised. If the source has a command instead of a handler, it shows the envelope that "
    "each event would submit, and whether the registry would accept it. It records nothing and "
    "calls nothing.",
    "once inbox sign PRESET prints the headers of a request that a sender of this preset would "
    "sign now, one per line, for --header @FILE or for curl.",
    NULL,
};

static const struct option_def inbox_options[] = {
    OPT_CONFIG("the configuration with the sources (test)"),
    TEXT("body", "TEXT", "the body of the request; @FILE reads it from a file", .fallback = ""),
    TEXT("header", "LINE",
        "a header of the request (test), as 'Name: value'; or @FILE with one header per line; may "
        "be repeated",
        .repeated = true),
    PATH("secret-file", "the file with the secret (sign)"),
    TEXT("id", "ID", "the event's id, if a header carries it (sign)", .fallback = "test-1"),
    OPT_JSON,
    {0},
};

static const struct exit_def inbox_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "the request would be refused, or an event would be a dead letter"),
    EXIT(69, "a file cannot be read"), EXIT_NO_OUTPUT,
    EXIT(78, "the configuration is invalid or cannot be read"), {0}};

static const struct example_def inbox_examples[] = {
    {"once inbox sign stripe --secret-file whsec --body @event.json > headers", "as Stripe would"},
    {"once inbox test shop --config once.yaml --body @event.json --header @headers",
        "would it be accepted?"},
    {0},
};

static const char *const conformance_text[] = {
    "Tests the commands of a running server from outside: that duplicates have one effect, that "
    "confirmations bind, that decisions leave evidence. It prints a table of the tests and their "
    "requirements (see docs/conformance.md). The server's registry needs the commands that "
    "--registry prints; their handlers are this program, on --port of the same machine. Any "
    "implementation with the same API can be tested.",
    NULL,
};

static const struct option_def conformance_options[] = {
    FLAG("registry", "print the commands that the server needs, and exit"),
    NUMBER("port", "PORT", "where the handlers listen, on 127.0.0.1", .fallback = "7499"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def conformance_exits[] = {EXIT(0, "every test passed"), EXIT_BAD_USAGE,
    EXIT(65, "a test failed"), EXIT_NO_SERVER, EXIT_NO_OUTPUT, EXIT_BAD_VARIABLE, {0}};

static const struct example_def conformance_examples[] = {
    {"once conformance --registry > once.yaml", "the registry for a server to test"},
    {"once conformance --server http://127.0.0.1:7411", "the table"},
    {0},
};

static const char *const registry_text[] = {
    "Lists the commands that may be submitted: their class, how long duplicates are recognised, "
    "whether a confirmation is needed, shields, effects and arguments (those with a question mark "
    "are optional). With --config the registry is read from a file and checked; otherwise a "
    "server is asked for the one in use.",
    NULL,
};

static const struct option_def registry_options[] = {
    OPT_CONFIG("read the registry of this configuration instead"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    {0},
};

static const struct exit_def registry_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_NO_SERVER,
    EXIT_NO_OUTPUT, EXIT_NOT_ALLOWED, EXIT(78, "the file or an ONCE_* variable is invalid"), {0}};

static const struct example_def registry_examples[] = {
    {"once registry --config once.yaml", "the commands of a configuration"},
    {"once registry --json", "the registry that the server of this store uses"},
    {0},
};

static const char *const policy_text[] = {
    "Sends the requests in CASES through a gateway with the given configuration and policy, in "
    "front of a stand-in for the API. Compares the results with those expected: statuses, "
    "decisions, replays, and how many calls reached the API. Use it in CI to see what a change "
    "of a route or policy changes for clients.",
    "It runs the real gateway over loopback sockets, with a new in-memory store for each case. "
    "It contacts nothing else and leaves nothing behind. docs/gateway-policy.md describes the "
    "file. CASES can be - for standard input.",
    NULL,
};

static const struct option_def policy_options[] = {
    OPT_CONFIG("the gateway's YAML configuration file; its upstreams are never called"),
    OPT_POLICY,
    OPT_PROFILE,
    OPT_JSON,
    {0},
};

static const struct exit_def policy_exits[] = {EXIT(0, "every case is as expected"), EXIT_BAD_USAGE,
    EXIT(65, "at least one case is not"), EXIT(69, "no loopback port, or no memory"),
    EXIT_NO_OUTPUT,
    EXIT(78, "the cases, the configuration or the policy are invalid or cannot be read"), {0}};

static const struct example_def policy_examples[] = {
    {"once policy test --config once.yaml cases.yaml", "does it still behave as clients expect?"},
    {"once policy test --policy idempotency.yml cases.yaml",
        "the same for a policy without a configuration"},
    {0},
};

static const char *const token_text[] = {
    "new creates a bearer token of 256 random bits and prints it once, with the line for the "
    "configuration. That line has only the token's SHA-256: the server never stores the token "
    "itself. Put the line under auth: tokens: and send SIGHUP.",
    "hash reads a token from standard input and prints its SHA-256.",
    "Rights: execute (fences), operate (read and settle operations), audit (read operations and "
    "evidence), confirm (confirm commands). A token for tenant '*' grants nothing except read "
    "access to /metrics for all tenants.",
    NULL,
};

static const struct option_def token_options[] = {
    TEXT("tenant", "NAME", "new: the tenant the token is for"),
    TEXT("rights", "LIST", "new: the rights, separated by commas: execute,audit"),
    TEXT("name", "NAME", "new: its name in evidence and logs"),
    OPT_JSON,
    {0},
};

static const struct exit_def token_exits[] = {EXIT_FINE, EXIT_BAD_USAGE,
    EXIT(65, "hash: standard input is not a token"),
    EXIT(69, "the kernel provided no random bytes"), EXIT_NO_OUTPUT, {0}};

static const struct example_def token_examples[] = {
    {"once token new --tenant acme --rights execute,audit", "a token for tenant acme"},
    {"once token hash < token.txt", "the value for the configuration"},
    {0},
};

/* ---- the program itself ------------------------------------------------------------------ */

static const struct option_def no_options[] = {
    {0},
};

static const struct option_def version_options[] = {
    OPT_JSON,
    {0},
};

static const char *const completion_text[] = {
    "Prints the script that makes a shell complete the commands and options of once. make "
    "install puts it in place.",
    NULL,
};

static const struct example_def completion_examples[] = {
    {"once completion bash > ~/.local/share/bash-completion/completions/once", "for bash"},
    {"once completion fish > ~/.config/fish/completions/once.fish", "for fish"},
    {0},
};

static const char *const help_text[] = {
    "Without a name, lists the commands. once NAME --help is the same.",
    NULL,
};

static const char *const version_text[] = {
    "once --version is the same.",
    NULL,
};

static const struct exit_def plain_exits[] = {EXIT_FINE, EXIT_BAD_USAGE, EXIT_NO_OUTPUT, {0}};

static const struct example_def help_examples[] = {
    {"once help run", "everything about once run"},
    {0},
};

static const struct example_def version_examples[] = {
    {"once version", "prints the version"},
    {0},
};

/* A command NAME is cmd_NAME(), NAME_text, NAME_examples, and a row here. */
#define COMMAND(name_, options_, exits_, operands_, ...)                                           \
    {                                                                                              \
        .name = #name_, .run = cmd_##name_, .text = name_##_text, .options = options_,             \
        .exits = exits_, .examples = name_##_examples, .operands = operands_,                      \
        .summary = __VA_ARGS__                                                                     \
    }

const struct command_def commands[] = {
    COMMAND(serve, serve_options, serve_exits, "",
        "serve fences, commands, effects and the inbox over HTTP"),
    COMMAND(gateway, gateway_options, serve_exits, "",
        "make an HTTP API idempotent, as a proxy in front of it"),
    COMMAND(
        check, check_options, check_exits, "[FILE]", "check a configuration", .operands_max = 1),
    COMMAND(registry, registry_options, registry_exits, "", "list the commands of the registry"),
    COMMAND(conformance, conformance_options, conformance_exits, "",
        "test a server's commands from outside"),
    COMMAND(policy, policy_options, policy_exits, "test CASES",
        "test a gateway's configuration with requests and expected decisions",
        .operand_choices = {"test"}, .operands_min = 2, .operands_max = 2),
    COMMAND(token, token_options, token_exits, "new|hash", "create a bearer token",
        .operand_choices = {"new", "hash"}, .operands_min = 1, .operands_max = 1),
    COMMAND(run, run_options, run_exits, "[--] COMMAND [ARGUMENT...]",
        "run a command once, and replay its outcome to every duplicate", .operands_min = 1,
        .operands_max = SIZE_MAX, .rest_is_operands = true),
    COMMAND(mcp, mcp_options, mcp_exits, "[[--] COMMAND [ARGUMENT...]]",
        "make the tool calls of an MCP server take effect once", .operands_min = 0,
        .operands_max = SIZE_MAX, .rest_is_operands = true),
    COMMAND(send, send_options, send_exits, "METHOD URL",
        "send an HTTP request that takes effect once",
        .operand_choices = {"POST", "PUT", "PATCH", "DELETE", "GET"}, .operands_min = 2,
        .operands_max = 2),
    COMMAND(ls, ls_options, ls_exits, "[operations|commands|effects|deliveries|targets]",
        "list operations, commands, effects, deliveries or targets",
        .operand_choices = {"operations", "commands", "effects", "deliveries", "targets"},
        .operands_max = 1),
    COMMAND(
        show, show_options, found_exits, "[OPERATION_ID]", "show one operation", .operands_max = 1),
    COMMAND(why, show_options, found_exits, "[OPERATION_ID]",
        "explain how an operation got to its status", .operands_max = 1),
    COMMAND(confirm, confirm_options, confirm_exits, "COMMAND_ID",
        "confirm a command that waits for it", .operands_min = 1, .operands_max = 1),
    COMMAND(deny, confirm_options, confirm_exits, "COMMAND_ID",
        "deny a command that waits for a confirmation", .operands_min = 1, .operands_max = 1),
    COMMAND(resolve, resolve_options, resolve_exits, "[OPERATION_ID|EFFECT_ID|effects]",
        "settle an unknown operation or an uncertain effect, or many",
        .operand_choices = {"effects"}, .operands_max = 1),
    COMMAND(retry, effect_options, effect_exits, "[EFFECT_ID|COMMAND_ID|effects]",
        "send a dead letter again, or many, or a pending effect now",
        .operand_choices = {"effects"}, .operands_max = 1),
    COMMAND(cancel, effect_options, effect_exits, "[EFFECT_ID|COMMAND_ID|effects]",
        "do not send a pending effect at all, or many", .operand_choices = {"effects"},
        .operands_max = 1),
    COMMAND(compensate, effect_options, effect_exits, "[EFFECT_ID|COMMAND_ID|effects]",
        "undo an acknowledged effect, or many, or all of a command's",
        .operand_choices = {"effects"}, .operands_max = 1),
    COMMAND(redeliver, delivery_options, delivery_exits, "DELIVERY_ID",
        "deliver a dead letter again", .operands_min = 1, .operands_max = 1),
    COMMAND(skip, delivery_options, delivery_exits, "DELIVERY_ID", "never deliver a delivery",
        .operands_min = 1, .operands_max = 1),
    COMMAND(inbox, inbox_options, inbox_exits, "test SOURCE | sign PRESET",
        "try out a source of the inbox", .operand_choices = {"test", "sign"}, .operands_min = 2,
        .operands_max = 2),
    COMMAND(tail, tail_options, tail_exits, "", "print the latest evidence"),
    COMMAND(verify, verify_options, verify_exits, "",
        "check that the evidence and the records of a store are intact"),
    COMMAND(backup, backup_options, backup_exits, "DIRECTORY",
        "copy the journal while it is in use", .operands_min = 1, .operands_max = 1),
    COMMAND(copy, copy_options, copy_exits, "FROM TO",
        "copy a store to a different engine, with its evidence", .operands_min = 2,
        .operands_max = 2),
    COMMAND(migrate, migrate_options, migrate_exits, "",
        "create the schema of a PostgreSQL store, or upgrade it"),
    COMMAND(doctor, doctor_options, doctor_exits, "", "check the store and the machine"),
    COMMAND(canon, canon_options, canon_exits, "", "print the canonical form of JSON"),
    COMMAND(key, key_options, key_exits, "command|effect|source", "derive a key from JSON",
        .operand_choices = {"command", "effect", "source"}, .operands_min = 1, .operands_max = 1),
    COMMAND(bench, bench_options, looking_exits, "", "measure this machine"),
    COMMAND(
        demo, demo_options, demo_exits, "", "watch a flaky provider being charged exactly once"),
    COMMAND(completion, no_options, plain_exits, "bash|zsh|fish", "print completions for a shell",
        .operand_choices = {"bash", "zsh", "fish"}, .operands_min = 1, .operands_max = 1),
    COMMAND(version, version_options, plain_exits, "", "print the version"),
    COMMAND(help, no_options, plain_exits, "[COMMAND]", "explain a command", .operands_max = 1),
    {0},
};

const struct command_def *command_find(const char *name)
{
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

const struct option_def *option_find(const struct command_def *command, const char *name)
{
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        if (strcmp(o->name, name) == 0) {
            return o;
        }
    }
    return NULL;
}
