/*
 * Every command and option in words. The file is past 800 lines because it is one table: what is
 * not here does not exist.
 */
#include "cli/commands.h"

#include <stdint.h>
#include <string.h>

/* ---- options that several commands share ------------------------------------------------- */

#define OPT_STORE                                                                                  \
    {                                                                                              \
        .name = "store", .kind = OPTION_TEXT, .argument = "URL",                                   \
        .fallback = "journal:./once-data", .env = "ONCE_STORE",                                    \
        .help = "where operations are remembered: journal:DIRECTORY, or a plain directory"         \
    }
/* Of the commands that look at operations or settle them. */
#define OPT_SERVER                                                                                 \
    {.name = "server",                                                                             \
        .kind = OPTION_TEXT,                                                                       \
        .argument = "URL",                                                                         \
        .env = "ONCE_SERVER",                                                                      \
        .help = "ask this server instead: http://HOST:PORT, https://HOST or unix:PATH. Not "       \
                "needed on the server's own machine: the socket in the store's directory is "      \
                "found"},                                                                          \
        {.name = "token",                                                                          \
            .kind = OPTION_TEXT,                                                                   \
            .argument = "TOKEN",                                                                   \
            .env = "ONCE_TOKEN",                                                                   \
            .help = "the bearer token for --server; rather use the variable: everybody on this "   \
                    "machine can see a command line"},                                             \
        {.name = "cacert",                                                                         \
            .kind = OPTION_FILE,                                                                   \
            .argument = "FILE",                                                                    \
            .env = "ONCE_CACERT",                                                                  \
            .help = "authorities, in PEM, that may have signed the certificate of --server; the "  \
                    "system's when not given"},                                                    \
    {                                                                                              \
        .name = "tenant", .kind = OPTION_TEXT, .argument = "NAME", .fallback = "default",          \
        .env = "ONCE_TENANT",                                                                      \
        .help = "whose operations, of a store or a server's own socket; elsewhere the token says"  \
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
        64, "the command line is wrong"                                                            \
    }
#define EXIT_NO_STORE                                                                              \
    {                                                                                              \
        69, "the store cannot be used: missing, locked by another process, or no permission"       \
    }
#define EXIT_CORRUPT_STORE                                                                         \
    {                                                                                              \
        65, "the store does not check out; run once verify"                                        \
    }
#define EXIT_NO_SERVER                                                                             \
    {                                                                                              \
        69, "the store or the server cannot be used: missing, locked, no permission, no answer"    \
    }
#define EXIT_NOT_ALLOWED                                                                           \
    {                                                                                              \
        77, "the server wants a token, or one with another right"                                  \
    }
#define EXIT_NO_OUTPUT                                                                             \
    {                                                                                              \
        74, "standard output could not be written"                                                 \
    }
#define EXIT_BAD_VARIABLE                                                                          \
    {                                                                                              \
        78, "an ONCE_* variable is wrong"                                                          \
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
    "Runs the command if nobody has run it under this key, and remembers its standard output, its "
    "standard error and its exit code. A duplicate runs nothing: it prints the same bytes to the "
    "same places and exits with the same code. Every exit code is final and replayed, failures too "
    "(but see --retry-failed).",
    "The same key with another command is a conflict and is refused. What is compared: the command "
    "and its arguments, the working directory (unless --ignore-cwd), and the variables named with "
    "--env. Standard input is handed to the command and is not compared. What is compared is kept "
    "in the store, so that a conflict can be explained: do not put secrets on the command line.",
    "When once cannot know whether the command did its work (it was killed by a signal, or once "
    "itself was), the operation is unknown. It is not run again by itself: the next call exits "
    "with 75 and says how to look and how to settle it with once resolve. If once is killed with "
    "SIGKILL the command may go on running; nobody records its end.",
    "The store is locked only for a moment before and after the command, and to renew the lease "
    "while it runs, so any number of commands can run beside each other. Output is shown as it "
    "comes. The command sees pipes instead of a terminal, and the variables ONCE_OPERATION_ID, "
    "ONCE_FENCE, ONCE_ATTEMPT and ONCE_IDEMPOTENCY_KEY. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 "
    "and SIGUSR2 are passed on to it.",
    "With --json nothing is shown as it comes: one document on standard output has the decision, "
    "the operation, the exit code and the output of the command.",
    NULL,
};

