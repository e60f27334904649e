/*
 * The table of every command, option and exit code, with its help text. The file is past 800 lines
 * because it is one table: parser, help, manual page, docs/cli.md and completions come from it.
 */
#include "cli/commands.h"

#include <stdint.h>
#include <string.h>

/* ---- options that several commands share ------------------------------------------------- */

#define OPT_STORE                                                                                  \
    {                                                                                              \
        .name = "store", .kind = OPTION_TEXT, .argument = "URL",                                   \
        .fallback = "journal:./once-data", .env = "ONCE_STORE",                                    \
        .help = "where operations are remembered: journal:DIRECTORY, or just a directory"          \
    }
/* For the commands that read or settle operations. */
#define OPT_SERVER                                                                                 \
    {.name = "server",                                                                             \
        .kind = OPTION_TEXT,                                                                       \
        .argument = "URL",                                                                         \
        .env = "ONCE_SERVER",                                                                      \
        .help = "ask this server instead: http://HOST:PORT, https://HOST or unix:PATH. Not "       \
                "needed on the server's machine: its socket in the store's directory is found"},   \
        {.name = "token",                                                                          \
            .kind = OPTION_TEXT,                                                                   \
            .argument = "TOKEN",                                                                   \
            .env = "ONCE_TOKEN",                                                                   \
            .help = "the bearer token for --server; prefer the variable, because every user "      \
                    "of this machine can see a command line"},                                     \
        {.name = "cacert",                                                                         \
            .kind = OPTION_FILE,                                                                   \
            .argument = "FILE",                                                                    \
            .env = "ONCE_CACERT",                                                                  \
            .help = "PEM file with the certificate authorities for --server; by default the "      \
                    "system's"},                                                                   \
    {                                                                                              \
        .name = "tenant", .kind = OPTION_TEXT, .argument = "NAME", .fallback = "default",          \
        .env = "ONCE_TENANT",                                                                      \
        .help = "the tenant, with a store or a server's socket; otherwise the token "              \
                "determines it"                                                                    \
    }
#define OPT_JSON                                                                                   \
    {                                                                                              \
        .name = "json", .help = "print JSON instead of text"                                       \
    }
#define OPT_SCOPE(text)                                                                            \
    {                                                                                              \
        .name = "scope", .kind = OPTION_TEXT, .argument = "SCOPE", .help = text                    \
    }
#define OPT_PRINCIPAL(text)                                                                        \
    {                                                                                              \
        .name = "principal", .kind = OPTION_TEXT, .argument = "WHO", .help = text                  \
    }
#define OPT_END                                                                                    \
    {                                                                                              \
        0                                                                                          \
    }

#define EXIT_FINE                                                                                  \
    {                                                                                              \
        0, "done"                                                                                  \
    }
#define EXIT_BAD_USAGE                                                                             \
    {                                                                                              \
        64, "invalid command line"                                                                 \
    }
#define EXIT_NO_STORE                                                                              \
    {                                                                                              \
        69, "the store cannot be used: missing, locked by another process, or no permission"       \
    }
#define EXIT_CORRUPT_STORE                                                                         \
    {                                                                                              \
        65, "the store is damaged; run once verify"                                                \
    }
#define EXIT_NO_SERVER                                                                             \
    {                                                                                              \
        69, "the store or the server cannot be used: missing, locked, no permission, no answer"    \
    }
#define EXIT_NOT_ALLOWED                                                                           \
    {                                                                                              \
        77, "the token is missing or lacks the right"                                              \
    }
#define EXIT_NO_OUTPUT                                                                             \
    {                                                                                              \
        74, "standard output could not be written"                                                 \
    }
#define EXIT_BAD_VARIABLE                                                                          \
    {                                                                                              \
        78, "an ONCE_* variable is invalid"                                                        \
    }
#define EXIT_END                                                                                   \
    {                                                                                              \
        0, NULL                                                                                    \
    }

static const struct exit_def looking_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    EXIT_CORRUPT_STORE,
    EXIT_NO_STORE,
    EXIT_NO_OUTPUT,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

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
    "before the command starts, the command is not run (exit 125). Afterwards once tries to record "
    "its end for a minute and for as long as the lease lasts; then the operation is unknown.",
    "With --json, output is not shown as it arrives. Instead, one document on standard output "
    "has the decision, the operation, the exit code and the command's output.",
    NULL,
};

