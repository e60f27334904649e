/* The table of all settings. The example file is made from these words: they are the manual. */
#include <string.h>

#include "base/limits.h"
#include "config/config.h"

#define AT(member) .offset = offsetof(struct config, member)

enum {
    SECOND_MS = 1000,
    HOUR_MS = 3600 * SECOND_MS,
    BURST_MAX = 1000000,
    LOOPS_MAX = 256,
    CONNECTIONS_MAX = 1000000,
};
#define DAY_MS (UINT64_C(24) * HOUR_MS)
#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)

const struct config_option config_options[] = {
    {.path = "listen",
        .kind = CONFIG_LISTEN,
        AT(listen),
        .fallback = "127.0.0.1:7411",
        .env = "ONCE_LISTEN",
        .flag = "listen",
        .at_start = true,
        .help = "Where the API listens: an address and port, [IPv6]:port, or unix:/path, or a list "
                "of them. Port 0 is any free one. An address that other machines can reach needs "
                "auth, and should have tls.",
        .unsure = "Stay on 127.0.0.1 and let a proxy face the world."},
    {.path = "store",
        .kind = CONFIG_TEXT,
        AT(store),
        .fallback = "journal:./once-data",
        .env = "ONCE_STORE",
        .flag = "store",
        .at_start = true,
        .help = "Where operations are remembered: journal:DIRECTORY, made when it is not there. "
                "mem: forgets everything at the end and is for tests only.",
        .unsure = "A journal on a local disk that is backed up."},
    {.path = "loops",
        .kind = CONFIG_COUNT,
        AT(loops),
        .fallback = "0",
        .max = LOOPS_MAX,
        .env = "ONCE_LOOPS",
        .flag = "loops",
        .at_start = true,
        .help = "Threads that read requests and write answers. 0 is one a core. More than cores "
                "only costs memory.",
        .unsure = "Leave it at 0."},
    {.path = "drain",
        .kind = CONFIG_DURATION,
        AT(drain_ms),
        .fallback = "10s",
        .max = HOUR_MS,
        .env = "ONCE_DRAIN",
        .flag = "drain",
        .help = "How long SIGTERM waits for requests in flight before their connections are cut. "
                "What was answered is durable either way; a cut client has to look again.",
        .unsure = "Leave it, and give the supervisor a longer one."},
    {.path = "tls.cert",
        .kind = CONFIG_TEXT,
        AT(tls_cert),
        .at_start = true,
        .env = "ONCE_TLS_CERT",
        .flag = "tls-cert",
        .example = "/etc/once/cert.pem",
        .help = "PEM file with the certificate and its chain. With it every TCP address speaks TLS "
                "and nothing else. SIGHUP reads the file again.",
        .unsure = "Leave it out while listening on 127.0.0.1."},
    {.path = "tls.key",
        .kind = CONFIG_TEXT,
        AT(tls_key),
        .at_start = true,
        .env = "ONCE_TLS_KEY",
        .flag = "tls-key",
        .example = "/etc/once/key.pem",
        .help = "PEM file with the private key of tls.cert. Only the server's user should be able "
                "to read it.",
        .unsure = "Set it exactly when tls.cert is set."},
    {.path = "auth.tokens",
        .kind = CONFIG_TOKENS,
        AT(tokens),
        .help = "Who may do what. Each token names a tenant and has rights: execute (fences), "
                "operate (look and settle), audit (look, and read evidence), confirm "
                "(confirmations of commands). Only its SHA-256 is here: once token new makes both. "
                "Tenant \"*\" may only read /metrics, of all tenants. Without auth everybody who "
                "can connect is tenant default with every right, which only loopback addresses "
                "allow. SIGHUP reads tokens again.",
        .unsure = "One token a program, with execute alone."},
    {.path = "limits.body_bytes_max",
        .kind = CONFIG_SIZE,
        AT(body_bytes_max),
        .fallback = "10MiB",
        .min = 1024,
        .max = GIB,
        .env = "ONCE_LIMITS_BODY_BYTES_MAX",
        .help = "The largest request body; a larger one is refused with 413. Bodies in flight are "
                "held in memory. A higher one than at the start needs a restart.",
        .unsure = "Leave it."},
    {.path = "limits.outcome_bytes_max",
        .kind = CONFIG_SIZE,
        AT(outcome_bytes_max),
        .fallback = "16MiB",
        .max = LIMIT_OUTCOME_BYTES_MAX,
        .env = "ONCE_LIMITS_OUTCOME_BYTES_MAX",
        .help = "The largest outcome that is kept. A larger one is sealed without its bytes, and "
                "duplicates are told so. Smaller saves disk.",
        .unsure = "Leave it."},
    {.path = "limits.in_flight_bytes_max",
        .kind = CONFIG_SIZE,
        AT(in_flight_bytes_max),
        .fallback = "256MiB",
        .min = MIB,
        .max = 1024 * GIB,
        .at_start = true,
        .env = "ONCE_LIMITS_IN_FLIGHT_BYTES_MAX",
        .help = "Memory for all request bodies that are being read or worked on; past it requests "
                "get 503.",
        .unsure = "A quarter of the memory the server may use."},
    {.path = "limits.connections_max",
        .kind = CONFIG_COUNT,
        AT(connections_max),
        .fallback = "10000",
        .min = 1,
        .max = CONNECTIONS_MAX,
        .at_start = true,
        .env = "ONCE_LIMITS_CONNECTIONS_MAX",
        .help = "Connections at a time; one more gets 503. Each needs a file descriptor: see that "
                "ulimit -n is higher.",
        .unsure = "Leave it."},
    {.path = "limits.keys_max",
        .kind = CONFIG_COUNT,
        AT(keys_max),
        .fallback = "0",
        .max = UINT64_C(1) << 40,
        .at_start = true,
        .env = "ONCE_LIMITS_KEYS_MAX",
        .help = "Keys that may be remembered at a time, at about 100 bytes of memory each; past it "
                "new keys are refused, and no old one is ever pushed out. 0 is no limit.",
        .unsure = "Leave it at 0 and watch the memory."},
    {.path = "limits.duplicate_rate",
        .kind = CONFIG_REAL,
        AT(duplicate_rate),
        .fallback = "20",
        .max = BURST_MAX,
        .env = "ONCE_LIMITS_DUPLICATE_RATE",
        .help = "Duplicates of one key that are answered, a second; past it they get 429 and are "
                "counted in the evidence. 0 is no limit.",
        .unsure = "Leave it: a client that is well meant backs off long before."},
    {.path = "limits.duplicate_burst",
        .kind = CONFIG_REAL,
        AT(duplicate_burst),
        .fallback = "40",
        .min = 1,
        .max = BURST_MAX,
        .env = "ONCE_LIMITS_DUPLICATE_BURST",
        .help = "Duplicates of one key that may come at once before duplicate_rate counts.",
        .unsure = "Twice duplicate_rate."},
    {.path = "limits.head_timeout",
        .kind = CONFIG_DURATION,
        AT(head_timeout_ms),
        .fallback = "10s",
        .min = 10,
        .max = HOUR_MS,
        .at_start = true,
        .env = "ONCE_LIMITS_HEAD_TIMEOUT",
        .help = "How long the head of a request may take from its first byte; past it 408.",
        .unsure = "Leave it."},
    {.path = "limits.body_timeout",
        .kind = CONFIG_DURATION,
        AT(body_timeout_ms),
        .fallback = "30s",
        .min = 10,
        .max = HOUR_MS,
        .at_start = true,
        .env = "ONCE_LIMITS_BODY_TIMEOUT",
        .help = "How long a body may take, besides a second for each KiB of it; past it 408.",
        .unsure = "Leave it."},
    {.path = "limits.idle_timeout",
        .kind = CONFIG_DURATION,
        AT(idle_timeout_ms),
        .fallback = "75s",
        .min = 10,
        .max = DAY_MS,
        .at_start = true,
        .env = "ONCE_LIMITS_IDLE_TIMEOUT",
        .help = "How long a connection may be silent between requests. Longer than the clients' "
                "or the proxy's own, so that they close first.",
        .unsure = "Leave it."},
    {.path = "limits.write_timeout",
        .kind = CONFIG_DURATION,
        AT(write_timeout_ms),
        .fallback = "30s",
        .min = 10,
        .max = HOUR_MS,
        .at_start = true,
        .env = "ONCE_LIMITS_WRITE_TIMEOUT",
        .help = "How long an answer may wait for a client that does not read it.",
        .unsure = "Leave it."},
    {.path = "evidence.retain",
        .kind = CONFIG_DURATION,
        AT(retain_ms),
        .fallback = "400d",
        .min = HOUR_MS,
        .max = 36500 * DAY_MS,
        .at_start = true,
        .env = "ONCE_EVIDENCE_RETAIN",
        .help = "How long evidence is kept. What is older is removed, with an entry that says so. "
                "Live operations stay whatever their age.",
        .unsure = "Thirteen months: what auditors ask about."},
    {.path = "evidence.checkpoint_every",
        .kind = CONFIG_DURATION,
        AT(checkpoint_every_ms),
        .fallback = "60s",
        .min = SECOND_MS,
        .max = DAY_MS,
        .at_start = true,
        .env = "ONCE_EVIDENCE_CHECKPOINT_EVERY",
        .help = "How often the head of the evidence is signed. A copy of a checkpoint kept "
                "elsewhere shows whether the journal was cut behind it.",
        .unsure = "Leave it."},
    {.path = "log.level",
        .kind = CONFIG_CHOICE,
        AT(log_level),
        .fallback = "info",
        .choices = {"debug", "info", "warn", "error"},
        .at_start = true,
        .env = "ONCE_LOG_LEVEL",
        .flag = "log-level",
        .help = "The least important lines that are written: debug, info, warn or error.",
        .unsure = "Leave it at info."},
    {.path = "log.format",
        .kind = CONFIG_CHOICE,
        AT(log_format),
        .fallback = "auto",
        .choices = {"auto", "json", "human"},
        .at_start = true,
        .env = "ONCE_LOG_FORMAT",
        .flag = "log-format",
        .help = "How lines on standard error look: json, human, or auto, which is human on a "
                "terminal and json otherwise.",
        .unsure = "Leave it at auto."},
    {.path = "log.decisions",
        .kind = CONFIG_BOOL,
        AT(log_decisions),
        .fallback = "true",
        .env = "ONCE_LOG_DECISIONS",
        .help = "A line for each decision. The evidence has them all anyway; without the lines a "
                "busy server is a little faster and its log much smaller.",
        .unsure = "Leave it on until the log is too large."},
    {0},
};

static const struct config_option *find(const struct config_option *options, const char *path)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (strcmp(o->path, path) == 0) {
            return o;
        }
    }
    return NULL;
}

const struct config_option *config_option_find(const char *path)
{
    const struct config_option *option = find(config_options, path);
    return option != NULL ? option : find(config_gateway_options, path);
}