static const struct option_def run_options[] = {
    {.name = "idempotency-key",
        .letter = 'k',
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .required = true,
        .help = "what names this operation, at most 255 bytes"},
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
        .help = "whom the operation belongs to: part of its name"},
    {.name = "ttl",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "24h",
        .env = "ONCE_TTL",
        .help = "how long duplicates are recognised after the command ended"},
    {.name = "lease",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "30s",
        .env = "ONCE_LEASE",
        .help = "after how long at the latest the operation counts as unknown when once has "
                "disappeared; renewed while the command runs"},
    {.name = "on-unknown",
        .kind = OPTION_CHOICE,
        .argument = "WHAT",
        .fallback = "hold",
        .env = "ONCE_ON_UNKNOWN",
        .choices = {"hold", "takeover"},
        .help = "when an earlier run is unknown: hold refuses, takeover runs it again (only for "
                "commands that may be repeated)"},
    {.name = "retry-failed",
        .help = "run it again when it ended with an exit code other than 0 before"},
    {.name = "wait",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "10s",
        .env = "ONCE_WAIT",
        .help = "how long to wait for the same operation running elsewhere"},
    {.name = "env",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .repeated = true,
        .help = "a variable whose value is part of what is compared; may be repeated"},
    {.name = "ignore-cwd", .help = "leave the working directory out of what is compared"},
    {.name = "max-output",
        .kind = OPTION_SIZE,
        .argument = "SIZE",
        .fallback = "8MiB",
        .env = "ONCE_MAX_OUTPUT",
        .help = "how much output is remembered, at most 15MiB; past it the command goes on and a "
                "replay says how much is missing"},
    {.name = "request-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .env = "ONCE_REQUEST_ID",
        .help = "a name for this call in the evidence"},
    OPT_STORE,
    OPT_JSON,
    OPT_END,
};

static const struct exit_def run_exits[] = {
    {0, "the command's own exit code, now or replayed; also every other code not listed here"},
    EXIT_BAD_USAGE,
    {65, "conflict: the key was used with another command"},
    {74, "the command exited with 0 but its output could not be written here; it is remembered"},
    {75, "in progress elsewhere, or unknown"},
    EXIT_BAD_VARIABLE,
    {125, "once itself failed; the message says whether the command ran"},
    {126, "the command cannot be executed; the key is free"},
    {127, "the command was not found; the key is free"},
    EXIT_END,
};

static const struct example_def run_examples[] = {
    {"once run --idempotency-key nightly-42 -- ./charge.sh",
        "run ./charge.sh once, however often this line is executed"},
    {"once run -k invoice-7 --env AMOUNT --ttl 30d -- ./send-invoice 7",
        "remember it for 30 days; another AMOUNT under the same key is refused"},
    {NULL, NULL},
};

/* ---- send -------------------------------------------------------------------------------- */