static const struct option_def run_options[] = {
    {.name = "idempotency-key",
        .letter = 'k',
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .required = true,
        .help = "the key that names this operation, at most 255 bytes"},
    {.name = "scope",
        .kind = OPTION_TEXT,
        .argument = "SCOPE",
        .fallback = "run",
        .env = "ONCE_SCOPE",
        .help = "the namespace of the key"},
    {.name = "principal",
        .kind = OPTION_TEXT,
        .argument = "WHO",
        .env = "ONCE_PRINCIPAL",
        .help = "whom the operation belongs to; two principals may use the same key"},
    {.name = "ttl",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "24h",
        .env = "ONCE_TTL",
        .help = "how long duplicates are recognised after the command has ended"},
    {.name = "lease",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "30s",
        .env = "ONCE_LEASE",
        .help = "if once dies, how long until the operation is unknown; renewed while the "
                "command runs"},
    {.name = "on-unknown",
        .kind = OPTION_CHOICE,
        .argument = "WHAT",
        .fallback = "hold",
        .env = "ONCE_ON_UNKNOWN",
        .choices = {"hold", "takeover"},
        .help = "if an earlier run is unknown: hold refuses, takeover runs the command again "
                "(only for commands that are safe to repeat)"},
    {.name = "retry-failed",
        .help = "run the command again if it ended with an exit code other than 0"},
    {.name = "wait",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "10s",
        .env = "ONCE_WAIT",
        .help = "how long to wait if the operation is in progress elsewhere"},
    {.name = "env",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .repeated = true,
        .help = "also compare the value of this variable; may be repeated"},
    {.name = "ignore-cwd", .help = "do not compare the working directory"},
    {.name = "max-output",
        .kind = OPTION_SIZE,
        .argument = "SIZE",
        .fallback = "8MiB",
        .env = "ONCE_MAX_OUTPUT",
        .help = "how much output is recorded, at most 15MiB; beyond it the command runs on, and "
                "a replay says how much is missing"},
    {.name = "request-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .env = "ONCE_REQUEST_ID",
        .help = "an id for this call in the evidence"},
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def run_exits[] = {
    {0, "the command's own exit code, run or replayed; likewise any code not listed here"},
    EXIT_BAD_USAGE,
    {65, "conflict: the key was used with a different command"},
    {74, "the command exited with 0, but its output could not be written here; it is recorded"},
    {75, "in progress elsewhere, or unknown"},
    EXIT_BAD_VARIABLE,
    {125, "once itself failed; the message says whether the command ran"},
    {126, "the command cannot be executed; the key is free"},
    {127, "the command was not found; the key is free"},
    EXIT_END,
};

static const struct example_def run_examples[] = {
    {"once run --idempotency-key nightly-42 -- ./charge.sh",
        "run ./charge.sh once, however often this line runs"},
    {"once run -k invoice-7 --env AMOUNT --ttl 30d -- ./send-invoice 7",
        "remember it for 30 days; a different AMOUNT under the same key is refused"},
    {"once run -k nightly-42 --server https://once.example -- ./charge.sh",
        "the same on any number of machines: one of them runs it"},
    {NULL, NULL},
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
    {.name = "data",
        .letter = 'd',
        .kind = OPTION_TEXT,
        .argument = "WHAT",
        .help = "the body: @FILE, - for standard input, or the text itself; it is sent as "
                "application/json unless --header 'Content-Type: ...' says otherwise"},
    {.name = "header",
        .letter = 'H',
        .kind = OPTION_TEXT,
        .argument = "LINE",
        .repeated = true,
        .help = "a header, as 'Name: value'; or @FILE with one header per line, to hide them "
                "from other users of this machine; may be repeated"},
    {.name = "idempotency-key",
        .letter = 'k',
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .help = "the key that names this operation, at most 255 bytes; generated by default"},
    {.name = "request-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .env = "ONCE_REQUEST_ID",
        .help = "an id for the first attempt; by default each attempt gets a new one"},
    {.name = "retries",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "5",
        .help = "how many attempts may follow the first"},
    {.name = "deadline",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "60s",
        .help = "time limit for all attempts and pauses together"},
    {.name = "timeout",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "30s",
        .help = "time limit for one attempt"},
    {.name = "cacert",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CACERT",
        .help = "PEM file with the certificate authorities for the server; by default the "
                "system's"},
    {.name = "verbose",
        .letter = 'v',
        .help = "report each attempt, and whether the answer was "
                "replayed"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def send_exits[] = {
    {0, "the answer is 2xx, first or replayed"},
    {64, "invalid command line; nothing was sent"},
    {65, "a conflict, any other 4xx, or a redirect (3xx)"},
    {69, "unavailable: every attempt failed, and none took effect"},
    {74, "the body could not be written here, or is too large; the operation took effect"},
    {75, "in progress or unknown: send it again with the same key"},
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def send_examples[] = {
    {"once send POST http://127.0.0.1:8080/charges -k order-7 -d '{\"cents\":1200}'",
        "charge once, however often this line runs"},
    {"once send PUT https://api.example/things/7 --data @thing.json --retries 10 --deadline 5m",
        "retry for up to five minutes"},
    {NULL, NULL},
};

/* ---- looking ----------------------------------------------------------------------------- */

static const char *const ls_text[] = {
    "Lists operations, in no particular order. --json prints an array of objects.",
    "With --status unknown the oldest comes first, and each line shows how long the operation "
    "has been unknown and why. With --json these are unknown_since, age_ms and reason. On a "
    "terminal a long reason is truncated.",
    "If a server holds the store, the server is asked through its socket in the store's "
    "directory, so that only durable operations are shown. Otherwise the store itself is read.",
    NULL,
};

static const struct option_def ls_options[] = {
    {.name = "status",
        .kind = OPTION_CHOICE,
        .argument = "STATUS",
        .choices = {"in_progress", "unknown", "released", "executed", "failed", "rejected",
            "compensated"},
        .help = "only operations with this status"},
    OPT_SCOPE("only operations in this scope"),
    {.name = "key",
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .help = "only operations with this "
                "key"},
    {.name = "limit",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "0",
        .help = "at most N operations; 0 means all"},
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def ls_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    EXIT_CORRUPT_STORE,
    EXIT_NO_SERVER,
    EXIT_NO_OUTPUT,
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def ls_examples[] = {
    {"once ls --status unknown", "operations that somebody has to settle"},
    {"once ls --server https://once.example", "operations of a server, with the token in "
                                              "ONCE_TOKEN"},
    {NULL, NULL},
};

static const struct exit_def found_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "no such operation, or the store is damaged"},
    EXIT_NO_SERVER,
    EXIT_NO_OUTPUT,
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const char *const show_text[] = {
    "Shows the record of one operation, named by its id or by --scope, --principal and --key. "
    "For an operation of once run, the recorded output is shown too. With --json, an outcome "
    "that was JSON is printed byte for byte, and so is a first request that was JSON with a "
    "canonical form; anything else is text or base64.",
    NULL,
};

static const struct option_def show_options[] = {
    {.name = "key",
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .help = "the key, instead of an operation id"},
    {.name = "scope",
        .kind = OPTION_TEXT,
        .argument = "SCOPE",
        .fallback = "run",
        .help = "the scope of --key"},
    OPT_PRINCIPAL("the principal of --key"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct example_def show_examples[] = {
    {"once show --key nightly-42", "what happened to that run"},
    {NULL, NULL},
};

static const char *const why_text[] = {
    "Explains how an operation got to its current status: the first request under the key, every "
    "decision in order with the rule that led to it, and what to do next. The operation is named "
    "as for once show.",
    NULL,
};

static const struct example_def why_examples[] = {
    {"once why --key nightly-42", "how did that run get to its status?"},
    {NULL, NULL},
};

static const char *const tail_text[] = {
    "Prints the last evidence entries, oldest first, one per line. With --json each line is the "
    "entry exactly as it is chained.",
    "With --checkpoint, prints the newest signed checkpoint instead, byte for byte. Keep it on "
    "another machine: once verify --checkpoint then reveals a journal that was truncated, "
    "replaced by an older copy, or rewritten.",
    "Reading evidence through a server leaves an access.read entry. Those of this reader are not "
    "printed.",
    NULL,
};

static const struct option_def tail_options[] = {
    {.name = "lines",
        .letter = 'n',
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "10",
        .help = "how many entries"},
    {.name = "follow", .letter = 'f', .help = "keep printing new entries until interrupted"},
    {.name = "operation",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .help = "only entries of this operation"},
    {.name = "checkpoint", .help = "print the newest signed checkpoint, to be kept elsewhere"},
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def tail_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    EXIT_CORRUPT_STORE,
    {69, "the store or the server cannot be used, or there is no checkpoint yet"},
    EXIT_NO_OUTPUT,
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def tail_examples[] = {
    {"once tail -f", "watch decisions as they are made"},
    {"once tail --checkpoint | ssh elsewhere 'cat > note'", "keep a checkpoint on another machine"},
    {NULL, NULL},
};

/* ---- resolve ----------------------------------------------------------------------------- */

static const char *const resolve_text[] = {
    "Settles an unknown operation after somebody has found out whether its effect happened. "
    "executed and failed are final: duplicates get the outcome given here. not_executed frees "
    "the key: the next call runs.",
    "If a server holds the store, the operation is settled through the server.",
    NULL,
};

static const struct option_def resolve_options[] = {
    {.name = "status",
        .kind = OPTION_CHOICE,
        .argument = "STATUS",
        .required = true,
        .choices = {"executed", "failed", "not_executed"},
        .help = "what happened"},
    {.name = "reason",
        .kind = OPTION_TEXT,
        .argument = "TEXT",
        .required = true,
        .help = "how you found out; kept in the evidence, at most 255 bytes"},
    {.name = "effect-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .help = "the effect's id, such as the provider's charge id"},
    {.name = "outcome",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "what duplicates get: on standard output, or from a server as the outcome, which "
                "must then be JSON; - is standard input"},
    {.name = "exit-code",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "what duplicates exit with; by default 0 for executed and 1 for failed"},
    {.name = "fence",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "the fence of the attempt you checked: if there has been a newer attempt, "
                "nothing is settled"},
    {.name = "actor",
        .kind = OPTION_TEXT,
        .argument = "WHO",
        .env = "USER",
        .help = "who settles it, for the evidence"},
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def resolve_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "no such operation, or it was settled differently, or a newer attempt has begun"},
    EXIT_NO_SERVER,
    {75, "still in progress; or the server did not answer, and it may have been settled"},
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def resolve_examples[] = {
    {"once resolve op_0198… --status not_executed --reason \"no charge at the provider\"",
        "let the next call run it"},
    {NULL, NULL},
};

/* ---- canonical form and keys ------------------------------------------------------------- */

static const char *const canon_text[] = {
    "Reads JSON from standard input and writes exactly the bytes of its canonical form (RFC "
    "8785), followed by a newline only on a terminal. A number that a double cannot hold, such "
    "as 9007199254740993, is lossy: it is written as ECMAScript would write it, and reported.",
    NULL,
};

static const struct option_def canon_options[] = {
    {.name = "strict", .help = "refuse lossy numbers"},
    OPT_END,
};

static const struct exit_def canon_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "not JSON, or lossy with --strict; the message has line and column"},
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def canon_examples[] = {
    {"echo '{\"b\":2,\"a\":1.0}' | once canon", "prints {\"a\":1,\"b\":2}"},
    {NULL, NULL},
};

static const char *const key_text[] = {
    "Prints the key derived from the JSON object on standard input, as 64 hex digits. command "
    "takes a command envelope, effect an effect envelope, and source an object with tenant_id "
    "and any of source_type, source_id, revision, index_hash and action.",
    NULL,
};

static const struct option_def key_options[] = {
    {.name = "show", .help = "print the canonical bytes that are hashed, instead of the key"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def key_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "not JSON, or a missing member, a lossy number or a duplicate member"},
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def key_examples[] = {
    {"once key source < message.json", "the key of a message from a source"},
    {NULL, NULL},
};

/* ---- checking ---------------------------------------------------------------------------- */

static const char *const verify_text[] = {
    "Reads the whole journal and checks frames, checksums, the chain, that no entry is missing, "
    "bodies against their digests, and the signatures of checkpoints. It can run beside the "
    "writing process.",
    "With --server, reads the evidence that the token may see from a server, and checks what can "
    "be checked from outside: each entry against its hash, consecutive entries against the "
    "chain, and the head. Entries of other tenants lie in between, so a missing entry cannot be "
    "detected. What was not checked is printed too.",
    NULL,
};

static const struct option_def verify_options[] = {
    {.name = "redecide", .help = "make every decision again and compare"},
    {.name = "checkpoint",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "a checkpoint kept elsewhere: reveals whether the end of the journal was cut off"},
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def verify_exits[] = {
    {0, "everything checks out"},
    {1, "damage: the message says where, which operation, and what is still good"},
    {2, "could not check"},
    EXIT_BAD_USAGE,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def verify_examples[] = {
    {"once verify --redecide", "check the bytes and the decisions"},
    {"once verify --server https://once.example", "check a server's evidence"},
    {NULL, NULL},
};

static const char *const doctor_text[] = {
    "Checks the store, the server that holds it, if any, and the machine. Each check is PASS, "
    "WARN or FAIL, with what to do about it.",
    NULL,
};

static const struct option_def doctor_options[] = {
    OPT_STORE,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def doctor_exits[] = {
    {0, "nothing failed"},
    {1, "something failed"},
    EXIT_BAD_USAGE,
    EXIT_NO_OUTPUT,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def doctor_examples[] = {
    {"once doctor --store journal:/var/lib/once", "is this machine fit for that store?"},
    {NULL, NULL},
};

static const char *const bench_text[] = {
    "Measures durable pairs of begin and seal per second within this process, on a temporary "
    "store, or on --store.",
    NULL,
};

static const struct option_def bench_options[] = {
    {.name = "seconds",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "3",
        .help = "how "
                "many "
                "seconds "
                "to "
                "measure"},
    {.name = "threads",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "1",
        .help = "how many threads submit, at most 64"},
    {.name = "in-flight",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "512",
        .help = "concurrent pairs over all threads, at most 16384"},
    {.name = "store",
        .kind = OPTION_TEXT,
        .argument = "URL",
        .help = "measure on this store instead of a temporary one"},
    OPT_JSON,
    OPT_END,
};

static const struct example_def bench_examples[] = {
    {"once bench --seconds 5", "how fast is this disk?"},
    {NULL, NULL},
};

static const char *const demo_text[] = {
    "Runs a payment provider that times out after charging, fails before charging and loses "
    "answers; clients that retry, crash and send everything twice; and Once between them. Ends "
    "with a summary and the path of the journal. Takes a few seconds.",
    NULL,
};

static const struct option_def demo_options[] = {
    {.name = "orders",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "300",
        .help = "how many payments, at most 100000"},
    {.name = "seed",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "repeat the same failures; random by default"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def demo_exits[] = {
    {0, "every order was charged at most once and all were settled"},
    {1, "a double charge, or an order that was not settled"},
    EXIT_BAD_USAGE,
    EXIT_NO_STORE,
    EXIT_END,
};

static const struct example_def demo_examples[] = {
    {"once demo", "see Once work"},
    {NULL, NULL},
};

/* ---- the server -------------------------------------------------------------------------- */

static const char *const serve_text[] = {
    "Serves fences over HTTP to programs in any language, from one store. By default it listens "
    "on 127.0.0.1:7411 and keeps its journal in ./once-data. When it is ready it prints "
    "the version, the URL, the store, how it writes and, on a terminal or a new store, three "
    "commands to try. Logs go to standard error.",
    "A YAML file can set everything (--config; once check --example prints one with every "
    "setting). Flags and ONCE_* variables set the most common things. Flags win over variables, "
    "variables over the file.",
    "SIGHUP reads the configuration again and applies its tokens, limits and certificates: all "
    "of them, or none if anything is invalid. On SIGTERM or SIGINT it stops accepting, finishes "
    "requests in flight for up to --drain, flushes, and exits with 0; a second signal cuts what "
    "is left.",
    "An address that other machines can reach is refused unless tokens are configured. The data "
    "directory has a socket, once.sock, for anyone who can open the directory; the other "
    "commands find it automatically.",
    NULL,
};

/* For both servers. */
#define OPTS_SERVER                                                                                \
    {.name = "loops",                                                                              \
        .kind = OPTION_COUNT,                                                                      \
        .argument = "N",                                                                           \
        .fallback = "0",                                                                           \
        .env = "ONCE_LOOPS",                                                                       \
        .help = "threads that serve connections; 0 means one per core"},                           \
        {.name = "drain",                                                                          \
            .kind = OPTION_DURATION,                                                               \
            .argument = "TIME",                                                                    \
            .fallback = "10s",                                                                     \
            .env = "ONCE_DRAIN",                                                                   \
            .help = "how long requests in flight may take to finish after a signal to stop"},      \
        {.name = "log-level",                                                                      \
            .kind = OPTION_CHOICE,                                                                 \
            .argument = "LEVEL",                                                                   \
            .fallback = "info",                                                                    \
            .choices = {"debug", "info", "warn", "error"},                                         \
            .env = "ONCE_LOG_LEVEL",                                                               \
            .help = "the lowest level that is logged"},                                            \
        {.name = "log-format",                                                                     \
            .kind = OPTION_CHOICE,                                                                 \
            .argument = "FORM",                                                                    \
            .fallback = "auto",                                                                    \
            .choices = {"auto", "json", "human"},                                                  \
            .env = "ONCE_LOG_FORMAT",                                                              \
            .help = "format of the log; auto is human on a terminal and json otherwise"},          \
    {                                                                                              \
        .name = "json", .help = "print the lines at start, or the result of --test, as JSON"       \
    }

/* Settings among these are also in config/options.c; a test compares the two. */
static const struct option_def serve_options[] = {
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the YAML configuration file"},
    {.name = "listen",
        .letter = 'l',
        .kind = OPTION_TEXT,
        .argument = "ADDRESS",
        .repeated = true,
        .fallback = "127.0.0.1:7411",
        .env = "ONCE_LISTEN",
        .help = "where to listen: 127.0.0.1:7411, [::1]:7411 or unix:/path; port 0 takes any "
                "free port"},
    OPT_STORE,
    {.name = "test",
        .letter = 't',
        .help = "check the whole configuration, open nothing, and exit"},
    {.name = "tls-cert",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_TLS_CERT",
        .help = "PEM certificate with its chain; TCP addresses then accept only TLS"},
    {.name = "tls-key",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_TLS_KEY",
        .help = "PEM private key of --tls-cert"},
    OPTS_SERVER,
    OPT_END,
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
    "SIGHUP, SIGTERM and SIGINT work as for once serve. A request still at the upstream when the "
    "drain ends becomes unknown.",
    NULL,
};

static const struct option_def gateway_options[] = {
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the YAML configuration file"},
    {.name = "listen",
        .letter = 'l',
        .kind = OPTION_TEXT,
        .argument = "ADDRESS",
        .repeated = true,
        .fallback = "127.0.0.1:8080",
        .env = "ONCE_GATEWAY_LISTEN",
        .help = "where clients connect: 127.0.0.1:8080, [::1]:8080 or unix:/path; port 0 takes "
                "any free port"},
    {.name = "upstream",
        .letter = 'u',
        .kind = OPTION_TEXT,
        .argument = "URL",
        .repeated = true,
        .env = "ONCE_GATEWAY_UPSTREAM",
        .help = "the API behind the gateway: http://127.0.0.1:3000 or https://…; several are "
                "used in turn"},
    {.name = "profile",
        .letter = 'p',
        .kind = OPTION_CHOICE,
        .argument = "NAME",
        .fallback = "ietf",
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"},
        .env = "ONCE_GATEWAY_PROFILE",
        .help = "how keys are required and what refusals look like"},
    {.name = "policy",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_GATEWAY_POLICY",
        .help = "a policy in the format of idempotency.yml; routes may override it"},
    OPT_STORE,
    {.name = "test",
        .letter = 't',
        .help = "check the whole configuration, open nothing, and exit"},
    OPTS_SERVER,
    OPT_END,
};

static const struct exit_def serve_exits[] = {
    {0, "stopped by a signal, everything flushed"},
    EXIT_BAD_USAGE,
    EXIT_CORRUPT_STORE,
    {69, "the store or an address cannot be used: in use, missing, or no permission"},
    {70, "the store failed while serving; a restart reads its true state"},
    EXIT_NO_OUTPUT,
    {78, "the configuration or an ONCE_* variable is invalid"},
    EXIT_END,
};

static const struct example_def serve_examples[] = {
    {"once serve", "on 127.0.0.1:7411 with ./once-data"},
    {"once serve --listen 127.0.0.1:0 --store journal:/var/lib/once", "any free port, a "
                                                                      "different store"},
    {"once serve --config once.yaml --test", "is the whole configuration valid?"},
    {NULL, NULL},
};

static const struct example_def gateway_examples[] = {
    {"once gateway --upstream http://127.0.0.1:3000", "on 127.0.0.1:8080, every write fenced"},
    {"once gateway -l 127.0.0.1:0 -u http://127.0.0.1:3000 --profile stripe", "with a different "
                                                                              "profile"},
    {"once gateway --config once.yaml", "routes from a file"},
    {NULL, NULL},
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
    {.name = "example", .help = "print a file with every setting, its default and its trade-off"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def check_exits[] = {
    {0, "the file is valid"},
    EXIT_BAD_USAGE,
    EXIT_NO_OUTPUT,
    {78, "the file is invalid or cannot be read"},
    EXIT_END,
};

static const struct example_def check_examples[] = {
    {"once check once.yaml", "is it valid?"},
    {"once check --example > once.yaml", "a file to start from"},
    {"once check idempotency.yml", "what does this policy mean?"},
    {NULL, NULL},
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
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the gateway's YAML configuration file; its upstreams are never called"},
    {.name = "policy",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_GATEWAY_POLICY",
        .help = "a policy in the format of idempotency.yml; routes may override it"},
    {.name = "profile",
        .letter = 'p',
        .kind = OPTION_CHOICE,
        .argument = "NAME",
        .fallback = "ietf",
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"},
        .env = "ONCE_GATEWAY_PROFILE",
        .help = "how keys are required and what refusals look like"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def policy_exits[] = {
    {0, "every case is as expected"},
    EXIT_BAD_USAGE,
    {65, "at least one case is not"},
    {69, "no loopback port, or no memory"},
    EXIT_NO_OUTPUT,
    {78, "the cases, the configuration or the policy are invalid or cannot be read"},
    EXIT_END,
};

static const struct example_def policy_examples[] = {
    {"once policy test --config once.yaml cases.yaml", "does it still behave as clients expect?"},
    {"once policy test --policy idempotency.yml cases.yaml", "the same for a policy without a "
                                                             "configuration"},
    {NULL, NULL},
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
    {.name = "tenant",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .help = "new: the tenant the token is for"},
    {.name = "rights",
        .kind = OPTION_TEXT,
        .argument = "LIST",
        .help = "new: the rights, separated by commas: execute,audit"},
    {.name = "name",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .help = "new: its name in evidence and logs"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def token_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "hash: standard input is not a token"},
    {69, "the kernel provided no random bytes"},
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def token_examples[] = {
    {"once token new --tenant acme --rights execute,audit", "a token for tenant acme"},
    {"once token hash < token.txt", "the value for the configuration"},
    {NULL, NULL},
};

/* ---- the program itself ------------------------------------------------------------------ */

static const struct option_def no_options[] = {
    OPT_END,
};

static const struct option_def version_options[] = {
    OPT_JSON,
    OPT_END,
};

static const char *const help_text[] = {
    "Without a name, lists the commands. once NAME --help is the same.",
    NULL,
};

static const char *const version_text[] = {
    "once --version is the same.",
    NULL,
};

static const struct exit_def plain_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def help_examples[] = {
    {"once help run", "everything about once run"},
    {NULL, NULL},
};

static const struct example_def version_examples[] = {
    {"once version", "prints the version"},
    {NULL, NULL},
};

const struct command_def commands[] = {
    {.name = "serve",
        .summary = "serve fences over HTTP",
        .operands = "",
        .text = serve_text,
        .options = serve_options,
        .exits = serve_exits,
        .examples = serve_examples,
        .run = cmd_serve},
    {.name = "gateway",
        .summary = "make an HTTP API idempotent by standing in front of it",
        .operands = "",
        .text = gateway_text,
        .options = gateway_options,
        .exits = serve_exits,
        .examples = gateway_examples,
        .run = cmd_gateway},
    {.name = "check",
        .summary = "check a configuration",
        .operands = "[FILE]",
        .operands_max = 1,
        .text = check_text,
        .options = check_options,
        .exits = check_exits,
        .examples = check_examples,
        .run = cmd_check},
    {.name = "policy",
        .summary = "test a gateway's configuration with requests and expected decisions",
        .operands = "test CASES",
        .operand_choices = {"test"},
        .operands_min = 2,
        .operands_max = 2,
        .text = policy_text,
        .options = policy_options,
        .exits = policy_exits,
        .examples = policy_examples,
        .run = cmd_policy},
    {.name = "token",
        .summary = "create a bearer token",
        .operands = "new|hash",
        .operand_choices = {"new", "hash"},
        .operands_min = 1,
        .operands_max = 1,
        .text = token_text,
        .options = token_options,
        .exits = token_exits,
        .examples = token_examples,
        .run = cmd_token},
    {.name = "run",
        .summary = "run a command once, and replay its outcome to every duplicate",
        .operands = "[--] COMMAND [ARGUMENT...]",
        .operands_min = 1,
        .operands_max = SIZE_MAX,
        .rest_is_operands = true,
        .text = run_text,
        .options = run_options,
        .exits = run_exits,
        .examples = run_examples,
        .run = cmd_run},
    {.name = "send",
        .summary = "send an HTTP request that takes effect once",
        .operands = "METHOD URL",
        .operand_choices = {"POST", "PUT", "PATCH", "DELETE", "GET"},
        .operands_min = 2,
        .operands_max = 2,
        .text = send_text,
        .options = send_options,
        .exits = send_exits,
        .examples = send_examples,
        .run = cmd_send},
    {.name = "ls",
        .summary = "list operations",
        .operands = "",
        .text = ls_text,
        .options = ls_options,
        .exits = ls_exits,
        .examples = ls_examples,
        .run = cmd_ls},
    {.name = "show",
        .summary = "show one operation",
        .operands = "[OPERATION_ID]",
        .operands_max = 1,
        .text = show_text,
        .options = show_options,
        .exits = found_exits,
        .examples = show_examples,
        .run = cmd_show},
    {.name = "why",
        .summary = "explain how an operation got to its status",
        .operands = "[OPERATION_ID]",
        .operands_max = 1,
        .text = why_text,
        .options = show_options,
        .exits = found_exits,
        .examples = why_examples,
        .run = cmd_why},
    {.name = "resolve",
        .summary = "settle an unknown operation",
        .operands = "OPERATION_ID",
        .operands_min = 1,
        .operands_max = 1,
        .text = resolve_text,
        .options = resolve_options,
        .exits = resolve_exits,
        .examples = resolve_examples,
        .run = cmd_resolve},
    {.name = "tail",
        .summary = "print the latest evidence",
        .operands = "",
        .text = tail_text,
        .options = tail_options,
        .exits = tail_exits,
        .examples = tail_examples,
        .run = cmd_tail},
    {.name = "verify",
        .summary = "check that the journal is intact",
        .operands = "",
        .text = verify_text,
        .options = verify_options,
        .exits = verify_exits,
        .examples = verify_examples,
        .run = cmd_verify},
    {.name = "doctor",
        .summary = "check the store and the machine",
        .operands = "",
        .text = doctor_text,
        .options = doctor_options,
        .exits = doctor_exits,
        .examples = doctor_examples,
        .run = cmd_doctor},
    {.name = "canon",
        .summary = "print the canonical form of JSON",
        .operands = "",
        .text = canon_text,
        .options = canon_options,
        .exits = canon_exits,
        .examples = canon_examples,
        .run = cmd_canon},
    {.name = "key",
        .summary = "derive a key from JSON",
        .operands = "command|effect|source",
        .operand_choices = {"command", "effect", "source"},
        .operands_min = 1,
        .operands_max = 1,
        .text = key_text,
        .options = key_options,
        .exits = key_exits,
        .examples = key_examples,
        .run = cmd_key},
    {.name = "bench",
        .summary = "measure this machine",
        .operands = "",
        .text = bench_text,
        .options = bench_options,
        .exits = looking_exits,
        .examples = bench_examples,
        .run = cmd_bench},
    {.name = "demo",
        .summary = "watch a flaky provider being charged exactly once",
        .operands = "",
        .text = demo_text,
        .options = demo_options,
        .exits = demo_exits,
        .examples = demo_examples,
        .run = cmd_demo},
    {.name = "version",
        .summary = "print the version",
        .operands = "",
        .text = version_text,
        .options = version_options,
        .exits = plain_exits,
        .examples = version_examples,
        .run = cmd_version},
    {.name = "help",
        .summary = "explain a command",
        .operands = "[COMMAND]",
        .operands_max = 1,
        .text = help_text,
        .options = no_options,
        .exits = plain_exits,
        .examples = help_examples,
        .run = cmd_help},
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