static const char *const send_text[] = {
    "Sends one HTTP request so that it takes effect once: the SDK (once/client.h) from the shell. "
    "The key is the same over all attempts; without --idempotency-key one is made, and told on "
    "standard error before anything is sent, so that the same operation can be sent again whatever "
    "happens. GET, HEAD, OPTIONS and TRACE change nothing and carry no key. Behind the URL has to "
    "be something that honours Idempotency-Key: the gateway of Once, or an API of that kind.",
    "Tried again, with growing random pauses: when there is no connection, no answer or half an "
    "answer; after 408, 429 and 5xx; while the operation is in progress, or of unknown outcome, "
    "which may be settled meanwhile. Retry-After is waited for. Not tried again: a conflict, every "
    "other answer, a replayed failure, and a certificate that does not check out. Redirects are "
    "not followed. Each attempt has a Request-Id of its own; with --request-id R the first has R, "
    "the next R.2, and so on.",
    "The body of the answer goes to standard output. On a terminal, or with --verbose, each "
    "attempt is told on standard error. With --json one document has the status, the headers, the "
    "body, the key, what is known of the effect, and whether it was replayed.",
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
        .help = "a header, as 'Name: value', or @FILE with one a line, for what others on this "
                "machine must not see; may be repeated"},
    {.name = "idempotency-key",
        .letter = 'k',
        .kind = OPTION_TEXT,
        .argument = "KEY",
        .help = "what names this operation, at most 255 bytes; made when not given"},
    {.name = "request-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .env = "ONCE_REQUEST_ID",
        .help = "a name for the first attempt; made for each when not given"},
    {.name = "retries",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "5",
        .help = "how many more attempts there may be after the first"},
    {.name = "deadline",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "60s",
        .help = "over all attempts and pauses"},
    {.name = "timeout",
        .kind = OPTION_DURATION,
        .argument = "TIME",
        .fallback = "30s",
        .help = "over one attempt"},
    {.name = "cacert",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CACERT",
        .help = "authorities, in PEM, that may have signed the certificate of the server; the "
                "system's when not given"},
    {.name = "verbose", .letter = 'v', .help = "tell each attempt, and whether it was replayed"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def send_exits[] = {
    {0, "the answer is 2xx, the first one or a replay"},
    {64, "the command line is wrong; nothing was sent"},
    {65, "conflict, or another refusal (4xx), or a redirect (3xx)"},
    {69, "not available: nothing happened, though it was tried"},
    {74, "the body could not be written here, or is too large; the operation took effect"},
    {75, "in progress, or nobody knows: send it again with the same key"},
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def send_examples[] = {
    {"once send POST http://127.0.0.1:8080/charges -k order-7 -d '{\"cents\":1200}'",
        "charge once, however often this line is executed"},
    {"once send PUT https://api.example/things/7 --data @thing.json --retries 10 --deadline 5m",
        "be patient"},
    {NULL, NULL},
};

/* ---- looking ----------------------------------------------------------------------------- */

static const char *const ls_text[] = {
    "Lists operations, in no particular order. With --json one array of objects.",
    "With --status unknown the one that has waited longest comes first, and each shows how long it "
    "has been unknown and the last word about it: why nobody knows. With --json these are "
    "unknown_since, age_ms and reason. On a terminal a long last word is cut.",
    "While a server holds the store, it is asked through the socket in the store's directory, so "
    "that nothing is shown that is not durable; otherwise the store itself is read.",
    NULL,
};

static const struct option_def ls_options[] = {
    {.name = "status",
        .kind = OPTION_CHOICE,
        .argument = "STATUS",
        .choices = {"in_progress", "unknown", "released", "executed", "failed", "rejected",
            "compensated"},
        .help = "only those"},
    OPT_SCOPE("only those of this namespace"),
    {.name = "key", .kind = OPTION_TEXT, .argument = "KEY", .help = "only those with this key"},
    {.name = "limit",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "0",
        .help = "at most so many; 0 is all"},
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
    {"once ls --status unknown", "what needs somebody to look at it"},
    {"once ls --server https://once.example", "the same of a server, with the token in ONCE_TOKEN"},
    {NULL, NULL},
};

static const struct exit_def found_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "no such operation, or the store does not check out"},
    EXIT_NO_SERVER,
    EXIT_NO_OUTPUT,
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const char *const show_text[] = {
    "Shows what is remembered of one operation, named by its id or by --scope, --principal and "
    "--key. Of an operation of once run the output is shown too. With --json, an outcome that came "
    "as JSON is the value that it is, byte for byte, and so is the first request when it was JSON "
    "that has a canonical form; anything else is text, or base64.",
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
        .help = "the namespace of --key"},
    OPT_PRINCIPAL("the principal of --key"),
    OPT_STORE,
    OPT_SERVER,
    OPT_JSON,
    OPT_END,
};

static const struct example_def show_examples[] = {
    {"once show --key nightly-42", "what became of that run"},
    {NULL, NULL},
};

static const char *const why_text[] = {
    "Tells in words how an operation came to where it is: the request that was first made under "
    "the key, every decision in order with the rule behind it, and what to do now. Takes the same "
    "names as once show.",
    NULL,
};

static const struct example_def why_examples[] = {
    {"once why --key nightly-42", "why did it say that?"},
    {NULL, NULL},
};

static const char *const tail_text[] = {
    "Prints the last evidence entries, oldest first, one a line. With --json each line is the "
    "entry exactly as it is chained.",
    "With --checkpoint prints the newest signed checkpoint instead, byte for byte. Kept on "
    "another machine and given to once verify --checkpoint, it shows whether the journal was cut "
    "short, put back to an older copy, or written anew.",
    "Reading evidence through a server leaves an access.read entry behind. The reader's own are "
    "not printed.",
    NULL,
};

static const struct option_def tail_options[] = {
    {.name = "lines",
        .letter = 'n',
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "10",
        .help = "how many"},
    {.name = "follow", .letter = 'f', .help = "go on printing new ones until interrupted"},
    {.name = "operation",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .help = "only those of this operation"},
    {.name = "checkpoint", .help = "the newest signed checkpoint instead, to be kept elsewhere"},
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
    {"once tail -f", "watch decisions being made"},
    {"once tail --checkpoint | ssh elsewhere 'cat > note'", "keep a checkpoint on another machine"},
    {NULL, NULL},
};

/* ---- resolve ----------------------------------------------------------------------------- */

static const char *const resolve_text[] = {
    "Settles an unknown operation, after somebody has looked whether its effect happened. executed "
    "and failed are final: duplicates are answered with the outcome given here. not_executed frees "
    "the key: the next call runs it again.",
    "While a server holds the store, it is settled through the server.",
    NULL,
};

static const struct option_def resolve_options[] = {
    {.name = "status",
        .kind = OPTION_CHOICE,
        .argument = "STATUS",
        .required = true,
        .choices = {"executed", "failed", "not_executed"},
        .help = "what really happened"},
    {.name = "reason",
        .kind = OPTION_TEXT,
        .argument = "TEXT",
        .required = true,
        .help = "who looked where; kept in the evidence, at most 255 bytes"},
    {.name = "effect-id",
        .kind = OPTION_TEXT,
        .argument = "ID",
        .help = "the effect's own name, such as the provider's charge id"},
    {.name = "outcome",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help =
            "what duplicates get on standard output or, from a server, as outcome, which has to be "
            "JSON; - is standard input"},
    {.name = "exit-code",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "what duplicates exit with; 0 for executed and 1 for failed when not given"},
    {.name = "fence",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "the fence of the attempt that was looked into: if there was another one since, "
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
    {65, "no such operation, or it was settled differently, or another attempt began since"},
    EXIT_NO_SERVER,
    {75, "it is still running; or the server did not answer, and it may have been settled"},
    EXIT_NOT_ALLOWED,
    EXIT_BAD_VARIABLE,
    EXIT_END,
};

static const struct example_def resolve_examples[] = {
    {"once resolve op_0198… --status not_executed --reason \"no charge at the provider\"",
        "let it be run again"},
    {NULL, NULL},
};

/* ---- canonical form and keys ------------------------------------------------------------- */

static const char *const canon_text[] = {
    "Reads JSON from standard input and writes its canonical form (RFC 8785), exactly those bytes; "
    "a newline follows only on a terminal. A number that a double cannot hold, such as "
    "9007199254740993, is lossy: it is written as ECMAScript would, and reported.",
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
    "takes a command envelope, effect an effect envelope, source an object with tenant_id and "
    "those given of source_type, source_id, revision, index_hash and action.",
    NULL,
};

static const struct option_def key_options[] = {
    {.name = "show", .help = "print the canonical bytes that are hashed instead"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def key_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "not JSON, a member missing, a lossy number or a duplicate member"},
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def key_examples[] = {
    {"once key source < message.json", "the key of a message from a source"},
    {NULL, NULL},
};

/* ---- checking ---------------------------------------------------------------------------- */

static const char *const verify_text[] = {
    "Reads the whole journal and checks frames, sums, the chain, that no entry is missing, bodies "
    "against their digests and the signatures of checkpoints. Works beside a running writer.",
    "With --server asks a server for the evidence that the token may see, and checks what can be "
    "checked from outside: each entry against its hash, those that follow each other against the "
    "chain, and the head. Others' entries are between them, so that a missing one is not noticed; "
    "what was not checked is printed too.",
    NULL,
};

static const struct option_def verify_options[] = {
    {.name = "redecide", .help = "make every decision again and compare"},
    {.name = "checkpoint",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "a checkpoint kept elsewhere: shows whether the end of the journal was cut off"},
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
    {"once verify --server https://once.example", "check what a server shows"},
    {NULL, NULL},
};

static const char *const doctor_text[] = {
    "Looks at the store, at the server that holds it, if one does, and at the machine, and says "
    "PASS, WARN or FAIL of each, with what to do about it.",
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
    {"once doctor --store journal:/var/lib/once", "is this machine fit for it?"},
    {NULL, NULL},
};

static const char *const bench_text[] = {
    "Measures durable pairs of begin and seal per second inside this process, on a fresh store "
    "that is removed afterwards, or on --store.",
    NULL,
};

static const struct option_def bench_options[] = {
    {.name = "seconds", .kind = OPTION_COUNT, .argument = "N", .fallback = "3", .help = "how long"},
    {.name = "threads",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "1",
        .help = "how many submit, at most 64"},
    {.name = "in-flight",
        .kind = OPTION_COUNT,
        .argument = "N",
        .fallback = "512",
        .help = "pairs under way at once, of all threads, at most 16384"},
    {.name = "store",
        .kind = OPTION_TEXT,
        .argument = "URL",
        .help = "measure on this store instead of a fresh one"},
    OPT_JSON,
    OPT_END,
};

static const struct example_def bench_examples[] = {
    {"once bench --seconds 5", "what this disk can do"},
    {NULL, NULL},
};

static const char *const demo_text[] = {
    "A payment provider that times out after charging, fails before charging and loses answers; "
    "clients that retry, crash and send everything twice; and Once between them. Ends with what "
    "happened, and where the journal is. Takes a few seconds.",
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
        .help = "repeat the same mishaps; random when not given"},
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
    {"once demo", "see it work"},
    {NULL, NULL},
};

/* ---- the server -------------------------------------------------------------------------- */

static const char *const serve_text[] = {
    "Serves fences over HTTP to programs in any language, from one store. Without any option it "
    "listens on 127.0.0.1:7411 and keeps its journal in ./once-data. Prints five lines when it is "
    "ready: the version, the URL, the store, how it writes, and a command to try. Logs go to "
    "standard error.",
    "Everything can be set in a YAML file (--config; once check --example prints one with every "
    "setting), the most common things also with flags and ONCE_* variables. Flags win over "
    "variables, these over the file.",
    "SIGHUP reads the configuration again and uses its tokens, limits and certificates, all of "
    "them or, when there is something wrong, none. SIGTERM and SIGINT stop accepting, finish what "
    "is in flight up to --drain, flush, and exit with 0; a second one hurries.",
    "An address that other machines can reach is refused unless tokens are configured. The data "
    "directory has a socket of its own, once.sock, for whoever may open the directory: the other "
    "commands find it by themselves.",
    NULL,
};

/* Of every server. */
#define OPTS_SERVER                                                                                \
    {.name = "loops",                                                                              \
        .kind = OPTION_COUNT,                                                                      \
        .argument = "N",                                                                           \
        .fallback = "0",                                                                           \
        .env = "ONCE_LOOPS",                                                                       \
        .help = "threads that serve connections; 0 is one a core"},                                \
        {.name = "drain",                                                                          \
            .kind = OPTION_DURATION,                                                               \
            .argument = "TIME",                                                                    \
            .fallback = "10s",                                                                     \
            .env = "ONCE_DRAIN",                                                                   \
            .help = "how long to let requests in flight end when told to stop"},                   \
        {.name = "log-level",                                                                      \
            .kind = OPTION_CHOICE,                                                                 \
            .argument = "LEVEL",                                                                   \
            .fallback = "info",                                                                    \
            .choices = {"debug", "info", "warn", "error"},                                         \
            .env = "ONCE_LOG_LEVEL",                                                               \
            .help = "the least important lines that are logged"},                                  \
        {.name = "log-format",                                                                     \
            .kind = OPTION_CHOICE,                                                                 \
            .argument = "FORM",                                                                    \
            .fallback = "auto",                                                                    \
            .choices = {"auto", "json", "human"},                                                  \
            .env = "ONCE_LOG_FORMAT",                                                              \
            .help = "how they look; auto is human on a terminal and json otherwise"},              \
    {                                                                                              \
        .name = "json",                                                                            \
        .help = "with --test: print JSON; else the lines at the start as one object"               \
    }

/* The settings among these are also in config/options.c, which a test holds against this. */
static const struct option_def serve_options[] = {
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the YAML file"},
    {.name = "listen",
        .letter = 'l',
        .kind = OPTION_TEXT,
        .argument = "ADDRESS",
        .repeated = true,
        .fallback = "127.0.0.1:7411",
        .env = "ONCE_LISTEN",
        .help = "where to listen: 127.0.0.1:7411, [::1]:7411 or unix:/path; port 0 is any"},
    OPT_STORE,
    {.name = "test",
        .letter = 't',
        .help = "check the whole configuration, open nothing, and exit"},
    {.name = "tls-cert",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_TLS_CERT",
        .help = "PEM certificate with its chain; TCP addresses then speak TLS"},
    {.name = "tls-key",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_TLS_KEY",
        .help = "PEM private key of --tls-cert"},
    OPTS_SERVER,
    OPT_END,
};

static const char *const gateway_text[] = {
    "Stands in front of an HTTP API and makes it idempotent without changing it: a request with an "
    "Idempotency-Key takes effect once, every repetition gets the first answer, another request "
    "under the same key is refused, and what nobody can know is kept as unknown. Reads stream "
    "through.",
    "Without a file every POST, PUT, PATCH and DELETE is fenced, as the profile says. Routes, "
    "windows, principals, redaction and reconciling are set in the gateway section of a YAML file "
    "(--config; once check --example prints one).",
    "The API of Once itself is on the socket in the data directory, which once ls, show, why and "
    "resolve find by themselves; listen in the file gives it an address too.",
    "SIGHUP, SIGTERM and SIGINT work as with once serve. A request that is with the upstream when "
    "the drain is over becomes unknown.",
    NULL,
};

static const struct option_def gateway_options[] = {
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the YAML file"},
    {.name = "listen",
        .letter = 'l',
        .kind = OPTION_TEXT,
        .argument = "ADDRESS",
        .repeated = true,
        .fallback = "127.0.0.1:8080",
        .env = "ONCE_GATEWAY_LISTEN",
        .help = "where clients come: 127.0.0.1:8080, [::1]:8080 or unix:/path; port 0 is any"},
    {.name = "upstream",
        .letter = 'u',
        .kind = OPTION_TEXT,
        .argument = "URL",
        .repeated = true,
        .env = "ONCE_GATEWAY_UPSTREAM",
        .help = "the API behind: http://127.0.0.1:3000 or https://…; several are used in turn"},
    {.name = "profile",
        .letter = 'p',
        .kind = OPTION_CHOICE,
        .argument = "NAME",
        .fallback = "ietf",
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"},
        .env = "ONCE_GATEWAY_PROFILE",
        .help = "how keys are asked for and refusals look"},
    {.name = "policy",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_GATEWAY_POLICY",
        .help = "a policy in the form of idempotency.yml, over which routes may say otherwise"},
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
    {70, "the store failed while serving; start again to re-read the truth"},
    EXIT_NO_OUTPUT,
    {78, "the configuration or an ONCE_* variable is wrong"},
    EXIT_END,
};

static const struct example_def serve_examples[] = {
    {"once serve", "on 127.0.0.1:7411 with ./once-data"},
    {"once serve --listen 127.0.0.1:0 --store journal:/var/lib/once", "any port, another store"},
    {"once serve --config once.yaml --test", "is the whole configuration right?"},
    {NULL, NULL},
};

static const struct example_def gateway_examples[] = {
    {"once gateway --upstream http://127.0.0.1:3000", "on 127.0.0.1:8080, everything fenced"},
    {"once gateway -l 127.0.0.1:0 -u http://127.0.0.1:3000 --profile stripe", "other manners"},
    {"once gateway --config once.yaml", "routes from a file"},
    {NULL, NULL},
};

static const char *const check_text[] = {
    "Reads a configuration as once serve would and opens nothing. Every fault is told, with file, "
    "line and column, the line, and what was probably meant. FILE can be - for standard input.",
    "Variables and flags are not looked at: once serve --test checks all of them together.",
    "A policy file (require_headers, ttl, on_conflict and so on) is known by its keys: it is "
    "checked as one, and each line is told with what it means here.",
    NULL,
};

static const struct option_def check_options[] = {
    {.name = "example", .help = "print a file with every setting, its default and what it costs"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def check_exits[] = {
    {0, "it is right"},
    EXIT_BAD_USAGE,
    EXIT_NO_OUTPUT,
    {78, "it is wrong, or cannot be read"},
    EXIT_END,
};

static const struct example_def check_examples[] = {
    {"once check once.yaml", "is it right?"},
    {"once check --example > once.yaml", "a file to begin with"},
    {"once check idempotency.yml", "what does this policy mean?"},
    {NULL, NULL},
};

static const char *const policy_text[] = {
    "Sends the requests of CASES through a gateway with the given configuration and policy file, "
    "in front of a stand-in for the API behind, and compares what comes back with what is "
    "expected: statuses, decisions, replays, and how many calls reached the API. It is for CI: a "
    "change of a route or a policy shows what it changes for clients.",
    "It is the real gateway, over loopback sockets, with a fresh store in memory for every case. "
    "Nothing else is contacted and nothing is left behind. docs/gateway-policy.md has the form of "
    "the file. CASES can be - for standard input.",
    NULL,
};

static const struct option_def policy_options[] = {
    {.name = "config",
        .letter = 'c',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_CONFIG",
        .help = "the YAML file of the gateway; its upstreams are never called"},
    {.name = "policy",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .env = "ONCE_GATEWAY_POLICY",
        .help = "a policy in the form of idempotency.yml, over which routes may say otherwise"},
    {.name = "profile",
        .letter = 'p',
        .kind = OPTION_CHOICE,
        .argument = "NAME",
        .fallback = "ietf",
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"},
        .env = "ONCE_GATEWAY_PROFILE",
        .help = "how keys are asked for and refusals look"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def policy_exits[] = {
    {0, "every case is as expected"},
    EXIT_BAD_USAGE,
    {65, "at least one is not"},
    {69, "no loopback port, or no memory"},
    EXIT_NO_OUTPUT,
    {78, "the cases, the configuration or the policy are wrong, or cannot be read"},
    EXIT_END,
};

static const struct example_def policy_examples[] = {
    {"once policy test --config once.yaml cases.yaml", "does it still do what clients rely on?"},
    {"once policy test --policy idempotency.yml cases.yaml", "the same for a policy alone"},
    {NULL, NULL},
};

static const char *const token_text[] = {
    "new makes a bearer token of 256 random bits and prints it, once, together with the line for "
    "the configuration. That line has only its SHA-256: the server never knows the token itself. "
    "Put the line under auth: tokens: and send SIGHUP.",
    "hash reads a token on standard input and prints its SHA-256.",
    "Rights: execute (fences), operate (look at operations and settle them), audit (look at "
    "operations and evidence), confirm (confirmations of commands). Tenant '*' has none and may "
    "only read /metrics, of all tenants.",
    NULL,
};

static const struct option_def token_options[] = {
    {.name = "tenant",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .help = "new: whose operations it is about"},
    {.name = "rights",
        .kind = OPTION_TEXT,
        .argument = "LIST",
        .help = "new: what it allows, with commas: execute,audit"},
    {.name = "name",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .help = "new: what it is called in evidence and logs"},
    OPT_JSON,
    OPT_END,
};

static const struct exit_def token_exits[] = {
    EXIT_FINE,
    EXIT_BAD_USAGE,
    {65, "hash: standard input is no token"},
    {69, "the kernel has no random bytes to give"},
    EXIT_NO_OUTPUT,
    EXIT_END,
};

static const struct example_def token_examples[] = {
    {"once token new --tenant acme --rights execute,audit", "a token for tenant acme"},
    {"once token hash < token.txt", "what the configuration needs of it"},
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
    "Without a name, the list of commands. once NAME --help is the same.",
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
        .summary = "make a bearer token",
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
        .summary = "run a command once, and replay it to every duplicate",
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
        .summary = "send an HTTP request so that it takes effect once",
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
        .summary = "explain how an operation came to where it is",
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
        .summary = "check that the journal is whole",
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
